"""The parallelism of a job and its rescales, from its report, in the form of Flink's REST."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from tidegate.checkpoint.coordination.statistics import Percentiles
from tidegate.control.jobs.job_errors import NotFound, NotPossible
from tidegate.control.jobs.plan import Vertex, vertices
from tidegate.control.messages.checkpoints import StatsSummary
from tidegate.control.messages.rescales import (
    JobRescaleConfigInfo,
    JobRescaleDetails,
    JobRescalesOverview,
    JobRescalesSummary,
    JobVertexResourceRequirements,
    LatestRescales,
    ParallelismBounds,
    RescalesCounts,
    SchedulerStateSpan,
    SlotSharingGroupRescaleInfo,
    VertexParallelismRescaleInfo,
)
from tidegate.core.redaction import redacted
from tidegate.runtime.monitoring.rescale_history import KEPT, Rescale, RescaleState
from tidegate.runtime.monitoring.run_report import RunReport

_GROUP = "default"
_CAUSE = "UPDATE_REQUIREMENT"

Requirements = Mapping[str, JobVertexResourceRequirements]


class RescaleReport:
    """The rescales in the report of a run."""

    def __init__(self, report: RunReport) -> None:
        self._report = report
        self._levels = [vertex for vertex in vertices(report.graph) if not vertex.is_source_stage]
        """Spark chooses how many tasks read the sources."""

    def requirements(self) -> dict[str, JobVertexResourceRequirements]:
        # The lower bound has no effect, since a job waits for no slots: any value up to the upper one is true.
        bounds = ParallelismBounds(1, self._report.parallelism)
        return {vertex.id: JobVertexResourceRequirements(bounds) for vertex in self._levels}

    def parallelism_in(self, requirements: Requirements) -> int:
        """Return the parallelism that all vertices are to have. Raises `NotPossible` if they are not to have the same."""
        ids = {vertex.id for vertex in self._levels}
        if requirements.keys() != ids:
            raise NotPossible(f"A request names every vertex once, and no other: {', '.join(sorted(ids))}.")
        values = {each.parallelism.upper_bound for each in requirements.values()}
        if len(values) > 1:
            raise NotPossible("All vertices of a job have the same parallelism. Give all of them the same upperBound.")
        lowest = max(each.parallelism.lower_bound for each in requirements.values())
        (parallelism,) = values
        if parallelism >= 1 and not 1 <= lowest <= parallelism:
            raise NotPossible("lowerBound is at least 1 and at most upperBound.")
        return parallelism

    def overview(self) -> JobRescalesOverview:
        latest = {state: self._latest(state) for state in RescaleState}
        return JobRescalesOverview(
            rescales_counts=self._counts(),
            latest=LatestRescales(
                completed=latest[RescaleState.COMPLETED],
                failed=latest[RescaleState.FAILED],
                ignored=latest[RescaleState.IGNORED],
            ),
        )

    def history(self) -> list[JobRescaleDetails]:
        """Newest first."""
        return [self._details(each) for each in self._report.rescales]

    def summary(self) -> JobRescalesSummary:
        def spread(*states: RescaleState) -> StatsSummary:
            percentiles = Percentiles.of(each.duration_ms for each in self._report.rescales if each.state in states)
            return (
                StatsSummary()
                if percentiles is None
                else msgspec.convert(percentiles, StatsSummary, from_attributes=True)
            )

        return JobRescalesSummary(
            rescales_counts=self._counts(),
            rescales_duration_stats_in_millis=spread(RescaleState.COMPLETED, RescaleState.IGNORED, RescaleState.FAILED),
            completed_rescales_duration_stats_in_millis=spread(RescaleState.COMPLETED),
            ignored_rescales_duration_stats_in_millis=spread(RescaleState.IGNORED),
            failed_rescales_duration_stats_in_millis=spread(RescaleState.FAILED),
        )

    def config(self) -> JobRescaleConfigInfo:
        return JobRescaleConfigInfo(rescale_history_max=KEPT)

    def details(self, uuid: str) -> JobRescaleDetails:
        for each in self._report.rescales:
            if each.uuid == uuid:
                return self._details(each, [_span(each, number) for number in range(len(each.phases))])
        raise NotFound(f"Job {self._report.lineage} has no rescale {uuid!r}, or had it long ago.")

    def _counts(self) -> RescalesCounts:
        counts = self._report.rescale_counts
        running = sum(each.state is RescaleState.IN_PROGRESS for each in self._report.rescales)
        return RescalesCounts(
            ignored=counts.get(RescaleState.IGNORED, 0),
            in_progress=running,
            completed=counts.get(RescaleState.COMPLETED, 0),
            failed=counts.get(RescaleState.FAILED, 0),
        )

    def _latest(self, state: RescaleState) -> JobRescaleDetails | None:
        return next((self._details(each) for each in self._report.rescales if each.state is state), None)

    def _details(self, rescale: Rescale, states: list[SchedulerStateSpan] | None = None) -> JobRescaleDetails:
        after = rescale.new_parallelism if rescale.state is RescaleState.COMPLETED else None
        if after is None and rescale.ended_ms is not None:
            # Failed or ignored: the job keeps the parallelism that it had.
            after = rescale.old_parallelism
        group = SlotSharingGroupRescaleInfo(
            slot_sharing_group_id=_GROUP,
            slot_sharing_group_name=_GROUP,
            desired_slots=rescale.new_parallelism,
            minimal_required_slots=1,
            pre_rescale_slots=rescale.old_parallelism,
            post_rescale_slots=after,
        )
        return JobRescaleDetails(
            rescale_uuid=rescale.uuid,
            # Flink may need several attempts to reach one set of requirements. Here each set has one rescale.
            resource_requirements_uuid=rescale.uuid,
            rescale_attempt_id=1,
            vertices={vertex.id: _vertex(vertex, rescale, after) for vertex in self._levels},
            slots={_GROUP: group},
            scheduler_states=states,
            start_timestamp_in_millis=rescale.started_ms,
            end_timestamp_in_millis=rescale.ended_ms,
            terminal_state=None if rescale.reason is None else str(rescale.state),
            trigger_cause=_CAUSE,
            terminated_reason=None if rescale.reason is None else str(rescale.reason),
            requested_by=str(rescale.requested_by),
        )


def _vertex(vertex: Vertex, rescale: Rescale, after: int | None) -> VertexParallelismRescaleInfo:
    return VertexParallelismRescaleInfo(
        job_vertex_id=vertex.id,
        job_vertex_name=vertex.name,
        slot_sharing_group_id=_GROUP,
        slot_sharing_group_name=_GROUP,
        desired_parallelism=rescale.new_parallelism,
        sufficient_parallelism=1,
        pre_rescale_parallelism=rescale.old_parallelism,
        post_rescale_parallelism=after,
    )


def _span(rescale: Rescale, number: int) -> SchedulerStateSpan:
    """Return a phase of a rescale. The last one of a rescale that failed has the error."""
    span = rescale.phases[number]
    is_last = number == len(rescale.phases) - 1
    return SchedulerStateSpan(
        state=str(span.phase),
        enterTimestampInMillis=span.entered_ms,
        leaveTimestampInMillis=span.entered_ms + span.duration_ms,
        durationInMillis=span.duration_ms,
        stringifiedException=redacted(rescale.message) if is_last and rescale.message is not None else None,
    )
