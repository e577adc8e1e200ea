"""PostgreSQL as a sink: rows and the marker of their commit in one transaction. The home of psycopg."""

from tidegate.connectors.postgres.sink import PostgresSink

__all__ = ["PostgresSink"]
