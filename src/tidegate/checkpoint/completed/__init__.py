"""Completed checkpoints: how one becomes complete, which are retained, and what may be deleted."""
