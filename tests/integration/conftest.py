"""Servers that integration tests may ask for."""

from tests.servers.fixtures import s3_proxy, s3_server

__all__ = ["s3_proxy", "s3_server"]
