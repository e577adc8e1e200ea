"""Test kit for users: a harness without a JVM, fault points, and fakes that pass the contracts of the real implementations."""

from tidegate.testing.declared_frame import frame
from tidegate.testing.harness import Harness, harness
from tidegate.testing.operator_snapshot import Snapshot

__all__ = ["Harness", "Snapshot", "frame", "harness"]
