"""The contract of an exactly-once sink, as tests to inherit. They run under pytest and need no Spark.
A sink that may repeat rows inherits `OrderContract` and `RefusalContract`, and `ForgeryContract` if its payloads name anything.

    class TestMySink(SinkContract):
        @pytest.fixture
        def target(self, tmp_path):
            return MyTarget(tmp_path)          # a SinkTarget: the sink, and how a reader looks at what it wrote

The tests kill processes at the fault points of the sink (`tidegate.core.faults.reach`). A sink without fault points is killed
between its calls, and wherever it stages or reads rows.
"""

from __future__ import annotations

import contextlib

with contextlib.suppress(ImportError):
    import pytest

    # Otherwise a failed assertion of these modules shows its line, and not what the target holds or which error it raised.
    pytest.register_assert_rewrite(
        *(
            f"{__name__}.{part}"
            for part in (
                "abandoned",
                "cleanup",
                "crashes",
                "forgeries",
                "histories",
                "order",
                "refusals",
                "outages",
                "repeats",
                "restores",
                "target",
                "visibility",
            )
        )
    )

from tidegate.testing.sink_contract.abandoned import AbandonedContract
from tidegate.testing.sink_contract.cleanup import CleanupContract
from tidegate.testing.sink_contract.crashes import CrashContract
from tidegate.testing.sink_contract.forgeries import ForgeryContract
from tidegate.testing.sink_contract.histories import HistoryContract
from tidegate.testing.sink_contract.order import OrderContract
from tidegate.testing.sink_contract.outages import OutageContract
from tidegate.testing.sink_contract.refusals import RefusalContract
from tidegate.testing.sink_contract.repeats import RepeatContract
from tidegate.testing.sink_contract.restores import RestoreContract
from tidegate.testing.sink_contract.target import (
    CountsCommits,
    Refuses,
    ShowsMarkers,
    SinkTarget,
    check,
    check_order,
)
from tidegate.testing.sink_contract.visibility import VisibilityContract

__all__ = [
    "CountsCommits",
    "ForgeryContract",
    "OrderContract",
    "RefusalContract",
    "Refuses",
    "ShowsMarkers",
    "SinkContract",
    "SinkTarget",
    "check",
    "check_order",
]


class SinkContract(
    ForgeryContract,
    HistoryContract,
    AbandonedContract,
    CleanupContract,
    RestoreContract,
    OutageContract,
    RefusalContract,
    CrashContract,
    RepeatContract,
    VisibilityContract,
    OrderContract,
):
    """Everything that an exactly-once sink must guarantee. pytest runs the tests of the last base first."""
