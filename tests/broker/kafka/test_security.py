"""TLS and passwords on a real broker: one set of settings for every client, and clear refusals."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.sql import SparkSession
from spu_assigner.stream.job.query import read_events
from spu_assigner.stream.job.session import build_session
from spu_assigner.stream.kafka import connection_diagnosis, log_dirs
from spu_assigner.stream.kafka.acls import Acl, Resource, Role, acls
from spu_assigner.stream.kafka.config.settings import Settings, SettingsError
from spu_assigner.stream.kafka.connection_diagnosis import WaitLimits
from spu_assigner.stream.kafka.errors import ClientError
from spu_assigner.stream.kafka.topic_admin import check_topics, create_topics
from spu_assigner.stream.local.jvm.jars import ensure_all
from spu_assigner.stream.local.jvm.java import Java
from support.job.programs import running
from support.kafka.secured import Secured

COMMAND = (sys.executable, "-m", "spu_assigner.stream.cli")
LOCAL = {"SPU_ASSIGNER_MASTER": "local[2]"}
SECONDS_MAX = 300
REFUSED_SECONDS = 1.0
PASSWORDS = {
    "job": "it's ${env:HOME} ;//=#",
    "admin": 'the "admin"',
    "producer": "producer's",
    "consumer": "consumer's",
}


def call(extra: Mapping[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=SECONDS_MAX,
        env={**os.environ, **LOCAL, **extra},
    )


def until(is_so: Callable[[], bool], process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + SECONDS_MAX
    while not is_so():
        assert process.poll() is None, log.read_text()
        assert time.monotonic() < deadline, log.read_text()
        time.sleep(0.1)


def users(secured: Secured, prefix: str) -> dict[str, dict[str, str]]:
    """The environment of a user for each role, with exactly its rights."""
    rights = {
        role.value: acls(role, prefix=prefix, query_name="spu-assigner", group="unused")
        for role in (Role.JOB, Role.PRODUCER, Role.CONSUMER, Role.ADMIN)
    }
    rights["producer"] += rights["consumer"]  # for --wait
    environs: dict[str, dict[str, str]] = {}
    for user, password in PASSWORDS.items():
        secured.add_user(user, password)
        environs[user] = {
            **secured.environ(user),
            "SPU_ASSIGNER_SASL_PASSWORD": password,
            "SPU_ASSIGNER_TOPIC_PREFIX": prefix,
        }
    secured.allow(rights)
    return environs


def test_the_whole_job_runs_over_tls_as_users_with_exactly_their_rights(
    secured: Secured, java: Java, topic_prefix: str, tmp_path: Path
) -> None:
    """Topics, job, a request with its answer, and a reader: each is somebody else."""
    environs = users(secured, topic_prefix)
    made = call(environs["admin"], "topics", "create")
    assert made.returncode == 0, made.stderr
    job_log, watch_log = tmp_path / "job.log", tmp_path / "watch.log"
    checkpoint = ["--checkpoint", str(tmp_path / "checkpoint"), "--ui-port", "0"]
    watching = ["watch", "--from-beginning", "--topics", "maps", "--count", "1", "-o", "json"]
    job_environ = {**LOCAL, **environs["job"]}
    with running([*COMMAND, "run", *checkpoint], job_log, job_environ) as job:
        until(lambda: "Events are answered" in job_log.read_text(), job, job_log)
        for spu_id in ("0", "1"):
            joined = ["produce", "spu-joined", "--cluster", "c", "--spu-id", spu_id]
            assert call(environs["producer"], *joined).returncode == 0
        asked = ["--topic", "t", "--partitions", "1", "--replication-factor", "2", "--wait=240"]
        answer = call(environs["producer"], "produce", "topic-create", "--cluster", "c", *asked)
        assert (answer.returncode, answer.stderr) == (0, ""), job_log.read_text()
        with running([*COMMAND, *watching], watch_log, environs["consumer"]) as watch:
            assert watch.wait(timeout=SECONDS_MAX) == 0
        shown = json.loads(watch_log.read_text().splitlines()[-1])
        assert shown["replicas"] == [[0, 1]]
        assert job.poll() is None
    assert PASSWORDS["job"] not in job_log.read_text()


@pytest.fixture
def spark(java: Java, tmp_path: Path) -> Iterator[SparkSession]:
    jars = ensure_all(["spark-kafka", "spark-local"])
    flags = {"master": "local[2]", "ui_port": 0, "checkpoint": str(tmp_path / "checkpoint")}
    session = build_session(Settings.load(flags=flags, environ={}), java=java, jars=jars)
    yield session
    session.stop()


def count_read(spark: SparkSession, settings: Settings, topic: str) -> int:
    """As the job's source reads, but once."""
    reader = spark.read.format("kafka").options(**settings.connection().spark())
    return reader.option("subscribe", settings.topic_prefix + topic).load().count()


def test_spark_reads_with_a_password_or_a_key_from_files(
    secured: Secured, spark: SparkSession, topic_prefix: str, tmp_path: Path
) -> None:
    """The same settings as for librdkafka; a line end after the password is none of it."""
    password = tmp_path / "password"
    password.write_text("it's // {written} here\n", encoding="utf-8")
    password.chmod(0o600)
    secured.add_user("reader", "it's // {written} here", "SCRAM-SHA-256")
    rights = acls(Role.JOB, prefix=topic_prefix, query_name="q", group="")
    secured.allow({"reader": rights})
    prefix = {"SPU_ASSIGNER_TOPIC_PREFIX": topic_prefix}
    machine = Settings.load(environ={**secured.machine(), **prefix})
    create_topics(machine.connection().client(), prefix=topic_prefix)
    user = Settings.load(
        environ={
            **secured.environ("reader", SPU_ASSIGNER_SASL_MECHANISM="SCRAM-SHA-256", **prefix),
            "SPU_ASSIGNER_SASL_PASSWORD_FILE": str(password),
        }
    )
    check_topics(user.connection().client(), prefix=topic_prefix)
    join = ["produce", "spu-joined", "--cluster", "c", "--spu-id", "0"]
    sent = call({**secured.machine(), **prefix}, *join)
    assert sent.returncode == 0, sent.stderr
    assert [count_read(spark, each, "spu-events") for each in (user, machine)] == [1, 1]


def test_a_secret_that_spark_s_jvm_does_not_have_is_reported(
    secured: Secured, spark: SparkSession
) -> None:
    """It would pass for a wrong password: the reference itself would be sent."""
    environ = secured.environ("job", SPU_ASSIGNER_SASL_PASSWORD="came too late")
    with pytest.raises(SettingsError, match="not in the environment of Spark's JVM"):
        read_events(spark, Settings.load(environ=environ), shards=2, group="g")


def refusal(environ: Mapping[str, str], begin: str = "Kafka at localhost:") -> str:
    """What is said; the broker has known its users for long, so that its refusal holds soon."""
    client = Settings.load(environ=environ).connection().client()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(connection_diagnosis, "WAIT_LIMITS", WaitLimits(refused=REFUSED_SECONDS))
        with pytest.raises(ClientError) as caught:
            check_topics(client)
    message = str(caught.value)
    assert "\n" not in message
    assert message.startswith(begin)
    return message


CA = "SPU_ASSIGNER_SSL_CA_FILE"
SERVERS = "KAFKA_BOOTSTRAP_SERVERS"
UNKNOWN_AUTHORITY = rf"no trusted authority vouches for .*put .* into {CA}$"


@pytest.mark.smoke
@pytest.mark.parametrize(
    ("name", "value", "reported"),
    [
        (
            *("SPU_ASSIGNER_SASL_PASSWORD", "wrong"),
            r"refuses user 'known': name or password is wrong.* check SPU_ASSIGNER_SASL_USERNAME",
        ),
        ("SPU_ASSIGNER_SASL_USERNAME", "unknown", "refuses user 'unknown': name or password is"),
        ("SPU_ASSIGNER_SASL_MECHANISM", "SCRAM-SHA-256", "or it has none for SCRAM-SHA-256"),
        (CA, "stranger.pem", UNKNOWN_AUTHORITY),
        (CA, "", UNKNOWN_AUTHORITY),
        (SERVERS, "MISNAMED", r"a certificate for another host \(Hostname mismatch.*'localhost'"),
        (
            *(SERVERS, "PLAINTEXT"),
            "does not speak TLS, and SPU_ASSIGNER_SECURITY_PROTOCOL is SASL_SSL; name its port",
        ),
        (SERVERS, "SSL", "does not take this client's certificate, or asks for one; check"),
    ],
)
def test_a_refusal_is_one_line_that_says_what_to_do(
    secured: Secured, name: str, value: str, reported: str
) -> None:
    """librdkafka says the same of a wrong name and a wrong authority, and little of the rest."""
    secured.add_user("known", "right")
    if name == SERVERS:
        value = secured.address(value)
    elif value.endswith(".pem"):
        value = str(secured.certificates.path(value))
    user = secured.environ("known", SPU_ASSIGNER_SASL_PASSWORD="right")
    found = refusal({**user, name: value})
    assert re.search(reported, found), found
    assert "right" not in found


def test_a_client_without_tls_or_user_learns_what_the_port_wants(secured: Secured) -> None:
    """A plain client gets no word from a port that speaks TLS."""
    port = {"KAFKA_BOOTSTRAP_SERVERS": secured.address("SASL_SSL")}
    assert refusal(port).endswith(
        "speaks TLS, and SPU_ASSIGNER_SECURITY_PROTOCOL is PLAINTEXT; set it to SASL_SSL, or SSL"
    )
    ca_file = {"SPU_ASSIGNER_SSL_CA_FILE": str(secured.certificates.path("ca.pem"))}
    without_user = {**port, **ca_file, "SPU_ASSIGNER_SECURITY_PROTOCOL": "SSL"}
    assert "if it asks for a user, set SPU_ASSIGNER_SECURITY_PROTOCOL" in refusal(without_user, "")


def test_bytes_of_topics_are_asked_over_tls_as_everything_else_is(
    secured: Secured, topic_prefix: str
) -> None:
    """By another client library, from the same settings: certificates, SCRAM.

    Who may not Describe the cluster, or has to do with a broker that is none, learns nothing.
    """
    topic = f"{topic_prefix}full"
    with AdminClient(secured.plain) as admin:
        admin.create_topics([NewTopic(topic, 1)])[topic].result(timeout=60)
    seen = Acl(resource=Resource.CLUSTER, name="kafka-cluster", operation="Describe")
    secured.allow({"viewer": [seen]})
    producer = Producer(secured.plain)
    producer.produce(topic, bytes(1_000))
    assert producer.flush(60) == 0
    seeing = [secured.machine()]
    for mechanism in ("SCRAM-SHA-512", "SCRAM-SHA-256"):
        secured.add_user("viewer", PASSWORDS["job"], mechanism)
        user = secured.environ("viewer", SPU_ASSIGNER_SASL_MECHANISM=mechanism)
        seeing.append({**user, "SPU_ASSIGNER_SASL_PASSWORD": PASSWORDS["job"]})
    for environ in seeing:
        assert 1_000 < (bytes_of(environ, topic) or 0) < 10_000
    secured.add_user("nobody-to-see", PASSWORDS["admin"])
    hidden = secured.environ("nobody-to-see")
    stranger = str(secured.certificates.path("stranger.pem"))
    for environ in (
        {**hidden, "SPU_ASSIGNER_SASL_PASSWORD": PASSWORDS["admin"]},
        {**hidden, "SPU_ASSIGNER_SASL_PASSWORD": "another"},
        {**secured.machine(), "KAFKA_BOOTSTRAP_SERVERS": secured.address("MISNAMED")},
        {**secured.machine(), "SPU_ASSIGNER_SSL_CA_FILE": stranger},
    ):
        assert bytes_of(environ, topic) is None


def bytes_of(environ: Mapping[str, str], topic: str) -> int | None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(log_dirs, "REQUEST_SECONDS_MAX", 5.0)
        connection = Settings.load(environ=dict(environ)).connection()
        return log_dirs.topic_bytes(connection, {topic: 1}).get(topic)
