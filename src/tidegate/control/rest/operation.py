"""One verb of a path: what is called, what it answers, and how the OpenAPI document describes it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import msgspec
from starlette.requests import Request

from tidegate.control.jobs.job_errors import NotPossible
from tidegate.control.jobs.reported_job import ReportedJob
from tidegate.control.jobs.service import JobService
from tidegate.control.messages import requests
from tidegate.control.messages.operation import TriggerResponse
from tidegate.core.errors import TidegateError

Body = dict[str, Any]
Parameter = dict[str, Any]
"""A parameter of a query, as OpenAPI describes it."""
B = TypeVar("B", bound=msgspec.Struct)


class BadRequest(TidegateError):
    code = "BAD_REQUEST"


class ServedJobs(Protocol):
    """The jobs that a server answers for."""

    def all(self) -> list[ReportedJob]: ...

    def find(self, job: str) -> ReportedJob:
        """Return the job with this id or name. Raises `NotFound`."""
        ...


@dataclass(frozen=True, slots=True)
class Call:
    """A request, and the jobs that it may be about."""

    jobs: ServedJobs
    request: Request
    body: Body
    pages_may_act: bool
    """Whether a page in a browser may change something."""

    @property
    def job(self) -> ReportedJob:
        return self.jobs.find(self.in_path("jobid"))

    @property
    def service(self) -> JobService:
        """The job of the path, which this process must run. Raises `NotPossible`."""
        return _running(self.job)

    @property
    def any_service(self) -> JobService:
        """The job that this process runs, whatever the path. Raises `NotPossible`."""
        return _running(*self.jobs.all())

    def in_path(self, name: str) -> str:
        return str(self.request.path_params[name])

    def number_in_path(self, name: str) -> int:
        text = self.in_path(name)
        # 18 digits always fit into 64 bits. Checked as text, since converting a very long one takes long.
        if not (text.isascii() and text.isdigit()) or len(text) > 18:
            raise BadRequest(f"{text!r} is not a number.")
        return int(text)

    def in_query(self, name: str) -> str | None:
        return self.request.query_params.get(name)

    def decoded(self, kind: type[B]) -> B:
        """Return the body as a message. Raises `BadRequest`."""
        try:
            return requests.decode(self.body, kind)
        except ValueError as error:
            raise BadRequest(str(error)) from error


def _running(*jobs: ReportedJob) -> JobService:
    """Return the job that this process runs, which can be asked to act. Raises `NotPossible`."""
    for job in jobs:
        if isinstance(job, JobService):
            return job
    # `tidegate ui DIR` serves the same paths, from storage.
    raise NotPossible("No driver of the job answers here: it is read from storage. Ask the REST server of its driver.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """A route and its description. Names in braces in the path are parameters, too."""

    method: str
    path: str
    act: Callable[[Call], object]
    summary: str
    answer: Any
    """The type of the answer. None: text, events or a file, which the OpenAPI document leaves out."""
    query: tuple[Parameter, ...] = ()
    body: Any = None
    status: int = 200
    """Of the answer if it succeeds."""


def get(
    path: str, act: Callable[[Call], object], summary: str = "", answer: Any = None, *query: Parameter
) -> Operation:
    """Return the operation of a GET, which changes nothing."""
    return Operation(method="GET", path=path, act=act, summary=summary, answer=answer, query=query)


def trigger(path: str, act: Callable[[Call], object], summary: str, body: type[msgspec.Struct]) -> Operation:
    """Return the operation of a POST that takes time. It is answered at once, with the id under which clients ask for the
    result."""
    return Operation(method="POST", path=path, act=act, summary=summary, answer=TriggerResponse, body=body, status=202)
