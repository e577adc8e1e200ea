"""Snapshots the user owns."""
