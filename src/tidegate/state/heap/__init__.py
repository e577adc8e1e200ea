"""State in the memory of the worker process, with its versions as change files and full files on local disk."""

from tidegate.state.heap.backend import HashMapBackend

__all__ = ["HashMapBackend"]
