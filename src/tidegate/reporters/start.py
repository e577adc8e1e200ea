"""Creates the reporters that a job's options ask for."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec

from tidegate.config.reporting import ReportingConfig
from tidegate.core.errors import ConfigurationError
from tidegate.reporters.dataset import Dataset
from tidegate.reporters.reporter import Reporter


class ReporterNotInstalled(ConfigurationError):
    code = "REPORTER_NOT_INSTALLED"


def create_reporters(
    config: ReportingConfig, job: str, inputs: Sequence[Dataset] = (), outputs: Sequence[Dataset] = ()
) -> list[Reporter]:
    """Return the reporters that the options ask for. Raises if the library of one is not installed."""
    reporters: list[Reporter] = []
    if config.metrics or config.traces or config.events:
        _check_installed("opentelemetry.exporter.otlp.proto.http", "otel")
        from tidegate.reporters.otel.reporter import OtelReporter  # noqa: PLC0415 an extra

        reporters.append(OtelReporter(config, job))
    if config.lineage:
        _check_installed("openlineage.client", "openlineage")
        from tidegate.reporters.lineage.reporter import LineageReporter  # noqa: PLC0415 an extra

        reporters.append(LineageReporter(config.lineage, job, inputs, outputs))
    return reporters


def _check_installed(module: str, extra: str) -> None:
    try:
        installed = find_spec(module) is not None
    # `find_spec` imports the parents of a dotted name, and these are missing, too.
    except ModuleNotFoundError:
        installed = False
    if not installed:
        raise ReporterNotInstalled(
            f"The options ask for a reporter whose library is not installed. Install it with: pip install 'tidegate[{extra}]'"
        )
