"""A page with the figures of the shop, updated every two seconds. It asks nobody but this server."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from examples.showcase.totals import TotalsReader

PAGE = Path(__file__).with_name("dashboard.html")


class Dashboard:
    """Serves the page on a free port of the loopback interface."""

    def __init__(self, reader: TotalsReader) -> None:
        reading = threading.Lock()

        class Answers(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                if self.path == "/totals":
                    with reading:
                        self._answer("application/json", json.dumps(reader.read().as_json()).encode())
                elif self.path == "/":
                    self._answer("text/html; charset=utf-8", PAGE.read_bytes())
                else:
                    self.send_error(404)

            def _answer(self, kind: str, body: bytes) -> None:
                self.send_response(200)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                """The terminal shows totals."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Answers)
        self.url = f"http://127.0.0.1:{self._server.server_port}/"
        threading.Thread(target=self._server.serve_forever, name="dashboard", daemon=True).start()

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()
