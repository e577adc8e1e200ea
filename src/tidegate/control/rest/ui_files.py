"""The files of the web UI, from the package. They hold no data, so a browser may load them without a token."""

from __future__ import annotations

from functools import cache
from importlib.resources import files

from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route

PREFIX = "/ui/"
# Not from `mimetypes`, which reads the tables of the machine.
_TYPES = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
    "png": "image/png",
    "md": "text/plain; charset=utf-8",
}
HEADERS = {
    # Should text of a job ever become markup, it can neither run nor load or send anything.
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; font-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    # Checked each time: after an upgrade, old scripts must not meet a new server.
    "Cache-Control": "no-cache",
}


def ui_routes() -> list[Route]:
    return [Route("/", _home), Route("/ui", _home), Route("/ui/{path:path}", _file)]


async def _home(request: Request) -> Response:
    return RedirectResponse(PREFIX, headers=HEADERS)


async def _file(request: Request) -> Response:
    name = request.path_params["path"] or "index.html"
    content = _files().get(name)
    if content is None:
        return PlainTextResponse("There is no such page.", 404, HEADERS)
    return Response(content, headers=HEADERS, media_type=_TYPES[name.rpartition(".")[2]])


@cache
def _files() -> dict[str, bytes]:
    """Return all files by their path below the folder. A name that is not among them is not looked up anywhere."""
    contents: dict[str, bytes] = {}

    def walk(folder: object, prefix: str) -> None:
        for entry in folder.iterdir():  # type: ignore[attr-defined]
            if entry.is_dir():
                walk(entry, f"{prefix}{entry.name}/")
            elif entry.name.rpartition(".")[2] in _TYPES:
                contents[prefix + entry.name] = entry.read_bytes()

    walk(files("tidegate.control") / "ui", "")
    return contents
