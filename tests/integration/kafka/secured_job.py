"""A job over a secured port that tells all it can: `python -m tests.integration.kafka.secured_job FOLDER`.

It leaves in the folder what it stored, what it logged, what it told its listeners, Spark's history and every REST answer.
"""

from __future__ import annotations

import json
import logging
import sys
from pathlib import Path

import httpx

import tidegate as tg
from tests import sparks
from tests.integration.kafka.test_job import Count
from tests.waiting import eventually, while_running
from tidegate.control.rest.server import RestServer


class Notes(tg.JobListener):
    def __init__(self, file: Path) -> None:
        self._file = file

    def _note(self, event: object) -> None:
        with self._file.open("a") as file:
            file.write(f"{event!r}\n{event}\n")

    on_epoch = on_checkpoint = on_status_change = on_failure = on_rescale = on_initialization = _note


def main(folder: Path) -> None:
    logging.basicConfig(level=logging.INFO)
    # Not py4j, which logs at this level whatever passes between Python and the JVM.
    logging.getLogger("tidegate").setLevel(logging.DEBUG)
    servers, config, source, target, registry, login = json.loads((folder / "access.json").read_text())
    avro = tg.AvroFormat(registry, config={"basic.auth.user.info": login})
    for name in ("spark-events", "rest", "events"):
        (folder / name).mkdir()
    spark = sparks.session(
        **{
            "spark.log.level": "INFO",
            "spark.eventLog.enabled": "true",
            "spark.eventLog.compress": "false",
            "spark.eventLog.dir": (folder / "spark-events").as_uri(),
        }
    )
    job = tg.Job("words", parallelism=1)
    frame = tg.kafka_source(spark, servers, source, config=config, value_format=avro)
    frame.explain(True)
    words = job.source("words", frame.select("value.word"))
    counts = words.key_by("word").process("count", Count(), schema="key string, value string")
    counts.sink("out", tg.KafkaSink(servers, target, config=config, value_format=avro))
    print(job.explain(), repr(job.graph()))
    chosen = tg.Checkpointing(dir=str(folder / "checkpoints"), interval="1 s")
    run = job.start(spark, checkpoint=chosen, listeners=[Notes(folder / "events" / "all")])
    eventually(while_running(run, lambda: sum(report.rows_in for report in run.reports) >= 3))
    run.savepoint(str(folder / "savepoint"))
    with tg.serve(run, port=0) as server, asking(server) as client:
        for number, path in enumerate(paths(client)):
            (folder / "rest" / str(number)).write_text(f"{path}\n{client.get(path).text}")
    print(run.report())
    run.stop()
    sparks.end()


def asking(server: RestServer) -> httpx.Client:
    return httpx.Client(base_url=server.url, headers={"Authorization": f"Bearer {server.token}"}, timeout=60)


def paths(client: httpx.Client) -> list[str]:
    """Everything that can be asked of the job without a further name."""
    [job] = client.get("/jobs/overview").json()["jobs"]
    known = client.get("/openapi.json").json()["paths"]
    asked = [path.replace("{jobid}", job["jid"]) for path, ways in known.items() if "get" in ways]
    found = [path for path in asked if "{" not in path]
    assert f"/jobs/{job['jid']}/config" in found
    return found


if __name__ == "__main__":
    main(Path(sys.argv[1]))
