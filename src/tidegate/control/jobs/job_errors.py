"""What a request for a job cannot get."""

from __future__ import annotations

from tidegate.core.errors import ControlError


class NotFound(ControlError):
    """There is no such job, checkpoint or trigger."""

    code = "NOT_FOUND"


class NotPossible(ControlError):
    """The job cannot do that now."""

    code = "NOT_POSSIBLE"
