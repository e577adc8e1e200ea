"""Vocabulary shared by all packages: ids, errors, durations, fault points. Imports no other tidegate package."""
