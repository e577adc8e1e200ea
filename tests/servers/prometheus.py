"""A real Prometheus, as Debian packages it, on loopback only; and promtool, which checks and tests rules."""

from __future__ import annotations

import json
import shutil
import subprocess
import time
import urllib.request
from pathlib import Path
from typing import Any
from urllib.parse import quote

from tests.servers.process import ServerProcess, free_ports


def promtool(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([_binary("promtool"), *map(str, arguments)], capture_output=True, text=True, check=False)


class Prometheus:
    """Reads `prometheus.yml` in a directory. Ready when the constructor returns."""

    def __init__(self, directory: Path) -> None:
        port = free_ports(1)[0]
        self.url = f"http://127.0.0.1:{port}"
        self._process = ServerProcess(
            [
                _binary("prometheus"),
                f"--config.file={directory / 'prometheus.yml'}",
                f"--storage.tsdb.path={directory / 'data'}",
                f"--web.listen-address=127.0.0.1:{port}",
            ],
            directory / "prometheus.log",
        )
        self._process.wait_until(self._is_ready)

    def value(self, query: str) -> float | None:
        """The first sample that a query finds."""
        found = self._get(f"/api/v1/query?query={quote(query)}")["result"]
        return float(found[0]["value"][1]) if found else None

    def firing(self) -> dict[str, dict[str, str]]:
        """Labels of the alerts that fire, by name."""
        alerts = self._get("/api/v1/alerts")["alerts"]
        return {each["labels"]["alertname"]: each["labels"] for each in alerts if each["state"] == "firing"}

    def await_alert(self, name: str, timeout_s: float) -> float:
        """Return how many seconds it took until the alert fired."""
        started = time.monotonic()
        while name not in self.firing():
            waited_s = time.monotonic() - started
            assert waited_s < timeout_s, f"{name} did not fire within {timeout_s} s; these did: {sorted(self.firing())}"
            time.sleep(0.1)
        return time.monotonic() - started

    def stop(self) -> None:
        self._process.stop()

    def _is_ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/-/ready", timeout=5):
                return True
        except OSError:
            return False

    def _get(self, path: str) -> Any:
        with urllib.request.urlopen(self.url + path, timeout=10) as answer:
            return json.load(answer)["data"]


def _binary(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        raise RuntimeError(f"{name} is missing. On Debian: apt-get install prometheus.")
    return found
