"""A real Kafka broker: one KRaft node that is broker and controller, on loopback only.

Its jars come from the public Maven repository, see `maven`.
"""

from __future__ import annotations

import signal
import subprocess
import uuid
from pathlib import Path

from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.servers.certificates import Certificates, make_certificates
from tests.servers.maven import brought, java_program
from tests.servers.process import ServerProcess, free_ports
from tests.servers.wire import Wire

VERSION = "4.3.1"
_IVY = f"""<ivy-module version="2.0">
  <info organisation="tidegate" module="kafka-for-tests"/>
  <dependencies>
    <dependency org="org.apache.kafka" name="kafka_2.13" rev="{VERSION}" conf="default"/>
    <dependency org="org.apache.logging.log4j" name="log4j-slf4j-impl" rev="2.25.4" conf="default"/>
  </dependencies>
</ivy-module>
"""
_CONNECTOR = """<ivy-module version="2.0">
  <info organisation="tidegate" module="connector-for-tests"/>
  <dependencies>
    <dependency org="org.apache.spark" name="spark-sql-kafka-0-10_2.13" rev="{version}" conf="default" transitive="false"/>
    <dependency org="org.apache.spark" name="spark-token-provider-kafka-0-10_2.13" rev="4.0.0" conf="default" transitive="false"/>
    <dependency org="org.apache.kafka" name="kafka-clients" rev="3.9.2" conf="default" transitive="false"/>
    <dependency org="org.apache.commons" name="commons-pool2" rev="2.13.1" conf="default" transitive="false"/>
  </dependencies>
</ivy-module>
"""
_CONNECTOR_OF_4_1 = "4.1.3"
_CONNECTOR_SINCE_4_2 = "4.2.0"
"""The newest of each that the repository has. The token provider is one that all of them accept."""
_JDBC = """<ivy-module version="2.0">
  <info organisation="tidegate" module="jdbc-for-tests"/>
  <dependencies>
    <dependency org="org.postgresql" name="postgresql" rev="42.7.4" conf="default" transitive="false"/>
  </dependencies>
</ivy-module>
"""
USERS = {"ann": "swordfish-of-ann", "bob": "open-sesame-of-bob"}
"""Who may log in at the secure port: `ann` with PLAIN, `bob` with SCRAM-SHA-512."""
_CLUSTER_ID = "dGlkZWdhdGUtdGVzdHMtMQ"
_ONE_NODE = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "share.coordinator.state.topic.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
    "auto.create.topics.enable": "false",
    # A test waits for these instead of minutes.
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
    "log.retention.check.interval.ms": "1000",
    "log.initial.task.delay.ms": "500",
}


class KafkaBroker:
    """One broker. Ready when the constructor returns (5 to 10 s); `kill` and `start` play a crash and what follows."""

    def __init__(self, directory: Path, wire: Wire | None = None, second: Wire | None = None) -> None:
        """`wire`: clients that begin at its port (`wired_servers`) are told to go on speaking through it. `second` is another
        one (`second_servers`), so that one part of a job can be cut off from the broker and another not."""
        self._directory = directory
        port, wired, further, secure, mutual, controller = free_ports(6)
        self.bootstrap_servers = f"127.0.0.1:{port}"
        self.wired_servers = f"127.0.0.1:{wired if wire is None else wire.lead_to('127.0.0.1', wired).port}"
        self.second_servers = f"127.0.0.1:{further if second is None else second.lead_to('127.0.0.1', further).port}"
        self.secure_servers, self.mutual_servers = f"127.0.0.1:{secure}", f"127.0.0.1:{mutual}"
        """Clients log in with a password over TLS at the first, and show a certificate at the second."""
        self.certificates = make_certificates(directory / "certificates")
        safe = f"SECURE://{self.secure_servers},MUTUAL://{self.mutual_servers}"
        settings = (
            _ONE_NODE
            | _secured(self.certificates)
            | {
                "listeners": f"PLAINTEXT://127.0.0.1:{port},WIRED://127.0.0.1:{wired},SECOND://127.0.0.1:{further},"
                f"CONTROLLER://127.0.0.1:{controller},{safe}",
                "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port},WIRED://{self.wired_servers},"
                f"SECOND://{self.second_servers},{safe}",
                "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,WIRED:PLAINTEXT,SECOND:PLAINTEXT,CONTROLLER:PLAINTEXT,"
                "SECURE:SASL_SSL,MUTUAL:SSL",
                "inter.broker.listener.name": "PLAINTEXT",
                "controller.quorum.voters": f"1@127.0.0.1:{controller}",
                "log.dirs": str(directory / "data"),
            }
        )
        self._config = directory / "server.properties"
        self._config.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        formatting = [*_java("64m"), "kafka.tools.StorageTool", "format", "-t", _CLUSTER_ID, "-c", str(self._config)]
        formatting += ["--add-scram", f"SCRAM-SHA-512=[name=bob,password={USERS['bob']}]"]
        subprocess.run(formatting, check=True, capture_output=True, cwd=directory)
        self.start()

    def start(self) -> None:
        command = [*_java("512m"), "kafka.Kafka", str(self._config)]
        self._process = ServerProcess(command, self._directory / "kafka.log")
        self._process.wait_until(self._takes_transactions, timeout_s=90)

    def kill(self) -> None:
        """SIGKILL. The data directory stays."""
        self._process.kill()

    def pause(self) -> None:
        """It falls silent, and keeps its connections."""
        self._process.signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._process.signal(signal.SIGCONT)

    def stop(self) -> None:
        # An orderly end takes seconds, and nobody will read the data again.
        self._process.kill()

    def topic(self, partitions: int = 1, name: str | None = None, **config: str) -> str:
        """Make a topic of its own for a test. Answer: its name. Settings are written with `_` for `.`."""
        name = name or f"t-{uuid.uuid4().hex[:12]}"
        settings = {key.replace("_", "."): value for key, value in config.items()}
        admin = AdminClient({"bootstrap.servers": self.bootstrap_servers})
        admin.create_topics([NewTopic(name, partitions, 1, config=settings)])[name].result(30)
        return name

    def _takes_transactions(self) -> bool:
        """An open port is no readiness, and neither are topics: the coordinator of transactions comes last."""
        producer = Producer(
            {"bootstrap.servers": self.bootstrap_servers, "transactional.id": "ready", "log_level": 0},
        )
        try:
            producer.init_transactions(5)
        except KafkaException:
            return False
        return True


def _secured(certificates: Certificates) -> dict[str, str]:
    tls = {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(certificates.server_store),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(certificates.authority),
    }
    login = "org.apache.kafka.common.security"
    return {
        **{f"listener.name.{each}.{key}": value for each in ("secure", "mutual") for key, value in tls.items()},
        "listener.name.mutual.ssl.client.auth": "required",
        "listener.name.secure.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512",
        "listener.name.secure.plain.sasl.jaas.config": f'{login}.plain.PlainLoginModule required user_ann="{USERS["ann"]}";',
        "listener.name.secure.scram-sha-512.sasl.jaas.config": f"{login}.scram.ScramLoginModule required;",
    }


def _java(memory: str) -> list[str]:
    return [java_program(), f"-Xmx{memory}", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", f"{jars()}/*"]


def jars() -> Path:
    """The folder with the broker's jars, filled at first use: a minute of downloading, 45 MB."""
    return brought(f"kafka-{VERSION}", _IVY)


def connector_jars() -> list[Path]:
    """Spark's own Kafka connector, as four jars that go together and fit the installed Spark."""
    import pyspark

    version = _CONNECTOR_OF_4_1 if pyspark.__version__.startswith("4.1.") else _CONNECTOR_SINCE_4_2
    return sorted(brought(f"spark-kafka-{version}", _CONNECTOR.format(version=version)).iterdir())


def jdbc_jars() -> list[Path]:
    """PostgreSQL's driver for Spark's JDBC writer, for comparison."""
    return sorted(brought("postgresql-42.7.4", _JDBC).iterdir())
