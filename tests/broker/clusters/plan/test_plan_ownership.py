"""Whose a topic is: what `plan` and `apply` delete, change and create again on real brokers."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec
from spu_assigner.stream.cli import cli
from spu_assigner.stream.clusters.plan.apply import CHANGES_MAX
from spu_assigner.stream.kafka.topic_admin import check_topics
from support.job.kafka_operator import Operator, simulated
from support.job.small_job import SmallJob

COMMAND = (sys.executable, "-m", "spu_assigner.stream.cli")
SECONDS_MAX = 300


@pytest.fixture
def job(operator: Operator) -> Iterator[SmallJob]:
    with operator.job() as job:
        yield job


def origins(operator: Operator) -> dict[str, str]:
    return {topic: record.origin.name for topic, record in operator.recorded().items()}


def records(operator: Operator, topic: str) -> int:
    """How many records its partitions hold, as Kafka counts them."""
    count = len(operator.lists(topic)[topic])
    places = [TopicPartition(operator.name(topic), number) for number in range(count)]
    with AdminClient(operator.cluster.client) as admin:
        ends = admin.list_offsets(dict.fromkeys(places, OffsetSpec.latest()))
        return sum(future.result(20).offset for future in ends.values())


def test_a_topic_that_was_imported_and_withdrawn_keeps_its_data(
    operator: Operator, job: SmallJob
) -> None:
    """Its request goes, and nothing in Kafka: whoever made it has not asked for that."""
    operator.make("legacy", [[1, 2], [2, 3]])
    job.apply([operator.events.manual(operator.name("legacy"), [1, 2], [2, 3])])
    operator.write("legacy", b"one", b"two")
    planned = operator.plan()
    assert planned.exit_code == 0
    assert f"! {operator.name('legacy')}  exists in Kafka and was not made by ap" in planned.stdout
    assert origins(operator) == {"legacy": "SEEN"}
    found = operator.apply()
    assert (found.exit_code, found.stderr) == (0, "")
    assert f"found    {operator.name('legacy')}  as mapped" in found.stdout
    assert origins(operator) == {"legacy": "FOUND"}
    assert operator.plan("--topics", operator.name("*")).stdout.splitlines() == [
        "= 1 topic as mapped",
        "nothing to do: 0 to create, 0 to change, 0 to delete",
    ]
    job.apply([operator.events.delete(operator.name("legacy"))])
    planned = operator.plan("--delete")
    assert planned.exit_code == 0
    assert planned.stdout.splitlines()[0] == (
        f". {operator.name('legacy')}  is mapped no more; apply did not make it, so it stays"
    )
    for options in ((), ("--delete", "--yes"), ("--delete", "--yes", "--foreign", "*")):
        assert operator.apply(*options).exit_code == 0
    assert records(operator, "legacy") == 2


@pytest.mark.smoke
def test_what_apply_made_is_deleted_with_its_data_shown_and_confirmed(
    operator: Operator, job: SmallJob
) -> None:
    """Records and bytes; without a terminal and without --yes nothing at all is done."""
    name = operator.name("mine")
    job.apply([operator.events.create(name, 2, 2)])
    assert operator.apply().exit_code == 0
    assert origins(operator) == {"mine": "CREATED"}
    operator.write("mine", *[bytes(1_000)] * 7, partition=1)
    job.apply([operator.events.delete(name), operator.events.create(operator.name("other"), 1, 1)])
    planned = operator.plan("--delete", "-o", "json")
    assert planned.exit_code == 2
    (change,) = (each for each in json.loads(planned.stdout)["changes"] if each["topic"] == name)
    assert (change["kind"], change["records"]) == ("delete", 7)
    assert change["size_bytes"] > 7_000
    assert f"- {name}  2 partitions, 7 records, 7." in operator.plan("--delete").stdout
    refused = operator.apply("--delete")
    assert (refused.exit_code, refused.stdout) == (1, "")
    assert f"- {name}  2 partitions, 7 records, 7." in refused.stderr
    assert "1 topic with 7 records would be deleted, and there is no terminal" in refused.stderr
    assert "nothing was done. Give --yes" in refused.stderr
    assert list(operator.lists("mine", "other")) == ["mine"]
    declined = on_terminal(operator, "n\n", "--delete")
    assert (declined[0], list(operator.lists("mine", "other"))) == (1, ["mine"])
    assert "Delete 1 topic with 7 records? [y/N]" in declined[1]
    wanted = on_terminal(operator, "y\n", "--delete")
    assert (wanted[0], list(operator.lists("mine", "other"))) == (0, ["other"])
    assert f"deleted  {name}  7 records, 7." in wanted[1]
    assert origins(operator) == {"other": "CREATED"}


def on_terminal(operator: Operator, answer: str, *options: str) -> tuple[int, str]:
    """`apply` as a person calls it; all that the terminal shows."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("click.testing._NamedTextIOWrapper.isatty", lambda _: True, raising=False)
        asked = ["apply", "--cluster", "c1", *options]
        done = CliRunner().invoke(cli, asked, env=operator.environ, input=answer)
    operator.settle()
    return done.exit_code, done.output


def test_a_topic_that_is_gone_is_created_again_only_on_request(
    operator: Operator, job: SmallJob, tmp_path: Path
) -> None:
    """It came back empty, without a word; so did one of a saved plan that had been applied."""
    file, again, name = tmp_path / "plan.json", tmp_path / "again.json", operator.name("gone")
    job.apply([operator.events.create(operator.name(each), 1, 1) for each in ("gone", "kept")])
    assert operator.plan("--out", file).exit_code == 2
    assert operator("apply", file).exit_code == 0
    operator.write("gone", b"one")
    operator.remove("gone")
    stale = operator("apply", file)
    assert (stale.exit_code, stale.stdout) == (1, "")
    assert f"topic {name} needs something else now; nothing was done" in stale.stderr
    planned = operator.plan()
    assert planned.exit_code == 1
    assert f"! {name}  was in Kafka before; its data are gone: give --recreate" in planned.stdout
    assert operator.apply().exit_code == 1
    assert list(operator.lists("gone", "kept")) == ["kept"]
    planned = operator.plan("--recreate", "--out", again)
    assert planned.exit_code == 2
    assert f"+ {name}  1 partition of 1 replica, again: its data are gone" in planned.stdout
    done = operator("apply", again, "-o", "json")
    assert (done.exit_code, json.loads(done.stdout)["created"]) == (0, [name])
    operator.remove("gone")
    assert operator("apply", again).exit_code == 1  # What was asked for was done, once.
    assert list(operator.lists("gone", "kept")) == ["kept"]
    job.apply([operator.events.delete(name)])
    assert operator.apply().exit_code == 0
    assert origins(operator) == {"kept": "CREATED"}


# Runs that break off, and runs at the same time.

DYING = """
import os, signal, sys
from spu_assigner.schemas.messages.wire import Origin
from spu_assigner.stream.clusters.plan.applied_store import AppliedLedger
from spu_assigner.stream.cli import main
from spu_assigner.stream.clusters.plan.target_cluster import Target

def die():
    os.kill(os.getpid(), signal.SIGKILL)

{what}
sys.argv = ["spu-assigner", *sys.argv[1:]]
main()
"""
AFTER_TWO_BATCHES = """
send, sent = Target.send, []
def counting(self, changes):
    len(sent) == 2 and die()
    sent.append(changes)
    return send(self, changes)
Target.send = counting
"""
BEFORE_THE_RECORD = """
record = AppliedLedger.record
def recording(self, records):
    any(each.origin is Origin.CREATED for each in records) and die()
    record(self, records)
AppliedLedger.record = recording
"""


def killed(operator: Operator, what: str, *options: object) -> list[str]:
    """The lines of an `apply` that kills itself there."""
    process = subprocess.run(
        [sys.executable, "-c", DYING.format(what=what), "apply", "--cluster", "c1"]
        + [str(option) for option in options],
        capture_output=True,
        text=True,
        check=False,
        timeout=SECONDS_MAX,
        env={**os.environ, **operator.environ},
    )
    assert process.returncode == -signal.SIGKILL, process.stderr
    return process.stdout.splitlines()


def test_what_was_made_is_printed_and_recorded_though_apply_is_killed(
    operator: Operator, tmp_path: Path
) -> None:
    """A hundred topics were made, and no line printed. Who reads the lines knows what is there."""
    file, events = tmp_path / "maps.jsonl", operator.events
    names = [f"t{number:03}" for number in range(3 * CHANGES_MAX)]
    asked = [*events.joins(1, 2, 3)]
    asked += [events.create(operator.name(name), 1, 1) for name in names]
    simulated(file, asked)
    lines = killed(operator, AFTER_TWO_BATCHES, "--maps", file)
    made = names[: 2 * CHANGES_MAX]
    assert lines == [f"created  {operator.name(name)}  1 partition" for name in made]
    operator.wait(names, lambda found: list(found) == made)
    assert origins(operator) == dict.fromkeys(made, "CREATED")
    rest = operator.apply("--maps", file)
    assert rest.stdout.splitlines()[-1] == "50 created, 0 grown, 0 deleted; 100 as mapped before"
    simulated(file, [*asked, *(events.delete(operator.name(name)) for name in names)])
    assert operator.apply("--maps", file, "--delete", "--yes").exit_code == 0
    operator.wait(names, lambda found: found == {})
    assert origins(operator) == {}


def test_a_creation_that_could_not_be_recorded_is_resolved_by_the_next_run(
    operator: Operator, job: SmallJob
) -> None:
    """Kafka had made it. It is ours while nothing was written to it."""
    name = operator.name("t")
    job.apply([operator.events.create(name, 2, 1)])
    assert killed(operator, BEFORE_THE_RECORD) == []
    operator.until("t", job.states()["c1"].topics[name].replicas.lists().tolist())
    assert origins(operator) == {}
    assert operator.apply().exit_code == 0
    assert origins(operator) == {"t": "CREATED"}


def test_several_may_apply_at_once_and_all_know_whose_the_topics_are(
    operator: Operator, tmp_path: Path
) -> None:
    """Each topic is made once, recorded as made, and deleted with its record."""
    file, events = tmp_path / "maps.jsonl", operator.events
    names = [f"t{number:03}" for number in range(2 * CHANGES_MAX + 1)]
    asked = [*events.joins(1, 2, 3)]
    asked += [events.create(operator.name(name), 1, 1) for name in names]
    simulated(file, asked)
    assert at_once(operator, "--maps", file) == [0, 0, 0]
    assert origins(operator) == dict.fromkeys(names, "CREATED")
    simulated(file, [*asked, *(events.delete(operator.name(name)) for name in names)])
    assert at_once(operator, "--maps", file, "--delete", "--yes") == [0, 0, 0]
    assert operator.lists(*names) == {}
    assert origins(operator) == {}


def at_once(operator: Operator, *options: object) -> list[int]:
    """The statuses of three processes."""
    command = [*COMMAND, "apply", "--cluster", "c1", *map(str, options)]
    environ = {**os.environ, **operator.environ}
    processes = [
        subprocess.Popen(command, stdout=subprocess.DEVNULL, env=environ) for _ in range(3)
    ]
    statuses = [process.wait(SECONDS_MAX) for process in processes]
    operator.settle()
    return statuses


def test_the_first_apply_makes_the_topic_of_its_records(operator: Operator, job: SmallJob) -> None:
    """Also after a loss of it. A damaged record is an error: else none would seem to be there."""
    name, topic = operator.name("t"), operator.name("applied-topics")
    operator.remove("applied-topics")
    job.apply([operator.events.create(name, 1, 1)])
    assert operator.plan().exit_code == 2
    assert operator.lists("applied-topics") == {}
    assert operator.apply().exit_code == 0
    assert origins(operator) == {"t": "CREATED"}
    check_topics(operator.cluster.client, prefix=operator.prefix)
    producer = Producer({**operator.cluster.client, "acks": "all"})
    producer.produce(topic, b"no record", f"c1/{name}")
    assert producer.flush(60) == 0
    for done in (operator.plan(), operator.apply()):
        assert (done.exit_code, done.stdout) == (1, "")
        assert "only `spu-assigner apply` may write there" in done.stderr
