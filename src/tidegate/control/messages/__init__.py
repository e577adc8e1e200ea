"""The bodies of REST requests and responses, under Flink's names: one type each, from which OpenAPI's schemas are generated."""
