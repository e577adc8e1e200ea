"""Sends metrics, spans and events over OTLP. The only package that imports `opentelemetry`."""
