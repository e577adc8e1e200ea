"""Messages of REST about the parallelism of a job and its rescales (Flink 2.3)."""

from __future__ import annotations

from msgspec import Struct

from tidegate.control.messages.checkpoints import StatsSummary


class ParallelismBounds(Struct, frozen=True, rename="camel"):
    """The job runs with the upper bound. It waits for no slots, so the lower bound has no effect."""

    lower_bound: int
    upper_bound: int


class JobVertexResourceRequirements(Struct, frozen=True):
    parallelism: ParallelismBounds


class SchedulerStateSpan(Struct, frozen=True, kw_only=True):
    """A phase of a rescale."""

    state: str
    enterTimestampInMillis: int
    leaveTimestampInMillis: int
    durationInMillis: int
    stringifiedException: str | None = None


class VertexParallelismRescaleInfo(Struct, frozen=True, kw_only=True, rename="camel"):
    job_vertex_id: str
    job_vertex_name: str
    slot_sharing_group_id: str
    slot_sharing_group_name: str
    desired_parallelism: int
    sufficient_parallelism: int
    pre_rescale_parallelism: int
    post_rescale_parallelism: int | None


class SlotSharingGroupRescaleInfo(Struct, frozen=True, kw_only=True, rename="camel"):
    """All levels share their slots. Resources of a slot are Spark's."""

    slot_sharing_group_id: str
    slot_sharing_group_name: str
    request_resource_profile: None = None
    desired_slots: int
    minimal_required_slots: int
    pre_rescale_slots: int
    post_rescale_slots: int | None
    acquired_resource_profile: None = None


class JobRescaleDetails(Struct, frozen=True, kw_only=True, rename="camel"):
    """`scheduler_states` is null in lists. `terminal_state` and what follows from it are null while it is in progress.
    Flink has no `requested_by`: its autoscaler asks as a user does."""

    rescale_uuid: str
    resource_requirements_uuid: str
    rescale_attempt_id: int
    vertices: dict[str, VertexParallelismRescaleInfo]
    slots: dict[str, SlotSharingGroupRescaleInfo]
    scheduler_states: list[SchedulerStateSpan] | None
    start_timestamp_in_millis: int
    end_timestamp_in_millis: int | None
    terminal_state: str | None
    trigger_cause: str
    terminated_reason: str | None
    requested_by: str


class RescalesCounts(Struct, frozen=True, kw_only=True, rename="camel"):
    ignored: int
    in_progress: int
    completed: int
    failed: int


class LatestRescales(Struct, frozen=True, kw_only=True):
    completed: JobRescaleDetails | None
    failed: JobRescaleDetails | None
    ignored: JobRescaleDetails | None


class JobRescalesOverview(Struct, frozen=True, kw_only=True, rename="camel"):
    rescales_counts: RescalesCounts
    latest: LatestRescales


class JobRescalesSummary(Struct, frozen=True, kw_only=True, rename="camel"):
    """Durations of the rescales that are remembered."""

    rescales_counts: RescalesCounts
    rescales_duration_stats_in_millis: StatsSummary
    completed_rescales_duration_stats_in_millis: StatsSummary
    ignored_rescales_duration_stats_in_millis: StatsSummary
    failed_rescales_duration_stats_in_millis: StatsSummary


class JobRescaleConfigInfo(Struct, frozen=True, kw_only=True, rename="camel"):
    """Flink's scheduler waits for resources before it rescales; a job of tidegate rescales at once, so those times are null."""

    rescale_history_max: int
    scheduler_execution_mode: str | None = None
    submission_resource_wait_timeout_in_millis: int | None = None
    submission_resource_stabilization_timeout_in_millis: int | None = None
    slot_idle_timeout_in_millis: int | None = None
    executing_cooldown_timeout_in_millis: int | None = None
    executing_resource_stabilization_timeout_in_millis: int | None = None
    maximum_delay_for_triggering_rescale_in_millis: int | None = None
    rescale_on_failed_checkpoint_count: int | None = None
