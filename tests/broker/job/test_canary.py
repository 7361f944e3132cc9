"""A password and a key's password that are found nowhere: not in what the job says, shows or keeps.

The job runs with everything that logs much: log level DEBUG, Spark's UI, its event log.
"""

from __future__ import annotations

import json
import os
import pickle  # noqa: TID251  # shows that it is never read
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import (
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)
from spu_assigner.schemas.messages.codec import encode_event
from spu_assigner.stream.kafka.acls import Role, acls
from spu_assigner.stream.kafka.topic_admin import create_topics
from support.events.builders import Events
from support.events.canary import Canary, crawl, every_file
from support.job.programs import running
from support.kafka.reading import committed
from support.kafka.secured import Secured
from support.kafka.sockets import family

COMMAND = [sys.executable, "-m", "spu_assigner.stream.cli"]
SECONDS_MAX = 180.0
USER = "canary-user"
PREFIX = "canary."
OUTPUTS = ("replica-map", "topic-status", "ring-events", "dead-letter", "assigner-state")
MARKERS = ("assigner-commits", "assigner-audit")

PASSWORD, WRONG = Canary.hatch(), Canary.hatch()
CANARIES = (PASSWORD, WRONG)

_ANY_RIGHT = AclBindingFilter(
    ResourceType.ANY,
    None,
    ResourcePatternType.ANY,
    f"User:{USER}",
    None,
    AclOperation.ANY,
    AclPermissionType.ANY,
)
_PICKLE = re.compile(rb"\x80[\x04\x05]\x95.{4}\x00{4}|cloudpickle|copyreg", re.DOTALL)
_CONFLUENT_FRAME = b"\0"
_START = ("/", "/environment/", "/SQL/", "/StreamingQuery/", "/executors/", "/api/v1/applications")
_REST = ("environment", "jobs", "stages", "allexecutors", "sql?details=true", "executors", "logs")
_THREADS = tuple(
    f"/executors/{what}/?executorId=driver" for what in ("threadDump", "heapHistogram")
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """All that a job said, showed and left, up to its end by an error."""

    folder: Path  # where it ran: log, checkpoint, event log
    temporary: Path
    pages: Mapping[str, bytes]
    command_lines: Mapping[int, str]
    refusals: tuple[str, ...]  # of commands with a wrong password
    said: Path


def environ_of(secured: Secured, prefix: str) -> dict[str, str]:
    """A user with a password in a variable, and a certificate with its key."""
    return {
        **secured.environ(USER),
        "SPU_ASSIGNER_SASL_PASSWORD": PASSWORD.value,
        "SPU_ASSIGNER_SSL_CERTIFICATE_FILE": str(secured.certificates.path("machine.pem")),
        "SPU_ASSIGNER_SSL_KEY_FILE": str(secured.certificates.path("machine.key")),
        "SPU_ASSIGNER_TOPIC_PREFIX": prefix,
    }


def spark_defaults(folder: Path) -> Path:
    """A site's own configuration of Spark: the event log is on."""
    (folder / "events").mkdir(parents=True)
    conf = folder / "conf"
    conf.mkdir()
    lines = {
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": f"file://{folder / 'events'}",
        "spark.eventLog.compress": "false",
        "spark.eventLog.rolling.enabled": "false",
    }
    text = "".join(f"{name} {value}\n" for name, value in lines.items())
    (conf / "spark-defaults.conf").write_text(text, encoding="utf-8")
    return conf


def until(
    is_so: Callable[[], bool], what: str, process: subprocess.Popen[bytes] | None = None
) -> None:
    """Wait; with a process, while that runs."""
    deadline = time.monotonic() + SECONDS_MAX
    while not is_so():
        assert process is None or process.poll() is None, f"it ended before {what}"
        assert time.monotonic() < deadline, what
        time.sleep(0.2)


def refused(environ: Mapping[str, str], *arguments: str) -> str:
    """What a command says that is to be refused."""
    done = subprocess.run(
        [*COMMAND, *arguments],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **environ},
        timeout=SECONDS_MAX,
    )
    assert done.returncode != 0
    return done.stdout + done.stderr


def answers(secured: Secured, topic: str) -> int:
    return len(committed(secured.broker.bootstrap_servers, topic))


def send(secured: Secured, prefix: str) -> None:
    """A request, and one that cannot be read."""
    events = Events()
    producer = Producer(secured.plain)
    for event in events.joins(0, 1):
        producer.produce(f"{prefix}spu-events", encode_event(event), event.cluster_id.encode())
    producer.flush()
    create = events.create("t", 2, 2)
    producer.produce(f"{prefix}topic-events", encode_event(create), create.cluster_id.encode())
    producer.produce(f"{prefix}topic-events", b"no event", b"key")
    producer.flush()


def look_at_ui(said: Path) -> dict[str, bytes]:
    """Every page of the UI, and what its REST interface returns."""
    text = said.read_text(encoding="utf-8")
    base = next(line.split()[-1] for line in text.splitlines() if line.startswith("Spark UI"))
    with urllib.request.urlopen(f"{base}/api/v1/applications", timeout=60) as answer:
        (application,) = json.load(answer)
    rest = [f"/api/v1/applications/{application['id']}/{place}" for place in _REST]
    return crawl(base, [*_START, *rest, *_THREADS])


@pytest.fixture(scope="module")
def outcome(secured: Secured, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Outcome]:
    folder = tmp_path_factory.mktemp("canary")
    temporary = Path(tempfile.mkdtemp(prefix="spu-"))  # short: a socket's path has 108 bytes
    prefix, said = PREFIX, folder / "said"
    create_topics(secured.plain, prefix=prefix)
    secured.add_user(USER, PASSWORD.value)
    secured.allow({USER: acls(Role.JOB, prefix=prefix, query_name="spu-assigner", group="unused")})
    environ = {
        **environ_of(secured, prefix),
        "SPU_ASSIGNER_LOG_LEVEL": "DEBUG",
        "SPARK_CONF_DIR": str(spark_defaults(folder)),
        "TMPDIR": str(temporary),
        "JAVA_TOOL_OPTIONS": f"-Djava.io.tmpdir={temporary}",
    }
    wrong = {**environ, "SPU_ASSIGNER_SASL_PASSWORD": WRONG.value}
    unused = str(folder / "unused")
    refusals = [refused(wrong, "topics", "check"), refused(wrong, "run", "--checkpoint", unused)]
    options = ["--checkpoint", str(folder / "checkpoint")]
    # All that is relative to the folder it runs in lies in the folder that is searched.
    command = ["sh", "-c", f'cd {folder} && exec "$@"', "sh", *COMMAND, "run", *options]
    with running(command, said, environ) as process:
        until(lambda: "Events are answered" in said.read_text(), "the job", process)
        send(secured, prefix)
        until(lambda: answers(secured, f"{prefix}topic-status") > 0, "an answer", process)
        until(lambda: answers(secured, f"{prefix}dead-letter") > 0, "a dead letter", process)
        pages = look_at_ui(said)
        command_lines = family(process.pid)
        with AdminClient(secured.plain) as admin:
            # Spark's own clients fail then, with all they have to say.
            for future in admin.delete_acls([_ANY_RIGHT]).values():
                future.result(timeout=30)
        until(lambda: process.poll() is not None, "the end by an error")
        assert process.returncode not in (0, -signal.SIGTERM)
    yield Outcome(
        folder=folder,
        temporary=temporary,
        pages=pages,
        command_lines=command_lines,
        refusals=tuple(refusals),
        said=said,
    )
    shutil.rmtree(temporary)


def test_no_secret_is_in_logs_event_log_checkpoint_or_temporary_files(outcome: Outcome) -> None:
    """The job ended by an error of Spark's, at log level DEBUG: more it never says."""
    names = {path.relative_to(outcome.folder).parts[0] for path in every_file(outcome.folder)}
    assert {"said", "events", "checkpoint", "spark.log"} <= names
    log = (outcome.folder / "spark.log").read_text(errors="replace")
    assert "sasl.jaas.config = [hidden]" in log  # Kafka's clients did log their settings there.
    assert " DEBUG " in log
    assert any(
        "SparkListenerApplicationStart" in path.read_text(errors="replace")
        for path in every_file(outcome.folder / "events")
    )
    found = {
        path for canary in CANARIES for path in canary.files(outcome.folder, outcome.temporary)
    }
    assert found == set()


def test_no_secret_is_on_a_page_of_the_ui_or_its_rest_interface(outcome: Outcome) -> None:
    """Nor on a command line, where every user of the machine can look, nor in an error."""
    assert len(outcome.pages) >= 15
    environment = [text for url, text in outcome.pages.items() if url.endswith("/environment/")]
    assert [b"spark.eventLog.enabled" in text for text in environment] == [True]
    assert any(b"StreamingQuery" in text for text in outcome.pages.values())
    lines = {f"{number} {line}": line.encode() for number, line in outcome.command_lines.items()}
    for program in ("SparkSubmit", "stream.job.shard.server", "stream.cli"):
        assert any(program in line for line in lines)
    refusals = {str(number): text.encode() for number, text in enumerate(outcome.refusals)}
    assert all(b"SPU_ASSIGNER_SASL_PASSWORD" in text for text in refusals.values())
    said = outcome.said.read_bytes()
    assert b"spu-assigner: " in said
    shown = {**outcome.pages, **lines, **refusals, "the job": said}
    assert [
        name for name, text in shown.items() if any(canary.is_in(text) for canary in CANARIES)
    ] == []


def test_no_pickle_is_in_the_checkpoint_or_in_kafka(outcome: Outcome, secured: Secured) -> None:
    """Who could write there could else run programs in the job."""
    assert _PICKLE.search(b"." + pickle.dumps(["a"] * 9)), "the search itself finds one"
    files = every_file(outcome.folder / "checkpoint")
    assert any(path.suffix == ".changelog" for path in files)
    assert [path for path in files if _PICKLE.search(path.read_bytes())] == []
    for topic in (*OUTPUTS, *MARKERS):
        messages = committed(secured.broker.bootstrap_servers, PREFIX + topic)
        values = [value for message in messages if (value := message.value()) is not None]
        assert values
        assert {value[:1] for value in values} == {_CONFLUENT_FRAME}, topic
