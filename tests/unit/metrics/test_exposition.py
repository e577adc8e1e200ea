"""What Prometheus reads."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families

from tidegate.metrics import catalog
from tidegate.metrics.exposition import exposition
from tidegate.metrics.metric import Sample


def read(text: bytes) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    families = text_string_to_metric_families(text.decode())
    return {(s.name, tuple(sorted(s.labels.items()))): s.value for family in families for s in family.samples}


def test_values_come_in_base_units_with_their_labels():
    samples = [
        Sample(catalog.LAST_CHECKPOINT_DURATION, 1_500),
        Sample(catalog.RECORDS_IN, 7, {"operator": "count"}),
        Sample(catalog.RECORDS_IN, 8, {"operator": 'odd "name"\n'}),
    ]
    assert read(exposition("shop", samples)) == {
        ("tidegate_job_last_checkpoint_duration_seconds", (("job", "shop"),)): 1.5,
        ("tidegate_operator_num_records_in_total", (("job", "shop"), ("operator", "count"))): 7,
        ("tidegate_operator_num_records_in_total", (("job", "shop"), ("operator", 'odd "name"\n'))): 8,
    }


def test_a_metric_without_a_value_is_left_out():
    assert exposition("shop", []) == b""
