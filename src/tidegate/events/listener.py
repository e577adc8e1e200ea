"""The base class of listeners."""

from __future__ import annotations

from tidegate.events.event import (
    CheckpointEvent,
    EpochEvent,
    JobEvent,
    JobFailureEvent,
    JobInitializationEvent,
    JobStatusChangeEvent,
    RescaleEvent,
)


class JobListener:
    """Is notified of what happens to a job: `job.run(listeners=[MyListener()])`. Override the methods you need.

    A listener has a thread of its own, which calls one method at a time, in the order of the events. Neither an error nor a
    delay in a method reaches the job: errors are logged, and events that arrive while 1,000 are waiting are dropped, counted
    and logged. When the job ends, it waits up to five seconds for its listeners.
    """

    def on_epoch(self, event: EpochEvent, /) -> None:
        """An epoch was accepted. `event` has its rows and times."""

    def on_checkpoint(self, event: CheckpointEvent, /) -> None:
        """A checkpoint or savepoint has completed or failed. `event` has its size and duration, or the reason."""

    def on_status_change(self, event: JobStatusChangeEvent, /) -> None:
        """The job has another status: `event.new_status`."""

    def on_failure(self, event: JobFailureEvent, /) -> None:
        """A failure ended an attempt of the job, or the job. `event` has the cause, and whether the job restarts."""

    def on_rescale(self, event: RescaleEvent, /) -> None:
        """The job runs with another parallelism than the snapshot it was restored from. `event` has both."""

    def on_initialization(self, event: JobInitializationEvent, /) -> None:
        """All tasks are ready, with their state restored. `event` says how long that took."""

    def close(self) -> None:
        """The job has ended. Called once, after the last event."""


def notify(listener: JobListener, event: JobEvent) -> None:
    """Call the listener's method for this kind of event."""
    match event:
        case EpochEvent():
            listener.on_epoch(event)
        case CheckpointEvent():
            listener.on_checkpoint(event)
        case JobStatusChangeEvent():
            listener.on_status_change(event)
        case JobFailureEvent():
            listener.on_failure(event)
        case RescaleEvent():
            listener.on_rescale(event)
        case JobInitializationEvent():
            listener.on_initialization(event)
        case _:
            raise AssertionError(f"listeners have no method for {event.NAME}")
