"""What a lineage service hears of a real job."""

from __future__ import annotations

import json
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

import tidegate as tg
from tests.integration.inputs import stream
from tidegate.core.errors import UserCodeError


@contextmanager
def lineage_service():
    """What it was told, and its address."""
    heard: list[dict] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            assert self.path == "/api/v1/lineage"
            heard.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(201)
            self.end_headers()

        def log_message(self, format, *args): ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield heard, f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()


class Checked(tg.MapFunction):
    def map(self, row):
        if row.v < 0:
            raise ValueError("a bad row")
        return row.v, row.k


def copying(spark, folder, rows):
    job = tg.Job("copies", parallelism=2)
    read = job.source("in", stream(spark, folder / "in", "v int, k string", [rows]))
    read.map(Checked(), schema="v int, k string").sink("out", tg.FileSink(str(folder / "out")))
    return job


def test_a_run_names_what_it_reads_and_writes(spark, tmp_path):
    with lineage_service() as (heard, address):
        options = {"openlineage.transport.url": address, "openlineage.namespace": "shop"}
        copying(spark, tmp_path, [(1, "a")]).run(spark, trigger="available-now", options=options)
    assert [event["eventType"] for event in heard] == ["START", "RUNNING", "COMPLETE"]
    assert len({event["run"]["runId"] for event in heard}) == 1
    assert {(event["job"]["namespace"], event["job"]["name"]) for event in heard} == {("shop", "copies")}
    ((read,), (written,)) = heard[-1]["inputs"], heard[-1]["outputs"]
    assert (read["namespace"], read["name"]) == ("file", str(tmp_path / "in"))
    assert (written["namespace"], written["name"]) == ("file", str(tmp_path / "out"))
    assert [field["name"] for field in written["facets"]["schema"]["fields"]] == ["v", "k"]


def test_a_run_that_fails_says_why(spark, tmp_path):
    with lineage_service() as (heard, address):
        options = {"openlineage.transport.url": address}
        with pytest.raises(UserCodeError):
            copying(spark, tmp_path, [(-1, "a")]).run(spark, trigger="available-now", options=options)
    assert [event["eventType"] for event in heard] == ["START", "RUNNING", "FAIL"]
    assert "a bad row" in heard[-1]["run"]["facets"]["errorMessage"]["message"]
