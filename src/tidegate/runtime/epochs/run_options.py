"""What a user chooses for one run: the arguments of `job.run()` and `job.start()`, as one object."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tidegate.config import Checkpointing
    from tidegate.events.listener import JobListener


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """The choices for one run, as the user made them: neither parsed nor merged with the options for all jobs.

    `runtime/epochs/settings.py` makes checked settings of them.
    """

    parallelism: int | None = None
    """Tasks of every level. None: derived from the cores of the Spark session."""
    max_parallelism: int | None = None
    """Key groups, fixed once the job has run. None: the option `pipeline.max-parallelism`, or Flink's default."""
    checkpoint: Checkpointing | str | None = None
    """How checkpoints are taken; a text is their directory. None: as the options say, else without checkpoints."""
    trigger: str | None = None
    """How often an epoch starts: an interval, or `available-now`. None: as often as possible."""
    drain: bool = False
    """With `available-now`: after the last row, let all event time pass and finish the job."""
    state_backend: str | None = None
    """`hashmap`, `rocksdb`, or a class of the user's own as `module.Class`. None: as the options say."""
    options: Mapping[str, object] = field(default_factory=dict)
    """Any option by its key. `CommandLineOptions` win over `checkpoint`, others give way to it."""
    fresh: bool = False
    """Abandon the history of the job, and start without state."""
    force: bool = False
    """Take over the job even if its owner seems to be alive."""
    listeners: Sequence[JobListener] = ()
    """Notified of the events of the run, each in a thread of its own."""
    restart: bool = False
    """Stop a run of the same job in this process first, instead of refusing the start."""
