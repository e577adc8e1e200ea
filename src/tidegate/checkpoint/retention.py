"""What happens to a job's checkpoints when it ends: Flink's table."""

from __future__ import annotations

from enum import StrEnum

from tidegate.checkpoint.entry import Outcome


class ExternalizedCheckpointRetention(StrEnum):
    NO_EXTERNALIZED_CHECKPOINTS = "NO_EXTERNALIZED_CHECKPOINTS"
    DELETE_ON_CANCELLATION = "DELETE_ON_CANCELLATION"
    RETAIN_ON_CANCELLATION = "RETAIN_ON_CANCELLATION"


DEFAULT = ExternalizedCheckpointRetention.RETAIN_ON_CANCELLATION
"""Flink's default is to keep none.

Here the name of a job is its identity, and the next start under it resumes from them.
"""

_KEPT = {
    ExternalizedCheckpointRetention.NO_EXTERNALIZED_CHECKPOINTS: frozenset[Outcome](),
    ExternalizedCheckpointRetention.DELETE_ON_CANCELLATION: frozenset({Outcome.FAILED}),
    ExternalizedCheckpointRetention.RETAIN_ON_CANCELLATION: frozenset(
        {Outcome.CANCELED, Outcome.FAILED, Outcome.SUSPENDED}
    ),
}


def keeps(retention: ExternalizedCheckpointRetention, outcome: Outcome) -> bool:
    """Whether checkpoints outlive a run that ended so.

    Savepoints always do. A crash ends nothing, so it deletes nothing.
    """
    return outcome in _KEPT[retention]
