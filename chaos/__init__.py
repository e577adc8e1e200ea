"""Trying to break tidegate on purpose: `python -m chaos <what>`."""
