"""A schema registry in this process, as much of it as reading and writing records asks for. It can fail on request."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any


class RegistryServer:
    def __init__(self) -> None:
        self.schemas: list[dict[str, Any]] = []
        self.answers: list[int] = []
        """Statuses of the next requests, before the registry works again."""
        self.asked = 0
        self.url = ""

    def add(self, text: str, kind: str = "AVRO") -> int:
        """Register a schema and return its id."""
        found = {"schema": text, "schemaType": kind}
        if found not in self.schemas:
            self.schemas.append(found)
        return self.schemas.index(found) + 1

    def answer(self, method: str, path: str, body: bytes) -> tuple[int, dict[str, Any]]:
        self.asked += 1
        if self.answers:
            status = self.answers.pop(0)
            return status, {"error_code": status, "message": "on request"}
        if method == "GET" and (by_id := re.match(r"/schemas/ids/(\d+)", path)):
            number = int(by_id[1])
            if number <= len(self.schemas):
                return 200, self.schemas[number - 1]
            return 404, {"error_code": 40403, "message": "Schema not found"}
        given = json.loads(body)
        number = self.add(given["schema"], given.get("schemaType", "AVRO"))
        return 200, {"subject": "s", "version": number, "id": number, **self.schemas[number - 1]}


@contextmanager
def registry_server() -> Iterator[RegistryServer]:
    registry = RegistryServer()

    class Handler(BaseHTTPRequestHandler):
        def _do(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            status, said = registry.answer(self.command, self.path, body)
            data = json.dumps(said).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_POST = _do

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    registry.url = f"http://127.0.0.1:{server.server_port}"
    thread = Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield registry
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
