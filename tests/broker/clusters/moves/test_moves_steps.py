"""`apply --moves` step by step, as Kafka's own tool sees it; and a quorum that loses its leader."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient
from spu_assigner.schemas.messages.wire import MovedPartition
from spu_assigner.stream.clusters.moves import session
from spu_assigner.stream.clusters.moves.throttle import FOLLOWERS, LEADERS
from spu_assigner.stream.clusters.moves.waves import adding, removing
from spu_assigner.stream.job.failpoints import Failpoint
from support.job.kafka_operator import Operator
from support.kafka.kafka_cluster import KafkaCluster
from support.kafka.moving import Mover
from support.placers.kafka_reassign import run_tool

BEFORE = [[1, 2], [2, 1], [1, 2], [2, 1]]
AFTER = [[3, 2], [2, 3], [2, 1], [3, 1]]  # two moves, a new order, a move of both
SLOW = ("--throttle", "1kB/s")  # a wave does not end by itself
VALUES = 12  # of 256 KiB in each partition: more than is fetched at once
LISTED = re.compile(
    r"^(?P<place>\S+-\d+): replicas: [\d,]+\.(?: adding: (?P<adding>[\d,]+)\.)?"
    r"(?: removing: (?P<removing>[\d,]+)\.)?$",
    re.MULTILINE,
)


def let_go(mover: Mover) -> None:
    """Take the topic out of the throttle: what is under way ends at once."""
    topic = mover.operator.name("orders")
    with mover.kafka() as kafka:
        assert kafka.change({(topic, LEADERS): None, (topic, FOLLOWERS): None}) == {}


@dataclass(kw_only=True)
class Comparing:
    """Stands where a run may be killed, and compares its record with what Kafka's tool prints."""

    mover: Mover
    file: Path
    waves: list[list[MovedPartition]] = field(default_factory=list)

    def reach(self, failpoint: Failpoint, _wave: int) -> None:
        if failpoint is Failpoint.WAVE_RECORDED:
            record = self.mover.record()
            assert record is not None
            self.waves.append(list(record.moves))
        elif failpoint is Failpoint.WAVE_STARTED:
            # What copies nothing is done at once.
            copied = {name(each): each for each in self.waves[-1] if adding(each)}
            assert self.listed() == {
                place: (set(adding(each)), set(removing(each))) for place, each in copied.items()
            }
            assert self.verified().count("still in progress") == len(copied)
            if copied:
                let_go(self.mover)
        elif failpoint is Failpoint.WAVE_ENDED:
            assert self.listed() == {}
            assert self.verified().count("is completed") == len(self.waves[-1])

    def listed(self) -> Mapping[str, tuple[set[int], set[int]]]:
        """What the tool says is under way: added and removed brokers."""
        output = run_tool(self.mover.operator.cluster.bootstrap_servers, "--list")
        return {
            each["place"]: (ids(each["adding"]), ids(each["removing"]))
            for each in LISTED.finditer(output)
        }

    def verified(self) -> str:
        """What the tool says of the wave; it would remove the throttle."""
        lists = [
            {"topic": each.topic, "partition": each.partition, "replicas": list(each.after)}
            for each in self.waves[-1]
        ]
        self.file.write_text(json.dumps({"version": 1, "partitions": lists}), "utf-8")
        asked = ("--verify", "--preserve-throttles", "--reassignment-json-file", self.file)
        return run_tool(self.mover.operator.cluster.bootstrap_servers, *asked)


def name(move: MovedPartition) -> str:
    return f"{move.topic}-{move.partition}"


def ids(text: str | None) -> set[int]:
    return {int(each) for each in (text or "").split(",") if each}


@pytest.mark.long("Kafka's tool is started four times in each wave")
def test_at_each_step_of_a_wave_kafkas_tool_sees_what_the_record_says(
    mover: Mover, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At its start exactly the wave is under way, at its end nothing, and all of it is done."""
    operator = mover.operator
    operator.make("orders", BEFORE)
    mover.fill("orders", partitions=4, values=VALUES)
    mover.map({"orders": AFTER})
    steps = Comparing(mover=mover, file=tmp_path / "wave.json")
    monkeypatch.setattr(session, "armed", lambda *_: steps)
    status, lines, errors = mover.move(*SLOW, "--concurrency", "2")
    assert status == 0, errors
    operator.until("orders", AFTER)
    assert [len(wave) for wave in steps.waves] == [1, 2, 1], lines
    moved = {name(each): list(each.after) for wave in steps.waves for each in wave}
    topic = operator.name("orders")
    assert moved == {f"{topic}-{number}": row for number, row in enumerate(AFTER)}
    assert mover.throttles("orders") == {}


@pytest.mark.long("a cluster of its own, with three controllers")
def test_a_change_of_controller_in_a_wave_loses_nothing(topic_prefix: str, tmp_path: Path) -> None:
    """The one that leads the quorum is killed; what it had begun goes on under the next one."""
    with KafkaCluster(controllers=3) as cluster, AdminClient(cluster.client) as admin:
        operator = Operator(cluster, topic_prefix, admin)
        mover = Mover(operator, tmp_path)
        operator.make("orders", BEFORE)
        mover.fill("orders", partitions=4, values=VALUES)
        before = mover.checksums("orders", 4)
        mover.map({"orders": AFTER})
        first = cluster.active_controller()
        with (
            mover.running(*SLOW, "--concurrency", "9") as process,
            cluster.active_controller_killed() as second,
        ):
            assert second != first
            with mover.kafka() as kafka:
                assert len(kafka.ongoing()) > 0  # The wave is still under way.
            let_go(mover)
            _, output = process.communicate(timeout=240)
            assert process.returncode == 0, output
            operator.until("orders", AFTER)
            assert mover.throttles("orders") == {}
            assert mover.checksums("orders", 4) == before
            record = mover.record()
        assert record is not None
        assert (record.moves, record.throttles, record.failures) == ((), (), ())
        assert mover.leaders("orders") == [row[0] for row in AFTER]
