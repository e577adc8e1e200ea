"""Snapshots that users own: read without user code, written as tables, copied, changed and compared."""
