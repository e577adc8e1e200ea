"""What a run starts from."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.savepoint.checkpoint_kit import History, Operator, value
from tidegate.core.ids import Term, Uid
from tidegate.runtime.checkpoints.restore_point import RestorePoint
from tidegate.runtime.epochs.job_description import JobDescription
from tidegate.savepoint.snapshot import StoredSnapshot

TOTALS = Operator("totals", ("string",), (value("total", float),), {"total": {f"u{n}": n / 2 for n in range(40)}})


@pytest.mark.feature("J1", "J28")
@pytest.mark.parametrize("inline", [0, 1 << 20], ids=["state in files", "state in the metadata"])
def test_all_state_is_restored_with_the_positions_of_its_epoch(tmp_path: Path, inline: int) -> None:
    history = History(tmp_path, inline=inline)
    snapshot = StoredSnapshot.open(history.checkpoint(1, TOTALS)).metadata
    point = RestorePoint(snapshot.lineage, Term(2), snapshot, "orders", None, history.storage)
    job = JobDescription(
        job="orders", parallelism=history.parallelism, max_parallelism=history.max_parallelism, backend=history.backend,
        levels=1, sources=(Uid("clicks"),), operators=snapshot.operators, state_ids={}, spark_version="4.3.0",
    )  # fmt: skip
    assert sorted(point.orders(job, False, {})) == job.tasks
    (clicks,), _ = point.sources(job, False)
    assert clicks.line == '{"0":15}'
