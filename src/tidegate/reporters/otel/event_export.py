"""Events as log records over OTLP."""

from __future__ import annotations

from opentelemetry._logs import LogRecord, SeverityNumber
from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import BatchLogRecordProcessor
from opentelemetry.sdk.resources import Resource

from tidegate.config.reporting import ExporterConfig
from tidegate.core.redaction import redacted
from tidegate.events.event import JobEvent
from tidegate.reporters.otel.connection import connection

_SEVERITIES = {10: SeverityNumber.DEBUG, 20: SeverityNumber.INFO, 30: SeverityNumber.WARN, 40: SeverityNumber.ERROR}


class EventExport:
    """Collects records and sends them in batches, in a thread of the library."""

    def __init__(self, config: ExporterConfig, resource: Resource) -> None:
        # Shut down by `close`, with the job, and not when the program exits.
        self._provider = LoggerProvider(resource=resource, shutdown_on_exit=False)
        self._provider.add_log_record_processor(BatchLogRecordProcessor(OTLPLogExporter(**connection(config))))
        self._logger = self._provider.get_logger("tidegate")

    def send(self, event: JobEvent) -> None:
        severity = _SEVERITIES.get(event.severity, SeverityNumber.INFO)
        self._logger.emit(
            LogRecord(
                timestamp=event.at_ms * 1_000_000,
                observed_timestamp=event.at_ms * 1_000_000,
                severity_number=severity,
                severity_text=severity.name,
                body=redacted(str(event)),
                event_name=event.NAME,
                attributes={"job": event.job, **event.attributes()},
            )
        )

    def close(self) -> None:
        self._provider.shutdown()
