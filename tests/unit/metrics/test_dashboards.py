"""The alert rules and the dashboard: every query names metrics and labels that exist."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.cog.plugins import register_default_plugins
from grafana_foundation_sdk.models.dashboard import Dashboard

from tests.pages import alerts as alert_docs
from tidegate.metrics import alerts, dashboard, grafana
from tidegate.metrics.alerts import AlertSettings, Severity
from tidegate.metrics.catalog import METRICS

BY_NAME = {metric.prometheus_name: metric for metric in METRICS}
ALERTS = {rule.name: rule for rule in alerts.rules()}
PANELS = [panel for section in dashboard.SECTIONS for panel in section.panels]
QUERIES = [rule.expr for rule in alerts.rules()] + [query.expr for panel in PANELS for query in panel.queries]


@pytest.mark.parametrize("query", QUERIES)
def test_a_query_names_only_metrics_that_exist(query: str) -> None:
    assert set(re.findall(r"tidegate_\w+", query)) <= set(BY_NAME)


@pytest.mark.parametrize("rule", ALERTS.values(), ids=ALERTS)
def test_a_summary_uses_labels_that_its_metric_has(rule: alerts.AlertRule) -> None:
    first = next((BY_NAME[name] for name in re.findall(r"tidegate_\w+", rule.expr)), None)
    known = {"instance", *(() if first is None else first.label_names)}
    assert set(re.findall(r"\$labels\.(\w+)", rule.summary)) <= known


def test_the_legend_of_a_chart_uses_labels_that_its_metrics_have() -> None:
    for panel in PANELS:
        for query in panel.queries:
            known = {label for name in re.findall(r"tidegate_\w+", query.expr) for label in BY_NAME[name].label_names}
            assert set(re.findall(r"\{\{(\w+)\}\}", query.legend)) <= known, panel.title


def test_every_condition_worth_waking_someone_has_an_alert() -> None:
    assert {name.removeprefix("Tidegate") for name in ALERTS} == {
        "DriverDown", "JobRestarting", "RestartLoop", "CheckpointsFailing", "CheckpointTooOld", "TargetRefuses",
        "OutputWaiting", "InputHeld", "SourceStalled", "WatermarkStuck", "MemoryNearBudget", "DiskNearlyFull",
    }  # fmt: skip
    assert {rule.severity for rule in ALERTS.values()} == set(Severity)


def test_settings_are_what_the_rules_say() -> None:
    given = AlertSettings(evaluation_s=7, output_wait_s=11, stall_s=120)
    text = alerts.rules_file(given)
    assert "interval: 7s" in text
    assert "tidegate_sink_oldest_waiting_age_seconds > 11" in text
    assert "offset 2m" in text


def test_durations_below_a_second_are_refused() -> None:
    with pytest.raises(ValueError, match="at least one second"):
        AlertSettings(stall_s=0)


def test_panels_have_their_own_number_and_do_not_overlap() -> None:
    shown = grafana.dashboard()["panels"]
    assert len({panel["id"] for panel in shown}) == len(shown)
    taken: set[tuple[int, int]] = set()
    for place in (panel["gridPos"] for panel in shown):
        cells = {(place["x"] + x, place["y"] + y) for x in range(place["w"]) for y in range(place["h"])}
        assert not cells & taken
        assert place["x"] + place["w"] <= 24
        taken |= cells


def test_the_dashboard_is_json_and_asks_the_chosen_source_about_the_chosen_jobs() -> None:
    read = json.loads(grafana.dashboard_file())
    asked = [target for panel in read["panels"] for target in panel.get("targets", [])]
    assert {target["datasource"]["uid"] for target in asked} == {"${datasource}"}
    assert [target["expr"] for target in asked if 'job=~"$job"' not in target["expr"]] == []


def test_the_page_explains_every_alert() -> None:
    page = Path(__file__).parents[3] / "docs" / "operations" / "alerts.md"
    assert page.read_text() == alert_docs.page(), "run: python -m tests.pages.alerts > docs/operations/alerts.md"


def test_the_runbook_has_a_section_for_every_alert_and_for_nothing_else() -> None:
    page = (Path(__file__).parents[3] / "docs" / "operations" / "runbook.md").read_text()
    sections = dict(re.findall(r"^## (Tidegate\w+)\n(.*?)(?=^## |\Z)", page, re.MULTILINE | re.DOTALL))
    assert list(sections) == list(ALERTS)
    for name, text in sections.items():
        parts = re.findall(r"^\*\*(\w+)\.\*\*", text, re.MULTILINE)
        assert parts == ["Meaning", "Impact", "Check", "Fix"], name


def test_alerts_link_to_their_section_of_the_runbook_if_its_address_is_known() -> None:
    text = alerts.rules_file(AlertSettings(runbook="https://docs.example.com/runbook/"))
    assert text.count("runbook_url") == len(ALERTS)
    assert 'runbook_url: "https://docs.example.com/runbook/#tidegatedriverdown"' in text
    assert "runbook_url" not in alerts.rules_file()


def missing(ours: object, theirs: object, path: str = "") -> list[str]:
    """Values of ours that theirs has not, or has otherwise."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        return [each for key in ours for each in missing(ours[key], theirs.get(key), f"{path}.{key}")]
    if isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
        return [each for n, (a, b) in enumerate(zip(ours, theirs)) for each in missing(a, b, f"{path}[{n}]")]
    return [] if ours == theirs else [f"{path}: {ours!r} became {theirs!r}"]


def test_every_field_of_the_dashboard_is_in_grafanas_model() -> None:
    register_default_plugins()
    read = Dashboard.from_json(grafana.dashboard())
    assert missing(grafana.dashboard(), json.loads(json.dumps(read, cls=JSONEncoder))) == []
