"""`follow` beside three real brokers: what it sends, and that two of it send it once."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner
from confluent_kafka.admin import AdminClient
from spu_assigner.core.assigner import Assigner
from spu_assigner.core.base.events import SpuJoined, SpuLeft
from spu_assigner.schemas.messages.codec import decode_event, encode_event
from spu_assigner.stream.cli import cli
from spu_assigner.stream.client.announced import LABEL
from spu_assigner.stream.kafka.acls import Role
from spu_assigner.stream.kafka.config.connection import Connection
from spu_assigner.stream.kafka.fenced_producer import FencedProducer, OvertakenError
from spu_assigner.stream.kafka.topic_admin import create_topics
from support.events.builders import Events
from support.job.kafka_operator import FollowerProcess
from support.kafka.kafka_cluster import KafkaCluster
from support.kafka.reading import committed, settled

GRACE_SECONDS = 10.0  # the leader may lose the election for a while with the broker that stops
RESTART_GRACE = "600"  # longer than any machine takes to restart a broker


class Followed:
    """The topics that events go to, on the watched cluster itself."""

    def __init__(self, cluster: KafkaCluster, prefix: str) -> None:
        self.connection = Connection(bootstrap_servers=cluster.bootstrap_servers, prefix=prefix)
        self.started: list[FollowerProcess] = []
        create_topics(self.connection.client(), prefix=prefix, replication_factor=3)

    def start(self, *options: str) -> FollowerProcess:
        follower = FollowerProcess(*options, environ=self.environ)
        self.started.append(follower)
        return follower

    def once(self, *options: str) -> tuple[int, str, str]:
        asked = ["follow", "--cluster", "c1", "--once", "--interval", "0.2", *options]
        done = CliRunner().invoke(cli, asked, env=self.environ)
        return done.exit_code, done.stdout, done.stderr

    @property
    def environ(self) -> dict[str, str]:
        return {
            "KAFKA_BOOTSTRAP_SERVERS": self.connection.bootstrap_servers,
            "SPU_ASSIGNER_TOPIC_PREFIX": self.connection.prefix,
        }

    def events(self) -> list[SpuJoined | SpuLeft]:
        """What is in the input."""
        servers, name = self.connection.bootstrap_servers, f"{self.connection.prefix}spu-events"
        found = [decode_event(each.value(), kind="spu") for each in committed(servers, name)]
        return [each for each in found if isinstance(each, SpuJoined | SpuLeft)]

    def announced(self) -> list[tuple[str, int]]:
        return [(type(event).__name__, event.spu_id) for event in self.events()]

    def waits_for(self, expected: list[tuple[str, int]]) -> None:
        """Once there is so much it is just that, also with what is still being committed."""
        if self.started:
            self.started[0].waits(lambda: len(self.announced()) >= len(expected))
        settled(self.connection.bootstrap_servers, [f"{self.connection.prefix}spu-events"])
        assert self.announced() == expected


JOINED = [("SpuJoined", 1), ("SpuJoined", 2), ("SpuJoined", 3)]


@pytest.fixture
def followed(kafka_cluster: KafkaCluster, topic_prefix: str) -> Iterator[Followed]:
    found = Followed(kafka_cluster, topic_prefix)
    yield found
    for follower in found.started:
        follower.end(signal.SIGKILL)


@pytest.mark.long("a broker of three stops and starts")
def test_a_broker_that_stops_leaves_and_joins_again_and_the_ring_follows(
    kafka_cluster: KafkaCluster, followed: Followed
) -> None:
    """The whole life of a broker, by one process that is then ended."""
    follower = followed.start("--grace", f"{GRACE_SECONDS}", "--capacity", "50")
    followed.waits_for(JOINED)
    joins = [event for event in followed.events() if isinstance(event, SpuJoined)]
    assert [(join.rack, join.capacity) for join in joins] == [("a", 50), ("b", 50), ("c", 50)]
    with AdminClient(kafka_cluster.client) as admin:
        kafka_id = admin.describe_cluster().result(timeout=10).cluster_id
    assert [join.labels for join in joins] == [{LABEL: kafka_id}] * 3
    with kafka_cluster.stopped(3):
        followed.waits_for([*JOINED, ("SpuLeft", 3)])
        missed = follower.says(r"misses broker 3; to leave in (\d+) s unless seen again")
        assert 0 < int(missed[1]) <= GRACE_SECONDS
        assert ring(followed) == [1, 2]
    followed.waits_for([*JOINED, ("SpuLeft", 3), ("SpuJoined", 3)])
    assert ring(followed) == [1, 2, 3]
    assert follower.end(signal.SIGTERM) == 143
    assert not any("Traceback" in line for line in follower.lines)
    lines = [line for line in follower.lines if not line.startswith("follow: ")]
    assert lines[0] == "joined  SPU 1: rack a, 1 core, 50 slots"
    assert lines[3].startswith("left    SPU 3: missing for ")


def ring(followed: Followed) -> list[int]:
    assigner = Assigner()
    for event in followed.events():
        assigner.apply(event)
    return sorted(assigner.clusters["c1"].ring.ids.tolist())


@pytest.mark.long("a broker of three restarts between two followers")
def test_of_two_one_leads_and_the_other_goes_on_and_a_restart_of_a_broker_is_nothing(
    kafka_cluster: KafkaCluster, followed: Followed
) -> None:
    """The leader is killed: neither the other nor the one after it announces anything twice."""
    first = followed.start("--grace", RESTART_GRACE)
    followed.waits_for(JOINED)
    second = followed.start("--grace", RESTART_GRACE)
    second.says("stands by: another follower leads")
    status, out, err = followed.once()
    assert (status, out) == (0, "")
    assert err.endswith("follow: stands by: another follower leads\n")
    with kafka_cluster.stopped(2):
        first.says("misses broker 2")
        first.end(signal.SIGKILL)
    second.says("leads; 3 SPUs joined by this command, 0 by others")
    third = followed.start("--grace", RESTART_GRACE)
    third.says("stands by")
    assert second.end(signal.SIGINT) == 130
    third.says("leads; 3 SPUs joined by this command")
    followed.waits_for(JOINED)


def test_the_file_of_labels_is_announced_and_leaves_what_others_say(
    followed: Followed, tmp_path: Path
) -> None:
    """By a process that runs on: labels by hand, other files, and one that is none."""
    file = tmp_path / "labels.yaml"

    def write(text: str) -> None:  # at once: half a file would be a fault of its own
        (tmp_path / "new").write_text(text, "utf-8")
        (tmp_path / "new").replace(file)

    write("2: {labels: {tier: ssd}}\n")
    follower = followed.start("--labels", str(file))
    followed.waits_for(JOINED)

    def by_hand(command: str, *words: str) -> str:
        asked = ["produce", command, "--cluster", "c1", *words]
        done = CliRunner().invoke(cli, asked, env=followed.environ)
        assert done.exit_code == 0, done.output
        return done.output.partition("\n")[0]

    assert labels_of(followed, 2) == {"tier": "ssd"}
    assert by_hand("spu-label", "2", "zone=a") == "SPU 2: + zone=a"
    assert by_hand("spu-taint", "3", "k:no_leaders") == "SPU 3: + k:no_leaders"
    by_two = [*JOINED, ("SpuJoined", 2), ("SpuJoined", 3)]
    write("2: {labels: {tier: 3}}\n")
    follower.says("labels.tier is 3; expected a text; what was read before stays in force")
    followed.waits_for(by_two)
    taint = "{key: k, value: v, effect: no_leaders}"
    write(f"2: {{labels: {{tier: hdd}}}}\n3: {{taints: [{taint}]}}\n")
    followed.waits_for([*by_two, ("SpuJoined", 2), ("SpuJoined", 3)])
    assert labels_of(followed, 2) == {"tier": "hdd", "zone": "a"}
    assert by_hand("spu-taint", "3", "k=v:no_leaders").endswith("nothing is sent")
    # What the file names comes back at the next look, and nothing else does.
    assert by_hand("spu-label", "2", "tier-", "zone-") == "SPU 2: - tier=hdd, - zone=a"
    of_file = [("SpuJoined", 2)] * 2
    followed.waits_for([*by_two, ("SpuJoined", 2), ("SpuJoined", 3), *of_file])
    assert labels_of(followed, 2) == {"tier": "hdd"}
    assert follower.end(signal.SIGTERM) == 143
    assert sum("stays in force" in line for line in follower.lines) == 1
    assert any(line.endswith(" slots, tier=hdd, zone=a") for line in follower.lines)
    followed.started.clear()
    assert followed.once("--labels", str(file))[:2] == (0, "")


def labels_of(followed: Followed, spu_id: int) -> dict[str, str]:
    """What was announced last, but for the label of `follow` itself, which every join has."""
    joins = [each for each in followed.events() if isinstance(each, SpuJoined)]
    labels = dict([each for each in joins if each.spu_id == spu_id][-1].labels or {})
    assert labels.pop(LABEL)
    return labels


def test_a_leader_of_before_is_shut_out(followed: Followed) -> None:
    """One that was stopped for a while still believes that it leads; nothing of it is seen."""
    events = Events()

    def send(producer: FencedProducer, *spu_ids: int) -> None:
        joins = [("c1", encode_event(events.join(spu_id))) for spu_id in spu_ids]
        producer.send("spu-events", joins)

    older = FencedProducer(followed.connection, "leader", Role.FOLLOWER)
    send(older, 1)
    newer = FencedProducer(followed.connection, "leader", Role.FOLLOWER)
    with pytest.raises(OvertakenError):
        send(older, 2, 3)
    send(newer, 4)
    newer.close()
    older.close()
    followed.waits_for([("SpuJoined", 1), ("SpuJoined", 4)])


@pytest.mark.smoke
def test_once_waits_for_nobody_who_is_there_and_a_dry_run_sends_nothing(followed: Followed) -> None:
    """For cron, and to look first. The lines of JSON are what `simulate` reads."""
    status, out, err = followed.once("--dry-run", "-o", "json")
    assert status == 0
    followed.waits_for([])
    assert [json.loads(line)["spu_id"] for line in out.splitlines()] == [1, 2, 3]
    assert "dry run, nothing is sent" in err
    for expected in (3, 0):
        status, out, err = followed.once("--capacity", "5")
        assert (status, len(out.splitlines())) == (0, expected), err
    followed.waits_for(JOINED)
