"""PostgreSQL as a sink: rows and the marker of their commit in one transaction. The only package that imports psycopg."""

from tidegate.connectors.postgres.sink import PostgresSink

__all__ = ["PostgresSink"]
