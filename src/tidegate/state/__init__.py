"""Keyed and operator state inside a Python worker: one port, its backends, key bytes, key groups, serialisers."""
