"""How the exporters of all signals connect."""

from __future__ import annotations

from typing import TypedDict

from opentelemetry.exporter.otlp.proto.http import Compression

from tidegate.config.reporting import ExporterConfig


class Connection(TypedDict):
    """The arguments that all exporters take."""

    endpoint: str
    timeout: float
    compression: Compression


def connection(config: ExporterConfig) -> Connection:
    """Headers, such as those with a token, come from the environment: OTEL_EXPORTER_OTLP_HEADERS."""
    return Connection(
        endpoint=config.endpoint,
        timeout=config.timeout_ms / 1000,
        compression=Compression.Gzip if config.gzip else Compression.NoCompression,
    )
