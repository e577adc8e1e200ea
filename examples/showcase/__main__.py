"""`python -m examples.showcase`: start the whole shop on this machine, show what it does, and verify it at the end.

Ctrl-C stops it. Until then, kill the job as often as you like: the process id is printed with each start.
"""

from __future__ import annotations

import argparse
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path

from examples.showcase.dashboard import Dashboard
from examples.showcase.generator import Generator
from examples.showcase.servers import Servers
from examples.showcase.supervisor import Supervisor
from examples.showcase.totals import TotalsReader
from examples.showcase.verifier import all_exact, verify


def say(text: str) -> None:
    print(f"[{time.strftime('%H:%M:%S')}] {text}", flush=True)


def show(reader: TotalsReader, supervisor: Supervisor, seconds: float | None) -> None:
    """A line of totals every few seconds, until the job has run for so many, or Ctrl-C is pressed."""
    latest, starts = float("inf"), 1
    try:
        while time.monotonic() < latest:
            time.sleep(2)
            totals = reader.read()
            say(str(totals))
            if seconds is not None and totals.running and latest == float("inf"):
                latest = time.monotonic() + seconds
            if supervisor.starts > starts:
                starts = supervisor.starts
                say(f"the job has died and is started again, as process {supervisor.process.pid}")
    except KeyboardInterrupt:
        say("Ctrl-C")


def run(folder: Path, seconds: float | None, rate: float, seed: int) -> int:
    say("starting Kafka, PostgreSQL and an Iceberg catalog")
    with Servers(folder) as servers:
        generator = Generator(servers.kafka.bootstrap_servers, folder, seed=seed, rate=rate)
        supervisor = Supervisor(folder, servers.addresses())
        reader = TotalsReader(servers, generator, supervisor)
        dashboard = Dashboard(reader)
        try:
            say(f"shop       {dashboard.url}")
            say(f"job        {supervisor.ui_url} (in about 20 seconds), process {supervisor.process.pid}")
            say(f"Kafka      {servers.kafka.bootstrap_servers}")
            say(f"PostgreSQL psql '{servers.postgres.conninfo}'")
            say(f"logs       {folder}")
            say("Ctrl-C ends it" if seconds is None else f"it ends when the job has run for {seconds:g} seconds")
            generator.start()
            show(reader, supervisor, seconds)
            say("no more orders; the job finishes what it has and closes all sessions")
            generator.stop()
            supervisor.finish()
            say(str(reader.read()))
            verdicts = verify(generator.journal, servers)
        finally:
            signal.signal(signal.SIGINT, signal.SIG_IGN)  # a second Ctrl-C would leave servers behind
            dashboard.stop()
            supervisor.stop()
            reader.close()
    for verdict in verdicts:
        say(str(verdict))
    return 0 if all_exact(verdicts) else 1


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m examples.showcase", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=float, help="stop when the job has run for so long (default: at Ctrl-C)")
    parser.add_argument("--rate", type=float, default=20, help="orders per second (default: 20)")
    parser.add_argument("--seed", type=int, default=1, help="of the traffic")
    parser.add_argument(
        "--folder", type=Path, help="keep everything there (default: a temporary folder, removed at the end)"
    )
    options = parser.parse_args()
    folder = options.folder or Path(tempfile.mkdtemp(prefix="shop-"))
    try:
        return run(folder, options.seconds, options.rate, options.seed)
    finally:
        if options.folder is None:
            shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
