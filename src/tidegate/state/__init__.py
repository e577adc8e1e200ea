"""Keyed and operator state in a Python worker: one port, its backends, key bytes, key groups, serializers."""
