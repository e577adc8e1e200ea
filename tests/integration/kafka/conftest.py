from tests.servers.fixtures import kafka

__all__ = ["kafka"]
