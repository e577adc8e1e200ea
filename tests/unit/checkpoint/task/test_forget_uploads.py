"""Records of uploads go when no checkpoint needs them any more, whoever removes them and however late."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidegate.checkpoint.task.version_upload import forget_uploads
from tidegate.core.ids import Term


@pytest.fixture
def records(tmp_path: Path) -> Path:
    for name in ("1-3", "1-8", "2-4", "2-5", "2-6", "2-7", "2-8", "3-8", "unknown"):
        (tmp_path / "uploads" / name).mkdir(parents=True)
        (tmp_path / "uploads" / name / "part").touch()
    return tmp_path


def left(directory: Path) -> set[str]:
    return {path.name for path in (directory / "uploads").iterdir()}


def test_an_attempt_that_wakes_late_removes_no_records_of_newer_checkpoints(records: Path) -> None:
    """It was told of checkpoints 5 and 6; meanwhile 7 has completed and 8 is under way."""
    forget_uploads(records, Term(2), [(Term(2), 5), (Term(2), 6)])
    assert left(records) == {"2-5", "2-6", "2-7", "2-8", "3-8", "unknown"}


@pytest.mark.feature("F28")
def test_a_base_of_an_earlier_term_is_kept(records: Path) -> None:
    forget_uploads(records, Term(2), [(Term(1), 3), (Term(2), 4)])
    assert left(records) == {"1-3", "2-4", "2-5", "2-6", "2-7", "2-8", "3-8", "unknown"}


@pytest.mark.feature("F31")
def test_records_of_checkpoints_that_failed_go_when_a_later_one_is_under_way(records: Path) -> None:
    """Ids grow, and all that are pending are told: 5 and 6 failed."""
    forget_uploads(records, Term(2), [(Term(2), 4), (Term(2), 7)])
    assert left(records) == {"2-4", "2-7", "2-8", "3-8", "unknown"}


def test_without_anything_to_keep_only_records_of_earlier_terms_go(records: Path) -> None:
    forget_uploads(records, Term(2), [])
    assert left(records) == {"2-4", "2-5", "2-6", "2-7", "2-8", "3-8", "unknown"}


def test_a_task_that_never_uploaded_has_nothing_to_forget(tmp_path: Path) -> None:
    forget_uploads(tmp_path, Term(1), [])


def test_the_id_of_a_base_of_another_job_says_nothing_about_the_ids_of_this_one(records: Path) -> None:
    """The job was started from checkpoint 57 of another, and stores its own checkpoint 5 before the driver tells of it."""
    forget_uploads(records, Term(2), [(Term(1), 57)])
    assert left(records) == {"2-4", "2-5", "2-6", "2-7", "2-8", "3-8", "unknown"}
