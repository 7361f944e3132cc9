"""`drain` on three real brokers: one holds nothing in the end, Kafka's own topics included."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from confluent_kafka.admin import AdminClient
from spu_assigner.core.base.events import LeaveMode
from spu_assigner.stream.cli import cli
from spu_assigner.stream.clusters.drain import preview
from spu_assigner.stream.clusters.drain.staying import NO_MAP
from spu_assigner.stream.clusters.follow.report import OFF_BROKER
from spu_assigner.stream.kafka.config.settings import Settings
from spu_assigner.stream.kafka.topic_admin import create_topics
from support.events.builders import Events
from support.job.kafka_operator import Operator
from support.job.small_job import SmallJob, small_job
from support.kafka.kafka_cluster import TWO_REPLICAS as TWO
from support.kafka.kafka_cluster import KafkaCluster
from support.kafka.moving import Mover, use_a_group
from support.kafka.shared_broker import SharedBroker

LEAVES = 3
GONE = (41, 42, 43)  # ids of SPUs that are no brokers


@pytest.fixture
def operator(topic_prefix: str) -> Iterator[Operator]:
    """Brokers of the test's own: what it is about is what is left on one of them."""
    with KafkaCluster(settings=TWO) as cluster, AdminClient(cluster.client) as admin:
        yield Operator(cluster, topic_prefix, admin)


def held(mover: Mover) -> dict[str, int]:
    """How many replicas of each topic are on the broker, as Kafka shows it."""
    with mover.kafka() as kafka:
        found: dict[str, int] = {}
        for (topic, _), shape in kafka.shapes().items():
            if LEAVES in shape.replicas:
                found[topic] = found.get(topic, 0) + 1
        return found


@pytest.mark.long("a cluster of its own, and a broker that is emptied")
def test_a_broker_is_emptied_with_kafkas_own_topics_and_the_products(
    operator: Operator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a person has to do in eight steps; a topic of others is touched only where it is named.
    It is reported before the decommission, after which it cannot be adopted."""
    mover = Mover(operator, tmp_path)
    orders = operator.name("orders")
    with operator.job() as job:
        job.apply([operator.events.create(orders, 6, 2)])
        assert operator.apply().exit_code == 0
        mover.fill("orders", partitions=6, values=4)
        use_a_group(operator, "orders")
        operator.make("foreign", [[3, 1], [1, 2]])
        before = mover.checksums("orders", 6)
        on_it = held(mover)
        assert {"__consumer_offsets", "__transaction_state", orders} < on_it.keys()
        assert any(topic == operator.name("replica-map") for topic in on_it)

        unknown = operator("drain", 9, "--cluster", "c1")
        assert (unknown.exit_code, unknown.stdout) == (1, "")
        assert "broker 9 is no SPU of cluster 'c1'" in unknown.stderr
        foreign = operator.name("foreign")
        refused = operator("drain", LEAVES, "--cluster", "c1")
        assert (refused.exit_code, refused.stdout) == (1, "")
        assert refused.stderr.startswith(
            f"spu-assigner: 1 topic on broker 3 has no map ({foreign}); adopt what is to have one "
        )
        assert refused.stderr.endswith("; the SPU was not decommissioned\n")
        shown = operator("drain", LEAVES, "--cluster", "c1", "--dry-run", "--throttle", "1MB/s")
        assert (shown.exit_code, shown.stderr) == (1, ""), shown.output
        moves, time, *table, stays = shown.stdout.splitlines()
        assert moves.startswith(f"moves    {sum(on_it.values()) - 1} partitions of ")
        assert time.startswith("time     ")
        assert stays == f"stays    {foreign}: 1 replica stays on the broker: {NO_MAP}"
        (leaves,) = [line.split() for line in table if line.split()[:1] == [str(LEAVES)]]
        assert leaves[1:4] == [str(sum(on_it.values())), "→", "1"]
        monkeypatch.setattr(preview, "is_terminal", lambda: True)
        unconfirmed = operator("drain", LEAVES, "--cluster", "c1", "--foreign", foreign)
        assert unconfirmed.exit_code == 130
        assert "Go on? [y/N]:" in unconfirmed.stdout
        assert "leaves" not in unconfirmed.stdout
        monkeypatch.undo()
        assert held(mover) == on_it
        early = operator("drain", LEAVES, "--cluster", "c1", "--wait", "0", "--force")
        assert early.exit_code == 1
        assert early.stdout == "leaves   SPU 3 of cluster c1 is decommissioned\n"
        assert f"1 topic still has SPU 3 in the map ({orders}); check" in early.stderr
        assert held(mover) == on_it

        job.apply([operator.events.leave(LEAVES, mode="decommission")])
        partly = operator("drain", LEAVES, "--cluster", "c1", "--throttle", "100MB/s")
        assert partly.exit_code == 1, partly.stdout
        stays = f"{foreign}: 1 replica stays on the broker: {NO_MAP}"
        assert partly.stderr == f"stays    {stays}\ndrain: {stays}\n"
        assert held(mover) == {foreign: 1}
        with job.answering():
            adopted = operator("adopt", "--cluster", "c1", "--topics", foreign)
        assert adopted.exit_code == 1
        assert adopted.stdout.splitlines()[0] == (
            f"! {foreign}  partition 0 names SPU 3, which is not in cluster 'c1' "
            f"(MANUAL_UNKNOWN_SPU); {OFF_BROKER} --foreign {foreign}`)"
        )
        done = operator("drain", LEAVES, "--cluster", "c1", "--foreign", foreign)
        assert (done.exit_code, done.stderr) == (0, ""), done.stdout
        assert done.stdout.splitlines()[-1] == (
            "empty    broker 3 holds nothing; it may be switched off"
        )
    assert held(mover) == {}
    assert mover.throttles("orders") == {}
    with mover.kafka() as kafka:
        assert kafka.sizes([LEAVES]) == {}
        assert all(shape.leader == shape.replicas[0] for shape in kafka.shapes().values())
    operator.cluster.stop(LEAVES)
    assert mover.checksums("orders", 6) == before
    use_a_group(operator, "orders")


@pytest.fixture
def job(kafka: SharedBroker, topic_prefix: str) -> Iterator[SmallJob]:
    """Of SPUs that are no brokers: what it is about is what the job is asked for."""
    create_topics({"bootstrap.servers": kafka.bootstrap_servers}, prefix=topic_prefix)
    flags = {"bootstrap_servers": kafka.bootstrap_servers, "topic_prefix": topic_prefix}
    events = Events()
    with small_job(Settings.load(flags=flags, environ={})) as job:
        job.apply([events.join(spu_id) for spu_id in GONE])
        job.apply([events.create("t", 6, 2)])
        yield job


def test_an_spu_that_is_offline_is_decommissioned_and_once(
    kafka: SharedBroker, topic_prefix: str, job: SmallJob
) -> None:
    """A leave for a while keeps the SPU in the maps, which would be waited for in vain."""
    gone = GONE[0]

    def drain(wait: int) -> Result:
        where = ("-b", kafka.bootstrap_servers, "--topic-prefix", topic_prefix)
        asked = ["drain", str(gone), "--cluster", "c1", "--wait", str(wait), *where]
        return CliRunner().invoke(cli, asked)

    job.apply([Events().leave(gone, mode=LeaveMode.OFFLINE, event_id="hand/1")])
    with job.answering():
        done = drain(60)
    assert (done.exit_code, done.stderr) == (0, "")
    leaves, *_, empty = done.stdout.splitlines()
    assert leaves == f"leaves   SPU {gone} of cluster c1 is decommissioned"
    assert empty == (
        f"empty    broker {gone} is in no list in Kafka; it is not alive, and was not asked what "
        "it holds"
    )
    lists = job.states()["c1"].topics["t"].replicas.lists().tolist()
    assert {spu_id for row in lists for spu_id in row} == set(GONE) - {gone}
    again = drain(0)
    assert (again.exit_code, again.stderr) == (0, "")
    assert again.stdout.splitlines()[0] == (
        f"leaves   SPU {gone} of cluster c1 was decommissioned before"
    )
