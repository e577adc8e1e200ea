"""For users' tests: a harness without a JVM, fault points, fakes that pass the contracts of the real ones."""

from tidegate.testing.harness import Harness, Snapshot, frame, harness

__all__ = ["Harness", "Snapshot", "frame", "harness"]
