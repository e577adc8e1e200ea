"""The changelog: every attempt also writes what it changed to a file of its own, so that a checkpoint need upload only that.

Files of a backend are rewritten by compaction, which has nothing to do with what an epoch changed. A change file is as large
as the changes. Any backend can be wrapped: locally a version is the backend's, and its change file lies beside it.
"""

from tidegate.state.changelog.backend import ChangelogBackend, without_changelog
from tidegate.state.changelog.chain import CHANGES_END, changes_between, changes_path, note_same, truncate
from tidegate.state.changelog.change_file import apply

__all__ = [
    "CHANGES_END",
    "ChangelogBackend",
    "apply",
    "changes_between",
    "changes_path",
    "note_same",
    "truncate",
    "without_changelog",
]
