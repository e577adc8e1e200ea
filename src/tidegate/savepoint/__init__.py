"""Snapshots as the user owns them: read without the user's code, written as tables, copied, changed and compared."""
