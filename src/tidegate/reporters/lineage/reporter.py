"""OpenLineage's run events for a job: START, RUNNING, and COMPLETE, ABORT or FAIL."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.metadata import version

from openlineage.client import OpenLineageClient
from openlineage.client.event_v2 import InputDataset, Job, OutputDataset, Run, RunEvent, RunState
from openlineage.client.facet_v2 import (
    DatasetFacet,
    JobFacet,
    RunFacet,
    error_message_run,
    job_type_job,
    processing_engine_run,
    schema_dataset,
)
from openlineage.client.transport.http import HttpConfig, HttpTransport
from openlineage.client.uuid import generate_new_uuid

from tidegate.config.reporting import LineageConfig
from tidegate.events.event import JobFailureEvent, JobStatusChangeEvent
from tidegate.reporters.dataset import Dataset
from tidegate.reporters.reporter import Reporter

_STATES = {
    # Restarts are part of one run: OpenLineage has no state for them.
    "INITIALIZING": RunState.START,
    "RUNNING": RunState.RUNNING,
    "FINISHED": RunState.COMPLETE,
    "CANCELED": RunState.ABORT,
    "FAILED": RunState.FAIL,
}
"""The statuses that a lineage service hears of."""
_PRODUCER = "tidegate"


class LineageReporter(Reporter):
    """One run of OpenLineage for each run of the job. Errors of the service are those of a listener: logged, and no more."""

    def __init__(
        self, config: LineageConfig, job: str, inputs: Sequence[Dataset] = (), outputs: Sequence[Dataset] = ()
    ) -> None:
        self._namespace = config.namespace
        self._job = job
        self._inputs = [InputDataset(each.namespace, each.name, facets=_schema(each)) for each in inputs]
        self._outputs = [OutputDataset(each.namespace, each.name, facets=_schema(each)) for each in outputs]
        self._client = OpenLineageClient(transport=HttpTransport(HttpConfig(url=config.url, endpoint=config.path)))
        self._run_id = str(generate_new_uuid())
        self._failure: str | None = None

    # The failure precedes the status FAILED, whose event quotes it.
    def on_failure(self, event: JobFailureEvent) -> None:
        self._failure = event.message

    def on_status_change(self, event: JobStatusChangeEvent) -> None:
        state = _STATES.get(event.new_status)
        if state is None:
            return
        at = datetime.fromtimestamp(event.at_ms / 1000, UTC).isoformat(timespec="milliseconds")
        self._client.emit(
            RunEvent(
                eventType=state,
                eventTime=at,
                run=Run(self._run_id, facets=self._run_facets(state)),
                job=Job(self._namespace, self._job, facets=_job_facets()),
                inputs=self._inputs,
                outputs=self._outputs,
                producer=_PRODUCER,
            )
        )

    def _run_facets(self, state: RunState) -> dict[str, RunFacet]:
        facets: dict[str, RunFacet] = {
            "processing_engine": processing_engine_run.ProcessingEngineRunFacet(
                version=version("tidegate"), name="tidegate", openlineageAdapterVersion=version("tidegate")
            )
        }
        if state is RunState.FAIL:
            message = self._failure or "The job failed."
            facets["errorMessage"] = error_message_run.ErrorMessageRunFacet(
                message=message, programmingLanguage="python"
            )
        return facets


def _job_facets() -> dict[str, JobFacet]:
    return {"jobType": job_type_job.JobTypeJobFacet(processingType="STREAMING", integration="TIDEGATE", jobType="JOB")}


def _schema(dataset: Dataset) -> dict[str, DatasetFacet]:
    fields = [schema_dataset.SchemaDatasetFacetFields(name=name, type=type) for name, type in dataset.columns]
    return {"schema": schema_dataset.SchemaDatasetFacet(fields=fields)}
