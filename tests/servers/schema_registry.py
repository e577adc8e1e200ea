"""A real schema registry: Apicurio Registry with its API of Confluent's registry, in memory, on loopback only.

Its archive comes from the public Maven repository, see `maven`. Later releases need a newer Java than Spark does.
"""

from __future__ import annotations

import urllib.error
import urllib.request
from pathlib import Path

from tests.servers.maven import brought, java_program
from tests.servers.process import ServerProcess, free_ports

VERSION = "3.0.9"
_IVY = f"""<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven">
  <info organisation="tidegate" module="schema-registry-for-tests"/>
  <dependencies>
    <dependency org="io.apicurio" name="apicurio-registry-app" rev="{VERSION}" conf="default" transitive="false">
      <artifact name="apicurio-registry-app" type="tar.gz" ext="tar.gz" m:classifier="all"/>
    </dependency>
  </dependencies>
</ivy-module>
"""


class SchemaRegistry:
    """One registry. Ready when the constructor returns (6 s); `kill` and `start` play an outage, after which it is empty."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        [self._port] = free_ports(1)
        self.url = f"http://127.0.0.1:{self._port}/apis/ccompat/v7"
        self.start()

    def start(self) -> None:
        command = [
            java_program(), "-Xmx384m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Dquarkus.http.host=127.0.0.1",
            f"-Dquarkus.http.port={self._port}", "-jar", str(files() / f"apicurio-registry-app-{VERSION}-runner.jar"),
        ]  # fmt: skip
        self._process = ServerProcess(command, self._directory / "registry.log")
        self._process.wait_until(self._answers, timeout_s=90)

    def stop(self) -> None:
        self._process.kill()

    def _answers(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/subjects", timeout=2) as answer:
                return bool(answer.status == 200)
        except (urllib.error.URLError, OSError):
            return False


def files() -> Path:
    """The folder with the registry's program, filled at first use: 110 MB."""
    return brought(f"apicurio-registry-{VERSION}", _IVY, archive=True)
