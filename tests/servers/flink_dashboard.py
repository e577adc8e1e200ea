"""Flink's own dashboard, from its Maven artifact, in front of tidegate's REST server.

The dashboard knows nothing of tokens, so this server adds the one that tidegate asks for.
"""

from __future__ import annotations

import asyncio
import threading
import time
import zipfile
from pathlib import Path

import uvicorn
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Receive, Scope, Send

from tests.servers.maven import brought
from tests.servers.process import free_ports

VERSION = "2.2.0"
_IVY = f"""<ivy-module version="2.0">
  <info organisation="tidegate" module="flink-dashboard-for-tests"/>
  <dependencies>
    <dependency org="org.apache.flink" name="flink-runtime-web" rev="{VERSION}" conf="default" transitive="false"/>
  </dependencies>
</ivy-module>
"""
_TOKEN = "a-token-of-the-test"


def jar() -> Path:
    """The artifact, downloaded at first use."""
    [found] = brought(f"flink-runtime-web-{VERSION}", _IVY).iterdir()
    return found


def pages(folder: Path) -> Path:
    """Unpack the dashboard's files below a folder."""
    with zipfile.ZipFile(jar()) as archive:
        archive.extractall(folder, [name for name in archive.namelist() if name.startswith("web/")])
    return folder / "web"


class FlinkDashboard:
    """Serves the files of the dashboard, and everything else from an application that asks for `token`."""

    token = _TOKEN

    def __init__(self, application: ASGIApp, files: Path) -> None:
        self._application, self._files = application, files
        self._static = StaticFiles(directory=files, html=True)
        [port] = free_ports(1)
        self.url = f"http://127.0.0.1:{port}"
        config = uvicorn.Config(
            self._answer, host="127.0.0.1", port=port, interface="asgi3", log_level="warning", lifespan="off"
        )
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=lambda: asyncio.run(self._server.serve()), daemon=True)
        self._thread.start()
        while not self._server.started:
            assert self._thread.is_alive()
            time.sleep(0.01)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope["path"].lstrip("/") or "index.html"
        if (self._files / path).is_file():
            await self._static(scope, receive, send)
            return
        headers = [*scope["headers"], (b"authorization", f"Bearer {self.token}".encode())]
        await self._application({**scope, "headers": headers}, receive, send)

    def __enter__(self) -> FlinkDashboard:
        return self

    def __exit__(self, *error: object) -> None:
        self._server.should_exit = True
        self._thread.join(10)
