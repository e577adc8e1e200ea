"""State in the memory of the worker process, with versions stored on local disk as change files and full files."""

from tidegate.state.heap.backend import HashMapBackend

__all__ = ["HashMapBackend"]
