from tests.servers.fixtures import kafka, schema_registry

__all__ = ["kafka", "schema_registry"]
