"""What a run remembers of its epochs: figures, however many rows their sinks prepared."""

from __future__ import annotations

from dataclasses import replace

from tests.unit.runtime.monitoring.test_progress import REPORT, TASK
from tidegate.connectors.sink import Committable
from tidegate.core.ids import EpochId, HostId, Lineage, Slot, Term, Uid
from tidegate.runtime.epochs.reports import EpochReport, EpochReports
from tidegate.runtime.exchange.messages import OutputMark, TaskCommitResult, Uploaded


def report(number: int, host: str = "a") -> EpochReport:
    epoch = EpochId(Term(1), number)
    rows = Committable(
        lineage=Lineage("line"), sink=Uid("out"), epoch=epoch, slot=Slot(0), payload=bytes(1_000_000), staged=()
    )
    return replace(
        REPORT,
        epoch=epoch,
        hosts={TASK: HostId(host)},
        committables=(rows,),
        uploads=((TASK, Uploaded(1, b"part", None)),),
        commit_results=(
            TaskCommitResult("out", (OutputMark("line", 0, 1, number),), {"COMMITTED": 1}, "COMMITTED", None),
        ),
    )


def test_reports_of_past_epochs_keep_neither_rows_nor_commit_results() -> None:
    kept = EpochReports(3)
    for number in range(1, 6):
        kept.append(report(number))
    assert [each.epoch.number for each in kept] == [3, 4, 5]
    assert all(each.committables == () and each.uploads == () and each.commit_results == () for each in kept)
    assert (kept[-1].rows_in, kept[-1].operators) == (REPORT.rows_in, REPORT.operators)


def test_epochs_with_the_same_placement_share_one_table_of_hosts() -> None:
    kept = EpochReports(9)
    for host in "aab":
        kept.append(report(len(kept), host))
    assert [each.hosts[TASK] for each in kept] == ["a", "a", "b"]
    assert kept[0].hosts is kept[1].hosts
