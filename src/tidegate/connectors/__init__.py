"""Sources and sinks. Each client library is imported in exactly one package here."""
