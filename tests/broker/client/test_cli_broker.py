"""The command line against a real broker and a real job."""

from __future__ import annotations

import json
import os
import queue
import shlex
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import pytest
from click.testing import CliRunner
from confluent_kafka import Producer
from spu_assigner.stream.cli import cli
from spu_assigner.stream.client import spu_patch
from spu_assigner.stream.local.jvm.java import Java
from support.kafka.one_topic import open_transaction
from support.kafka.shared_broker import SharedBroker

COMMAND = [sys.executable, "-m", "spu_assigner.stream.cli"]
# No broker is named but by a test's own options.
ENVIRON = {name: os.environ[name] for name in os.environ if name != "KAFKA_BOOTSTRAP_SERVERS"}
WAIT = "--wait=240"  # for a first batch
SURELY = 10  # seconds in which whatever can be answered is; they are waited out once
MANUAL_LIST = [{"id": 0, "replicas": [0, 1, 2]}, {"id": 1, "replicas": [1, 2, 0]}]
START_SECONDS_MAX = 300.0  # of broker and Spark, on a machine with other work


class Lines:
    """Lines of a running program, without waiting for its end."""

    def __init__(self, stream: IO[str]) -> None:
        self._lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self.seen: list[str] = []
        threading.Thread(target=self._read, args=(stream,), daemon=True).start()

    def _read(self, stream: IO[str]) -> None:
        for line in stream:
            self._lines.put(line.rstrip("\n"))
        self._lines.put(None)

    def until(self, part: str, seconds: float = START_SECONDS_MAX) -> str:
        """The first line from here on that holds `part`."""
        deadline = time.monotonic() + seconds
        while True:
            try:
                line = self._lines.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                pytest.fail(f"no line with {part!r} within {seconds} s after {self.seen}")
            if line is None:
                pytest.fail(f"ended without a line with {part!r}: {self.seen}")
            self.seen.append(line)
            if part in line:
                return line

    def rest(self) -> list[str]:
        """What is said from here to the end, blank lines aside."""
        lines = []
        while (line := self._lines.get(timeout=START_SECONDS_MAX)) is not None:
            lines.append(line)
        return [line for line in lines if line]


@contextmanager
def running(*arguments: str) -> Iterator[tuple[subprocess.Popen[str], Lines]]:
    """The command in the background, in a group of its own as in a terminal."""
    process = subprocess.Popen(
        [*COMMAND, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
        env=ENVIRON,
    )
    try:
        assert process.stdout is not None
        yield process, Lines(process.stdout)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGTERM)
        try:
            process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def call(*arguments: str, given: str = "") -> subprocess.CompletedProcess[str]:
    """The command in this process, which has imported it already; `running` starts a process."""
    done = CliRunner().invoke(cli, arguments, input=given, prog_name="spu-assigner")
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return subprocess.CompletedProcess(arguments, done.exit_code, done.stdout, done.stderr)


def json_lines(text: str) -> list[dict[str, object]]:
    return [json.loads(line) for line in text.splitlines()]


@pytest.fixture(scope="module")
def job(
    kafka: SharedBroker, java: Java, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[list[str]]:
    """A running job on topics of its own; gives the options that reach it."""
    broker = ["-b", kafka.bootstrap_servers, "--topic-prefix", "cli-job."]
    checkpoint = tmp_path_factory.mktemp("job") / "checkpoint"
    options = [*broker, "--create-topics", "--checkpoint", str(checkpoint), "--ui-port", "0"]
    with running("run", *options) as (_process, lines):
        lines.until("Events are answered")
        yield broker


@pytest.fixture
def topics(kafka: SharedBroker, topic_prefix: str) -> list[str]:
    """Fresh topics without a job; gives the options that reach them."""
    options = ["-b", kafka.bootstrap_servers, "--topic-prefix", topic_prefix]
    assert call("topics", "create", *options).returncode == 0
    return options


def join(options: list[str], cluster: str, count: int) -> None:
    events = [
        {"type": "spu_joined", "event_id": f"{cluster}-{n}", "cluster_id": cluster, "spu_id": n}
        for n in range(count)
    ]
    given = "".join(f"{json.dumps(event)}\n" for event in events)
    done = call("produce", "events", "-", WAIT, *options, given=given)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.smoke
def test_the_documented_producer_and_consumer_of_another_program_are_served(
    job: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """They know nothing but the schemas: one asks for a topic, the other reads its map."""
    join(job, "c1", 2)
    root = Path(__file__).parents[3]
    monkeypatch.chdir(root)
    page = (root / "docs" / "events-and-topics.md").read_text(encoding="utf-8")
    _, address, _, prefix = job
    producer, consumer = (
        part.partition("```")[0]
        .replace("127.0.0.1:9092", address)
        .replace('"topic-events"', f'"{prefix}topic-events"')
        .replace('"replica-map"', f'"{prefix}replica-map"')
        for part in page.split("```python\n")[1:]
    )
    exec(producer, {})  # noqa: S102 - our own page
    asked = ["produce", "topic-grow", "--cluster", "c1", "--topic", "orders"]
    assert call(*asked, "--partitions", "7", WAIT, *job).returncode == 0  # the create before it is
    exec(consumer, {})  # noqa: S102
    shown = [line for line in capsys.readouterr().out.splitlines() if "'orders'" in line]
    assert "'cluster_id': 'c1'" in shown[-1]
    assert "is gone" not in shown[-1]


# By cluster: how many SPUs it begins with; calls of `produce`, their status, parts of the answer.
RULES = '{"require":["tier in (ssd)"]}'
TOLERANT = '{"require":["tier = ssd"],"tolerations":[{"key":"pool"}]}'
CREATE = "topic-create --topic t --partitions 2 --replication-factor 2"
DRAINED = (
    "spu-assigner produce: cluster drained: replica maps no longer use SPU 0; in Kafka its "
    "replicas stay on the broker until they are moved: run `spu-assigner drain 0 --cluster "
    "drained`, which"
)
STORIES: dict[str, tuple[int, list[tuple[str, int, list[str]]]]] = {
    "refused": (
        1,
        [(CREATE, 1, ["rejected INSUFFICIENT_SPUS: replication_factor 2 needs 1 more"])],
    ),
    "nobody": (0, [("spu-left --spu-id 7", 1, ["nobody  SPU 7 ignored SPU_UNKNOWN"])]),
    "waits": (
        1,
        [
            (
                f"{CREATE} --on-shortage wait --wait={SURELY}",
                3,
                ["waits/t  waiting INSUFFICIENT_SPUS", f"slots after {SURELY} s: waits/t; they"],
            ),
            ("spu-joined --spu-id 1", 0, ["SPU 1 joined"]),
        ],
    ),
    "drained": (
        3,
        [
            (CREATE, 0, ["assigned"]),
            ("spu-left --spu-id 0 --mode decommission", 0, ["SPU 0 left", DRAINED]),
        ],
    ),
    "sized": (
        2,
        [
            ("spu-joined --spu-id 0 --resources disk_bytes=100", 0, ["SPU 0 updated"]),
            ("spu-joined --spu-id 1 --resources disk_bytes=100", 0, ["SPU 1 updated"]),
            ("spu-joined --spu-id 2 --resources disk_bytes=9", 0, ["SPU 2 joined"]),
            (f"{CREATE} --demand disk_bytes=10", 0, ["[0, 1]", "[1, 0]"]),
            ("topic-demand --topic t --demand disk_bytes=45", 0, ["revision 2"]),
            ("topic-create --topic u --demand disk_bytes=11", 1, ["INSUFFICIENT_CAPACITY"]),
            ("topic-demand --topic t --demand disk_bytes=much", 2, ["'disk_bytes=much' is no am"]),
        ],
    ),
    "ruled": (
        0,
        [
            ("spu-joined --spu-id 0 --label tier=ssd", 0, []),
            ("spu-joined --spu-id 1 --label tier=ssd", 0, []),
            ("spu-joined --spu-id 2 --label tier=ssd --taint pool=pay:evict", 0, ["2 cordoned"]),
            (f"{CREATE} --constraints {RULES!r}", 0, ["[0, 1]", "[1, 0]"]),
            (f"topic-constraints --topic t --constraints {TOLERANT!r}", 0, ["revision 2"]),
            ("topic-replication --topic t --replication-factor 3", 0, [", 2]"]),
            (
                f"topic-create --topic u --replication-factor 3 --constraints {RULES!r}",
                1,
                ["UNSAT"],
            ),
            ("spu-joined --spu-id 0 --keep --rack r", 0, ["SPU 0 updated, ring of"]),
            ("spu-joined --spu-id 0", 0, ["SPU 0 updated: no longer has", "t  violated"]),
        ],
    ),
    "patched": (
        2,
        [
            ("spu-joined --spu-id 0 --rack r --capacity 9 --resources disk_bytes=1", 0, []),
            ("spu-label 0 tier=hdd zone=a", 0, ["SPU 0: + tier=hdd, + zone=a\n", "SPU 0 updated,"]),
            (
                "spu-taint 0 k=v:NO_LEADERS k:evict",
                0,
                ["+ k:evict, + k=v:no_leaders\n", "cordoned"],
            ),
            (
                "spu-label 0 tier=ssd zone-",
                0,
                [
                    "SPU 0: - tier=hdd, - zone=a, + tier=ssd\n",
                    "SPU 0 updated: no longer has label 'zone=a': a join",
                ],
            ),
            ("spu-label 0 tier=ssd zone- -o json", 0, ["SPU 0: it is so already, nothing is sent"]),
            ("spu-taint 0 k:evict-", 0, ["SPU 0: - k:evict\n", "SPU 0 uncordoned"]),
            (f"{CREATE} --constraints {RULES!r}", 1, ["UNSATISFIABLE"]),
            ("spu-label 1 tier=ssd", 0, []),
            # One leads both: the other has a taint against leaders, and all that it had.
            (f"{CREATE} --constraints {RULES!r}", 0, ["0  [1, 0]", "1  [1, 0]"]),
            ("spu-joined --spu-id 0", 0, ["rack 'r', label 'tier=ssd', disk_bytes 1, taint 'k=v:"]),
            ("spu-label 7 a=b", 1, ["SPU 7 of cluster 'patched' was not announced: check --clus"]),
            ("spu-left --spu-id 0", 0, []),
            ("spu-taint 0 k-", 1, ["SPU 0 of cluster 'patched' is offline: repeat this when"]),
            ("topic-delete --topic t", 0, []),
            ("spu-left --spu-id 0 --mode decommission", 0, []),
            ("spu-label 0 a=b", 1, ["is decommissioned: `produce spu-joined --keep` ends"]),
            ("spu-joined --spu-id 0 --keep", 0, ["SPU 0 joined"]),
        ],
    ),
    "kept": (
        3,
        [
            ("spu-cordon --spu-id 0", 0, ["ring    kept  SPU 0 cordoned, ring of 2"]),
            ("spu-demote --spu-id 1", 0, ["SPU 1 demoted, ring of 2"]),
            (CREATE, 0, ["0  [2, 1]", "1  [2, 1]"]),
            ("spu-demote --spu-id 1", 1, ["SPU_UNCHANGED: SPU 1 is demoted already"]),
            ("spu-undemote --spu-id 1", 0, ["SPU 1 undemoted"]),
            ("spu-uncordon --spu-id 0", 0, ["SPU 0 uncordoned, ring of 3"]),
        ],
    ),
    "manual": (
        3,
        [
            ("topic-create --topic t --replica-assignment FILE --validate-only", 0, ["validated"]),
            ("topic-create --topic t --replica-assignment FILE", 0, ["0  [0, 1, 2]"]),
            ("cluster-rebalance --max-moves 5", 0, ["; 1 manual topic left alone\n"]),
        ],
    ),
    "living": (
        4,
        [
            ("topic-adopted --topic t --replicas 0:1,1:0:2,2", 0, ["adopted", "1  [1, 0, 2]"]),
            ("topic-grow --topic t --partitions 4", 0, ["assigned", "revision 2", "    3  ["]),
            ("topic-release --topic t", 0, ["released", "topic is released, its data stay in K"]),
            ("topic-release --topic t", 1, ["status  living/t  rejected TOPIC_UNKNOWN"]),
            (CREATE, 0, ["revision 1"]),
            ("topic-delete --topic t", 0, ["map     living/t  none: the topic is deleted"]),
        ],
    ),
    "named": (
        1,
        [
            ("topic-create --topic cli-job.replica-map", 1, ["rejected RESERVED_NAME: topic"]),
            ("topic-create --topic replica-map", 0, ["assigned"]),
        ],
    ),
}


@pytest.mark.smoke
@pytest.mark.parametrize("cluster", STORIES)
def test_each_command_is_answered_and_its_status_says_how(
    job: list[str], cluster: str, tmp_path: Path
) -> None:
    """From an option to the event, the job, and back; a script sees a refusal by the status."""
    file = tmp_path / "lists"
    file.write_text(json.dumps(MANUAL_LIST), encoding="utf-8")
    joins, calls = STORIES[cluster]
    if joins:
        join(job, cluster, joins)
    for line, status, parts in calls:
        words = shlex.split(line.replace("FILE", str(file)))
        done = call("produce", words[0], "--cluster", cluster, WAIT, *job, *words[1:])
        said = done.stdout + done.stderr
        assert done.returncode == status, (line, said)
        assert [part for part in parts if part not in said] == [], (line, said)


def test_what_another_changes_between_reading_and_sending_is_reported(
    topics: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A join says the SPU whole, so that it undoes a join that it was not made from."""

    def send(number: int, *words: str) -> subprocess.CompletedProcess[str]:
        return call("produce", *words, "--cluster", "c1", "--event-id", f"e{number}", *topics)

    assert send(1, "spu-joined", "--spu-id", "4", "--label", "a=1").returncode == 0
    assert send(2, "spu-label", "4", "b=2").returncode == 0
    send_events = spu_patch.send_events

    def late(*given: Any, **more: Any) -> int:
        monkeypatch.setattr(spu_patch, "send_events", send_events)
        assert send(3, "spu-taint", "4", "k:evict").returncode == 0
        return send_events(*given, **more)

    monkeypatch.setattr(spu_patch, "send_events", late)
    done = send(4, "spu-label", "4", "a-")
    assert done.returncode == 1
    assert "event e3 came in between and is undone by this one" in done.stderr
    # What was there is not what came in between.
    assert send(5, "spu-taint", "4", "k:evict").returncode == 0
    done = send(6, "spu-label", "4", "b=2")
    assert (done.returncode, done.stdout) == (0, "SPU 4: it is so already, nothing is sent\n")


@pytest.mark.smoke
def test_a_file_of_desired_topics_is_made_true_and_then_there_is_nothing_to_do(
    job: list[str], tmp_path: Path
) -> None:
    """Created, repeated, grown, of another factor, refused, and asked for again with room."""
    join(job, "gitops", 3)
    file, saved = tmp_path / "topics.yaml", tmp_path / "events.jsonl"

    def desire(*topics: tuple[str, int, int]) -> None:
        lines = (
            f"  - {{name: {name}, partitions: {count}, replication_factor: {factor}}}\n"
            for name, count, factor in topics
        )
        file.write_text(f"topics:\n{''.join(lines)}", "utf-8")

    def outcome(command: str, *more: str | Path) -> tuple[int, str, str]:
        of_file = ("--cluster", "gitops", "--desired", str(file))
        done = call(command, *of_file, *map(str, more), *job)
        return done.returncode, done.stdout, done.stderr

    desire(("gitops-a", 4, 2), ("gitops-b", 1, 1))
    status, said, _ = outcome("plan", "--out", saved)
    assert (status, "+ gitops-a  4 partitions, replication factor 2\n" in said) == (2, True)
    assert call("produce", "events", str(saved), WAIT, *job).returncode == 0
    status, said, _ = outcome("apply")
    assert (status, said.splitlines()[-1]) == (0, "nothing to do")

    desire(("gitops-a", 6, 3), ("gitops-c", 1, 4))
    status, said, _ = outcome("plan", "-o", "json")
    document = json.loads(said)
    assert (status, document["extra"]) == (1, ["gitops-b"])
    asked = ["topic_replication", "topic_grow"]  # new partitions of the new factor
    assert [event["type"] for event in document["events"]] == asked
    status, said, complaint = outcome("apply", WAIT)
    assert (status, "status  gitops/gitops-a  assigned" in said) == (1, True)
    assert complaint.startswith("apply: gitops-c: 1 partitions, replication factor 4: rejected ")
    added = ("--cluster", "gitops", "--spu-id", "3", WAIT)
    assert call("produce", "spu-joined", *added, *job).returncode == 0
    assert outcome("apply", WAIT)[0] == 0

    desire(("gitops-a", 5, 3))
    status, said, _ = outcome("plan")
    assert status == 1
    assert "! gitops-a  6 → 5 partitions: rejected as the cluster is now: " in said


LEAVE = ["produce", "spu-left", "--cluster", "c1", "--spu-id", "0", "--event-id", "e1"]


def complaint_of(done: subprocess.CompletedProcess[str], status: int) -> str:
    """The one line on standard error."""
    assert done.returncode == status, done
    [line] = done.stderr.splitlines()
    return line


@pytest.mark.smoke
def test_a_bad_line_is_reported_and_the_others_are_sent(topics: list[str]) -> None:
    """Nothing of a long file is lost for one line."""
    good = '{"type":"topic_delete","event_id":"%s","cluster_id":"c1","topic":"t"}\n'
    given = good % "e1" + "\nnothing\n" + good % "e2"
    done = call("produce", "events", "-", "-o", "json", *topics, given=given)
    assert [sent["event_id"] for sent in json_lines(done.stdout)] == ["e1", "e2"]
    complaint = complaint_of(done, 1)
    assert complaint.startswith("spu-assigner produce: line 3: no JSON at character 0")


@pytest.mark.smoke
def test_no_answer_in_time_is_status_3(topics: list[str]) -> None:
    """No job runs on these topics: this must differ from a refusal."""
    complaint = complaint_of(call(*LEAVE, "--wait=0.5", *topics), 3)
    assert "not answered within 0.5 s: e1; is the job running on these topics?" in complaint
    assert "The job answers what was sent also when it starts later." in complaint


def test_no_answer_behind_an_open_transaction_names_it(topics: list[str]) -> None:
    """Whether the job runs is another question."""
    servers, prefix = topics[1], topics[3]
    with open_transaction(servers, f"{prefix}spu-events"):
        complaint = complaint_of(call(*LEAVE, "--wait=0.5", *topics), 3)
    assert f"partition 0 of {prefix}spu-events: offsets 0 to 0 are held back" in complaint
    assert "kafka-transactions.sh" in complaint
    assert "is the job running" not in complaint


@pytest.mark.smoke
def test_an_event_too_large_is_not_sent(topics: list[str], tmp_path: Path) -> None:
    """1 MiB is the most that the job takes."""
    file = tmp_path / "assignment.json"
    lists = [{"id": n, "replicas": [2_000_000_000 + r for r in range(3)]} for n in range(60_000)]
    file.write_text(json.dumps(lists), encoding="utf-8")
    create = ["produce", "topic-create", "--cluster", "c1", "--topic", "t"]
    done = call(*create, "--replica-assignment", str(file), *topics)
    assert done.stdout == ""
    assert "at most 1048576 are taken" in complaint_of(done, 1)


@pytest.mark.smoke
def test_missing_topics_and_brokers_are_one_line(
    kafka: SharedBroker, topic_prefix: str, tmp_path: Path
) -> None:
    """The commonest mistakes deserve the clearest words; asking must not make the topics."""
    run = ["run", "--checkpoint", str(tmp_path / "checkpoint")]
    options = ["-b", kafka.bootstrap_servers, "--topic-prefix", topic_prefix]
    for command in (LEAVE, ["watch"], run):
        done = call(*command, *options)
        assert f"missing {topic_prefix}" in complaint_of(done, 1).replace(
            "missing topics", "missing"
        )
        assert "run `spu-assigner topics create`" in done.stderr
    for command in (LEAVE, ["watch"], ["topics", "check"], run):
        complaint = complaint_of(call(*command, "-b", "127.0.0.1:1"), 1)
        assert "no Kafka broker answers at 127.0.0.1:1" in complaint
    checked = call("topics", "check", "-o", "json", *options)
    assert checked.returncode == 1
    assert len(json.loads(checked.stdout)["faults"]) == 9


@pytest.mark.smoke
def test_watch_shows_one_clusters_answers_from_the_beginning(job: list[str]) -> None:
    """What was answered before it began is asked for."""
    join(job, "seen", 2)
    join(job, "unseen", 1)
    begin = ["watch", "--from-beginning", "--cluster", "seen", "--topics", "ring", "-o", "json"]
    done = call(*begin, "--count", "2", *job)
    assert [(line["cluster_id"], line["spu_id"]) for line in json_lines(done.stdout)] == [
        ("seen", 0),
        ("seen", 1),
    ]


@pytest.mark.smoke
def test_watch_shows_dead_letters_as_they_come_and_ends_at_ctrl_c(job: list[str]) -> None:
    """A neighbour's bad bytes are the first thing an operator looks for."""
    with running("watch", "--topics", "dead-letters", *job) as (process, lines):
        lines.until("watching")
        producer = Producer({"bootstrap.servers": job[1]})
        producer.produce("cli-job.topic-events", key=b"c1", value=b"\xff[bold]")
        producer.flush()
        seen = lines.until("dead    cli-job.topic-events")
        assert r"UNDECODABLE" in seen
        assert r"'\xff[bold]'" in seen
        os.killpg(process.pid, signal.SIGINT)
        assert process.wait(timeout=30) == 130


@pytest.mark.smoke
def test_the_embedded_broker_alone_serves_until_it_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For a job on this machine that outlives its own runs."""
    monkeypatch.chdir(tmp_path)
    with running("broker", "start", "--data", str(tmp_path / "data")) as (process, lines):
        address = lines.until("Kafka broker").split()[-1]
        lines.until(f"export KAFKA_BOOTSTRAP_SERVERS={address}")
        assert call("topics", "create", "-b", address).returncode == 0
        checked = call("topics", "check", "-b", address)
        assert checked.stdout == "All topics are as the job needs them.\n"
        os.killpg(process.pid, signal.SIGINT)
        assert process.wait(timeout=30) == 130
    assert (tmp_path / "data").is_dir()
    host, port = address.split(":")
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((host, int(port)), timeout=5)


@pytest.mark.long("a broker and a job start, and play all the documents' examples")
def test_the_demonstration_equals_the_documents(java: Java, tmp_path: Path) -> None:
    """The one command of the README: broker, job, scenario; every map as the documents say.
    Whatever the place of temporary files is: one that is too long for sockets does no harm."""
    temporary = tmp_path / ("long" * 30)
    temporary.mkdir()
    done = subprocess.run(
        [*COMMAND, "run", "--demo", "--once", "--ui-port", "0"],
        env={**ENVIRON, "TMPDIR": str(temporary)},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
        cwd=tmp_path,
    )
    assert done.stderr == ""
    assert done.returncode == 0, done.stdout
    last = done.stdout.splitlines()[-1]
    assert last.startswith("All 93 replica lists and 41 rings and answers are equal")
    assert "differs" not in done.stdout.lower()
    assert list(temporary.iterdir()) == []  # Nothing is left behind.


@pytest.mark.long("two whole runs, each with a broker and a job")
def test_the_job_with_its_own_broker_goes_on_after_it_was_terminated(
    java: Java, tmp_path: Path
) -> None:
    """Broker and checkpoint lie together; a signal to the whole group ends the JVMs as well."""
    options = ["run", "--data", str(tmp_path / "data"), "--ui-port", "0"]
    for attempt, (number, status) in enumerate(((signal.SIGTERM, 143), (signal.SIGINT, 130))):
        with running(*options) as (process, lines):
            address = lines.until("Kafka broker at").split()[-1]
            lines.until("Ctrl-C ends it")
            if attempt == 0:
                join(["-b", address], "kept", 1)
            else:
                create = ["produce", "topic-create", "--cluster", "kept", "--topic", "t"]
                done = call(*create, WAIT, "-b", address)
                assert done.returncode == 0
                assert "status  kept/t  assigned" in done.stdout
            os.killpg(process.pid, number)
            assert process.wait(timeout=60) == status
            # Lines of progress come after ten seconds, which a busy machine may take.
            assert [line for line in lines.rest() if not line.startswith("batch ")] == []
