"""A client of the REST server of a running job. Uses the standard library only: a command line must start quickly."""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
from collections.abc import Container
from http.client import HTTPException
from typing import Any
from urllib.parse import urlsplit

from tidegate.control.rest.access_token import VARIABLE, find_token
from tidegate.core.errors import ControlError

DEFAULT_ADDRESS = "127.0.0.1:8081"


class Unreachable(ControlError):
    code = "UNREACHABLE"
    retryable = True


class Refused(ControlError):
    """The job's server answered with an error."""

    code = "REFUSED"


class OperationFailed(ControlError):
    """A triggered operation failed."""

    code = "OPERATION_FAILED"


class Client:
    """`address` as `host:port` or URL. The token: as given, else TIDEGATE_TOKEN, else the file of a server that this user
    runs on this machine at this very address. It is never sent on to where an answer redirects, nor to a proxy for loopback.
    """

    def __init__(self, address: str = DEFAULT_ADDRESS, token: str | None = None) -> None:
        self._root = (address if "://" in address else f"http://{address}").rstrip("/")
        parts = urlsplit(self._root)
        try:
            host = parts.hostname or ""
            port = parts.port or (443 if parts.scheme == "https" else 80)
        except ValueError:
            raise Unreachable(f"{address!r} is not an address such as {DEFAULT_ADDRESS}.") from None
        if parts.scheme not in ("http", "https") or not host or parts.username is not None:
            raise Unreachable(
                f"An address is host:port, http://host:port or https://host:port. A token goes into {VARIABLE}."
            )
        self._token = token
        self._place = (host, port)

        # A proxy from the environment cannot reach the loopback of this machine, and would see the token.
        local = host == "localhost" or host == "::1" or host.startswith("127.")

        # An empty ProxyHandler replaces the one that urllib adds for the variables of the environment.
        handlers = [_NoRedirect(), *([urllib.request.ProxyHandler({})] if local else [])]
        self._opener = urllib.request.build_opener(*handlers)

    def ask(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        request = urllib.request.Request(f"{self._root}{path}", method=method)
        request.add_header("Content-Type", "application/json")

        # Looked up each time: the job may have been started, or started again, since the last request.
        token = self._token or find_token(*self._place)
        if token:
            request.add_header("Authorization", f"Bearer {token}")
        if body is not None:
            request.data = json.dumps(body).encode()
        try:
            # Flink's `client.timeout` is a minute, too.
            with self._opener.open(request, timeout=60) as answer:
                return json.loads(answer.read())
        except urllib.error.HTTPError as error:
            raise self._refusal(error) from None
        except (OSError, HTTPException) as error:
            reason = getattr(error, "reason", error)
            shown = getattr(reason, "strerror", None) or reason
            raise Unreachable(
                f"No job answers at {self._root} ({shown}). Is it still starting, or is its REST server elsewhere? "
                "Give another address with -m. If its driver died, `tidegate ui DIR` shows what its checkpoint directory has."
            ) from None
        except ValueError:
            raise self._stranger("its answer is not JSON") from None

    def _refusal(self, error: urllib.error.HTTPError) -> ControlError:
        try:
            return Refused("\n".join(json.loads(error.read())["errors"]))
        except (ValueError, KeyError, TypeError):
            return self._stranger(f"HTTP {error.code}")

    def _stranger(self, what: str) -> Unreachable:
        return Unreachable(
            f"What answers at {self._root} is not tidegate ({what}). Give the address of a job's REST server with -m."
        )

    def jobs(self) -> list[dict[str, Any]]:
        jobs: list[dict[str, Any]] = self.ask("GET", "/jobs/overview")["jobs"]
        return jobs

    def await_operation(self, path: str, failure: str, poll_s: float = 0.2) -> dict[str, Any]:
        """Wait until a triggered operation has ended. Return its `operation`."""
        while True:
            state = self.ask("GET", path)
            if state["status"]["id"] == "COMPLETED":
                # COMPLETED says only that it has ended: a failure is in `operation`.
                operation: dict[str, Any] = state["operation"] or {}
                if operation.get(failure):
                    raise OperationFailed(str(operation[failure].get("stack-trace") or operation[failure]))
                return operation
            time.sleep(poll_s)

    def await_rescale(self, path: str, before: Container[str], poll_s: float = 0.2) -> dict[str, Any]:
        """Wait until a rescale that is not in `before` has ended. Return its details."""
        while True:
            uuids = [each["rescaleUuid"] for each in self.ask("GET", f"{path}/history")]
            newer = [uuid for uuid in uuids if uuid not in before]
            if newer:
                details: dict[str, Any] = self.ask("GET", f"{path}/details/{newer[-1]}")
                if details["terminalState"] is not None:
                    states: list[dict[str, Any]] = details["schedulerStates"]
                    if states and states[-1]["stringifiedException"]:
                        raise OperationFailed(f"The job is not rescaled: {states[-1]['stringifiedException']}")
                    return details
            time.sleep(poll_s)


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """An answer that redirects is an error: the request would carry the token to another server."""

    def redirect_request(self, *args: Any) -> None:
        return None
