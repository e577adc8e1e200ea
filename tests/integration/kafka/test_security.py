"""One dictionary of client settings for the source and the sink, against a broker that asks for TLS and a login.

Nothing that a job shows, logs, tells or stores has the secrets in it.
"""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys

import pytest

import tidegate as tg
from tests.integration.kafka.test_formats import Others
from tests.integration.kafka.topics import Output, fill, read
from tests.servers.kafka import USERS, KafkaBroker
from tests.sparks import ROOT
from tidegate.connectors.kafka import reader, transactions
from tidegate.connectors.kafka.errors import KafkaRefused
from tidegate.connectors.kafka.positions import Range
from tidegate.connectors.kafka.reader import Cluster, Watch, read_range

WAYS = ("PLAIN", "SCRAM-SHA-512", "certificate")


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Calls that brokers do not answer end sooner."""
    monkeypatch.setattr(reader, "_ANSWER_S", 3.0)
    monkeypatch.setattr(transactions, "_ANSWER_S", 3.0)


def password(kafka: KafkaBroker, mechanism: str, user: str) -> tuple[str, dict[str, str]]:
    return kafka.secure_servers, {
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": str(kafka.certificates.authority),
        "sasl.mechanism": mechanism,
        "sasl.username": user,
        "sasl.password": USERS[user],
    }


def certificate(kafka: KafkaBroker) -> tuple[str, dict[str, str]]:
    """The private key itself, as it comes from a secret store."""
    return kafka.mutual_servers, {
        "security.protocol": "SSL",
        "ssl.ca.pem": kafka.certificates.authority.read_text(),
        "ssl.certificate.pem": kafka.certificates.client_certificate.read_text(),
        "ssl.key.pem": kafka.certificates.client_key.read_text(),
    }


def access(kafka: KafkaBroker, way: str) -> tuple[str, dict[str, str]]:
    if way == "certificate":
        return certificate(kafka)
    return password(kafka, way, "ann" if way == "PLAIN" else "bob")


@pytest.mark.parametrize("way", WAYS)
def test_every_way_to_log_in_works_for_reading_and_writing(kafka, tmp_path, way):
    servers, config = access(kafka, way)
    topic = kafka.topic()
    output = Output(tg.KafkaSink(servers, topic, config=config), tmp_path)
    output.commit(output.numbers([1, 2], 1))
    cluster = Cluster(servers, config)
    assert Watch(cluster).partitions([topic]) == [(topic, 0)]
    end = Watch(cluster).latest([(topic, 0)])[topic, 0]
    [batch] = read_range(cluster, Range(topic, 0, 0, end), headers=False)
    assert batch.column("value").to_pylist() == [b"1", b"2"]


@pytest.mark.budget(120)
@pytest.mark.parametrize("way", ["SCRAM-SHA-512", "certificate"])
def test_one_set_of_settings_serves_source_and_sink_and_is_disclosed_nowhere(kafka, schema_registry, tmp_path, way):
    servers, config = access(kafka, way)
    source, target = kafka.topic(), kafka.topic()
    word = '{"type": "record", "name": "Word", "fields": [{"name": "word", "type": "string"}]}'
    words = Others(schema_registry).avro(source, word, [{"word": each} for each in ("to", "be", "to")])
    fill(kafka, source, [{"value": each} for each in words])
    login = "tide:lighthouse-keeper"
    given = [servers, config, source, target, schema_registry.url, login]
    (tmp_path / "access.json").write_text(json.dumps(given))
    told = subprocess.run(
        [sys.executable, "-m", "tests.integration.kafka.secured_job", str(tmp_path)],
        capture_output=True, text=True, timeout=240, cwd=ROOT, env=os.environ | {"PYTHONPATH": f"{ROOT}:{ROOT / 'src'}"},
    )  # fmt: skip
    assert told.returncode == 0, told.stderr[-4000:]
    assert sorted(m.value()[6:].decode() for m in read(kafka, target)) == ["be=1", "to=1", "to=2"]

    (tmp_path / "access.json").unlink()
    (tmp_path / "stdout").write_text(told.stdout)
    (tmp_path / "stderr").write_text(told.stderr)
    places = {path.relative_to(tmp_path).parts[0] for path in tmp_path.rglob("*") if path.is_file()}
    assert places >= {"stdout", "stderr", "checkpoints", "savepoint", "spark-events", "rest", "events"}
    secrets = [each.encode() for each in (*secrets_of(config), "lighthouse-keeper", base64_of(login))]
    for path in tmp_path.rglob("*"):
        if path.is_file():
            assert not [each for each in secrets if each in path.read_bytes()], path
    assert "INFO" in told.stderr, "Spark logged nothing that could disclose anything"


def base64_of(login: str) -> str:
    return base64.b64encode(login.encode()).decode()


def secrets_of(config: dict[str, str]) -> list[str]:
    """What must be found nowhere: the password, or a line from the middle of the private key."""
    return [config["sasl.password"]] if "sasl.password" in config else [config["ssl.key.pem"].splitlines()[1]]


@pytest.mark.parametrize("side", ["source", "sink"])
def test_a_wrong_password_ends_the_job_with_a_reason_that_does_not_repeat_it(kafka, tmp_path, side, impatient):
    servers, config = access(kafka, "PLAIN")
    config["sasl.password"] = "no-such-word"
    topic = kafka.topic()
    output = Output(tg.KafkaSink(servers, topic, config=config), tmp_path)
    staged = output.numbers([1], 1)
    acts = {
        "source": lambda: Watch(Cluster(servers, config)).partitions([topic]),
        "sink": lambda: output.commit(staged),
    }
    with pytest.raises(KafkaRefused, match=r"Authentication failed.*Correct the user and password") as refused:
        acts[side]()
    assert "no-such-word" not in str(refused.value)


def test_an_unknown_authority_is_reported(kafka, impatient):
    servers, config = access(kafka, "PLAIN")
    del config["ssl.ca.location"]
    with pytest.raises(KafkaRefused, match=r"certificate verify failed.*Correct security\.protocol and the ssl\.\*"):
        Watch(Cluster(servers, config)).partitions([kafka.topic()])


@pytest.mark.budget(90)
def test_a_job_whose_source_is_turned_away_stops(spark, kafka, tmp_path):
    servers, config = access(kafka, "PLAIN")
    topic = kafka.topic()
    job = tg.Job("refused")
    frame = tg.kafka_source(spark, servers, topic, config=config | {"sasl.password": "no-such-word"})
    job.source("in", frame.select("value")).sink("out", tg.DiscardSink())
    chosen = tg.Checkpointing(dir=str(tmp_path), interval="1 s")
    with pytest.raises(KafkaRefused, match="Authentication failed") as refused:
        job.start(spark, checkpoint=chosen).await_termination(80)
    assert "no-such-word" not in str(refused.value)
