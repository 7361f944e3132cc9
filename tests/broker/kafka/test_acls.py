"""With Kafka's authorizer on: exactly the rights of the table are enough, and each is needed.

For each right there is a user who has all of its role's but this one, and of a right to read or
write a topic no more than to see it; user 0 has all. The product's own look at rights is left out
while work is done, so that it is Kafka who refuses.
"""

from __future__ import annotations

import itertools
import re
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException
from confluent_kafka.admin import AdminClient, NewTopic
from spu_assigner.core.base.errors import AssignerError
from spu_assigner.core.base.events import (
    ClusterRebalance,
    SpuJoined,
    SpuLeft,
    TopicAdopted,
    TopicDelete,
)
from spu_assigner.schemas.messages.codec import encode_record
from spu_assigner.schemas.messages.wire import MOVES_KEY, AppliedTopic, Origin
from spu_assigner.stream.audit.rebuild import recover
from spu_assigner.stream.audit.verify.history import History, read_history
from spu_assigner.stream.client.announced import read_announced
from spu_assigner.stream.client.pending_answers import exchange
from spu_assigner.stream.clusters.follow.loop import adopt_topics, follow_cluster
from spu_assigner.stream.clusters.follow.options import FollowOptions
from spu_assigner.stream.clusters.follow.report import FollowOutput
from spu_assigner.stream.clusters.moves.reassigning import MIN_IN_SYNC, Place, Reassigner
from spu_assigner.stream.clusters.moves.run_record import Seat, begun_run
from spu_assigner.stream.clusters.moves.throttle import LEADERS, RATES
from spu_assigner.stream.clusters.plan.applied_store import AppliedLedger
from spu_assigner.stream.clusters.plan.apply import apply_plan
from spu_assigner.stream.clusters.plan.decision import make_plan
from spu_assigner.stream.clusters.plan.model import ChangeKind, Maps, Wanted
from spu_assigner.stream.clusters.plan.sources import matcher, read_maps, sized
from spu_assigner.stream.clusters.plan.target_cluster import Target
from spu_assigner.stream.job.batch_buffer import BatchBuffer
from spu_assigner.stream.job.session import build_session
from spu_assigner.stream.job.shard.bundle import KINDS, Bundler
from spu_assigner.stream.job.sink import TransactionalSink
from spu_assigner.stream.kafka import topic_admin
from spu_assigner.stream.kafka.acls import (
    ANSWERS,
    ANY_TOPIC,
    INPUTS,
    Acl,
    Resource,
    Role,
    acls,
    follower_name,
)
from spu_assigner.stream.kafka.client import Reader, Sender, SentMessage
from spu_assigner.stream.kafka.config.settings import Settings
from spu_assigner.stream.kafka.election import FollowerLooks, LeaderElection
from spu_assigner.stream.kafka.errors import AccessError
from spu_assigner.stream.kafka.moves_record import latest_run
from spu_assigner.stream.kafka.topic_admin import check_topics, create_topics
from spu_assigner.stream.kafka.topics import (
    APPLIED_TOPICS,
    ASSIGNER_COMMITS,
    ASSIGNER_STATE,
    JOB_TOPICS,
    REPLICA_MAP,
    SPU_EVENTS,
)
from spu_assigner.stream.local.jvm.jars import ensure_all
from spu_assigner.stream.local.jvm.java import Java
from support.events.builders import Events
from support.job.small_job import small_job
from support.kafka.secured import PLAIN_PASSWORD, Secured

GROUP = "readers"
QUERY = "spu-assigner"
CLUSTER = "followed"
CAPACITIES = itertools.count(100)
PREFIX = "acls."
ADOPTED_PREFIX = "adopted."  # there a job answers
RECOVERED_PREFIX = "recovered."  # its outputs are a job's, and its markers foreign to the job here


def rights(role: Role, prefix: str = PREFIX) -> tuple[Acl, ...]:
    return acls(role, prefix=prefix, query_name=QUERY, group=GROUP, cluster_id=CLUSTER)


NOTHING_MOVED = begun_run("c1")
CASES = [
    pytest.param(role, number, id=f"{role}-{acl.name}-{acl.operation}")
    for role in Role
    for number, acl in enumerate(rights(role), start=1)
]


@pytest.fixture(scope="module")
def users(secured: Secured) -> Iterator[Secured]:
    """Users, topics, and something on each to be read."""
    given = {}
    for role in Role:
        for number in range(len(rights(role)) + 1):
            user = f"{role}-{number}"
            own = list(rights(role, prefix_of(role, user)))
            if number:
                own[number - 1 : number] = weaker(own[number - 1])
            if role in MAPPED:  # Rights to any topic would be some to that of its records.
                own = [
                    replace(acl, name=name)
                    for acl in own
                    for name in (MAPPED[role](user) if acl.name == ANY_TOPIC else [acl.name])
                ]
            given[user] = [*own, *(rights(Role.CONSUMER) if role is Role.GROUP else ())]
    secured.allow(given)
    for prefix in (PREFIX, RECOVERED_PREFIX, ADOPTED_PREFIX):
        create_topics(secured.plain, prefix=prefix, partitions=1)
    everybody = settings_of_everybody(secured, PREFIX)
    send(everybody)
    produce(everybody)
    record_moves(everybody)
    record_look(everybody)
    with small_job(settings_of_everybody(secured, RECOVERED_PREFIX)) as job:
        events = Events("c1")
        job.apply([*events.joins(0, 1), events.create("a", 2, 2)])
    with small_job(settings_of_everybody(secured, ADOPTED_PREFIX)) as job, job.answering():
        yield secured


def weaker(acl: Acl) -> list[Acl]:
    """What is less than this right and contained in it."""
    is_more = acl.resource is Resource.TOPIC and acl.operation in {"Read", "Write"}
    return [replace(acl, operation="Describe")] if is_more else []


@pytest.fixture(scope="module")
def spark(java: Java, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A session that every recovery here finds active: each would start its own.

    It has Kafka's jars as well: those of the first one are those of all in this process.
    """
    flags = {"checkpoint": str(tmp_path_factory.mktemp("spark")), "ui_port": 0}
    jars = ensure_all(["spark-kafka", "spark-local"])
    session = build_session(Settings.load(flags=flags, environ={}), java=java, jars=jars)
    yield
    session.stop()


def settings_of_everybody(secured: Secured, prefix: str) -> Settings:
    """On the listener where all may do all."""
    servers = secured.broker.bootstrap_servers
    return Settings.load(flags={"bootstrap_servers": servers, "topic_prefix": prefix}, environ={})


def settings_of(secured: Secured, user: str, prefix: str = PREFIX) -> Settings:
    return Settings.load(
        environ=secured.environ(
            user,
            SPU_ASSIGNER_SASL_MECHANISM="PLAIN",
            SPU_ASSIGNER_SASL_PASSWORD=PLAIN_PASSWORD,
            SPU_ASSIGNER_TOPIC_PREFIX=prefix,
        )
    )


def record_look(settings: Settings) -> None:
    """As `follow` commits it."""
    group = follower_name(CLUSTER, prefix=PREFIX)
    follow = LeaderElection(
        settings.connection(), group=group, topic=ASSIGNER_COMMITS, role=Role.FOLLOWER
    )
    while not follow.is_mine:
        follow.poll(0.1)
    follow.commit_look(0)
    follow.close()


def send(settings: Settings) -> None:
    """One message to each output and the markers, as the job does."""
    bundler = Bundler()
    for kind in KINDS:
        bundler.put(kind, b"place", b"c/t", b"value", 0)
    sink = TransactionalSink(settings, shards=1)
    with BatchBuffer() as buffer:
        buffer.add(0, 0, bundler.close([]))
        try:
            sink.open("checkpoint")
            sink.bind("checkpoint")
            sink._send_once(buffer, 0 if sink._marker is None else sink._marker.batch + 1)
        finally:
            sink.close()


def read_in_group(settings: Settings) -> None:
    """The first message of a topic, as a consumer of one's own that keeps its place."""
    own = {"group.id": GROUP, "auto.offset.reset": "earliest", "enable.auto.commit": False}
    consumer = Consumer({**settings.connection().client(), **own, "log_level": 0})
    consumer.subscribe([settings.topic_prefix + ANSWERS[0]])
    try:
        (message,) = consumer.consume(1, timeout=60)
        if message.error() is not None:
            raise KafkaException(message.error())
    finally:
        consumer.close()


@contextmanager
def sending(settings: Settings, topics: Sequence[str]) -> Iterator[Sender]:
    """What is sent has to arrive."""
    results: list[SentMessage] = []
    sender = Sender(settings.connection(), results.append, topics)
    yield sender
    sender.flush()
    assert {sent.error for sent in results} == {None}


def produce(settings: Settings) -> None:
    """An event for each input."""
    with sending(settings, INPUTS) as sender:
        sender.send(SpuJoined(event_id="e1", cluster_id="c", spu_id=0))
        sender.send(TopicDelete(event_id="e2", cluster_id="c", topic="t"))


def record_moves(settings: Settings) -> None:
    """As a run that moved nothing."""
    with sending(settings, [APPLIED_TOPICS]) as sender:
        sender.send_raw(APPLIED_TOPICS, key=MOVES_KEY, value=encode_record(NOTHING_MOVED))


def run_job(settings: Settings) -> None:
    """What the job asks of Kafka, in its order."""
    check_topics(settings.connection().client(), prefix=settings.topic_prefix)
    send(settings)
    with Reader(settings.connection(), INPUTS, from_beginning=True) as reader:
        assert {topic for topic, _ in reader.drain_messages()} == {*INPUTS}


def consume(settings: Settings) -> None:
    topics = [*ANSWERS, ASSIGNER_STATE]
    with Reader(settings.connection(), topics, from_beginning=True) as reader:
        found = {topic for topic, _ in reader.drain_messages()}
    assert found == set(topics)
    assert latest_run(settings.connection()) is not None
    looks = FollowerLooks(settings.connection())
    with AdminClient(settings.connection().client()) as admin, closing(looks):
        seen = looks.read(admin, 60.0)
    assert CLUSTER in seen, "what its follower saw is missing"


def create(settings: Settings) -> None:
    """Make topics, one of which is there with a wrong setting."""
    create_topics(settings.connection().client(), prefix=settings.topic_prefix, partitions=1)


def audit(settings: Settings) -> None:
    """All that `verify` asks of Kafka; what it makes of it is not looked at."""
    with History(settings.query_name, settings.topic_prefix) as history:
        read_history(settings.connection(), history)
        assert {topic for topic, _ in history.spans} == {each.name for each in JOB_TOPICS}


def recover_all(settings: Settings) -> None:
    """A whole recovery."""
    with tempfile.TemporaryDirectory() as folder:
        recover(replace(settings, checkpoint=str(Path(folder, "new"))))


def apply_maps(settings: Settings) -> None:
    """Read maps, and make, grow and delete topics of the user's own."""
    connection = settings.connection()
    assert "a" in read_maps(connection, "c1", matcher(())).topics
    new, wide, old = mapped(str(settings.security.sasl_username))
    two = Wanted(replicas=((1,), (1,)))
    maps = Maps(cluster_id="c1", topics={new: two, wide: two, old: Wanted(replicas=None)})
    records = f"{connection.prefix}{APPLIED_TOPICS}"
    with Target(connection) as target:
        cluster = target.look([new, wide, records], deleted=[old])
        ledger = AppliedLedger(connection, "c1", is_there=records in cluster.topics)
        applied = ledger.read()
        if old in cluster.ids:  # As if a run before had made it.
            facts: dict[str, Any] = {"recorded_at": 0, "lists": "", "origin": Origin.CREATED}
            made = AppliedTopic(cluster_id="c1", topic=old, topic_id=cluster.ids[old], **facts)
            applied = replace(applied, records={**applied.records, old: made})
        plan = make_plan(maps, cluster, applied=applied, delete=True, is_foreign=wide.__eq__)
        plan = sized(plan, target)
        report = apply_plan(plan, target, ledger)
    assert not report.failed, report.failed
    assert all(change.records is not None for change in plan.of(ChangeKind.DELETE))
    assert (report.created, report.grown, report.deleted) == ((new,), (wide,), (old,))
    with Reassigner(connection) as kafka:
        values = kafka.settings([(new, MIN_IN_SYNC)], with_defaults=True)
    assert values == {(new, MIN_IN_SYNC): "1"}, "missing: of what is warned"


def mapped(user: str) -> list[str]:
    """What an applier makes, grows and deletes."""
    return [f"{user}-{each}" for each in ("new", "wide", "old")]


def adopted(user: str) -> list[str]:
    """What an adopter adopts."""
    return [f"{user}-there"]


# The user's own topics.
MAPPED = {Role.APPLIER: mapped, Role.ADOPTER: adopted, Role.MOVER: mapped}


def follow_once(settings: Settings) -> None:
    """Join the broker that is there, each time with another size: there is something to send."""
    capacity = next(CAPACITIES)
    order = FollowOptions(cluster_id=CLUSTER, grace_seconds=0, capacity=capacity, once=True)
    connection = settings.connection()
    output = FollowOutput("follow", "json")
    follow_cluster(connection, connection, order, output, check=lambda: None)


def adopt_one(settings: Settings) -> None:
    """Adopt a topic into a cluster of the user's own, in which no broker has joined yet."""
    user = str(settings.security.sasl_username)
    (name,) = adopted(user)
    options = FollowOptions(
        cluster_id=user,
        is_adopt=True,
        globs=(name,),
        accept_cluster=True,  # Each user has a cluster of his own, of one broker.
    )
    connection = settings.connection()
    output = FollowOutput("adopt", "json")
    report = adopt_topics(connection, connection, options, output, check=lambda: None)
    assert not report.rejected, report.rejected
    assert report.topics_of(TopicAdopted) == [name], f"{name} is missing"


def move_partitions(settings: Settings) -> None:
    """All that is asked of Kafka for drain, rebalance and a wave, on the one broker there is."""
    topic = mapped(str(settings.security.sasl_username))[1]
    read_announced(settings.connection(), "drained")
    with sending(settings, [SPU_EVENTS]) as sender:
        sender.send(SpuLeft(event_id="drain", cluster_id="drained", spu_id=9))
    asked = ClusterRebalance(event_id="rebalance", cluster_id="drained", max_moves=0)
    answers = exchange(settings.connection(), [asked], seconds=0.1, check=lambda: None)
    assert not answers.rejected, answers.rejected  # No job answers.
    throttle: dict[Place, str | None] = {(topic, LEADERS): "0:1"}
    with Reassigner(settings.connection()) as kafka, Seat(settings.connection()) as seat:
        seat.sit()
        (broker,) = kafka.brokers()
        throttle |= {(broker, name): "1000000" for name in RATES}
        seat.write(NOTHING_MOVED)
        seat.check()
        assert kafka.ongoing() == {}
        assert kafka.change(throttle) == {}
        try:
            assert kafka.shapes([topic])[topic, 0].replicas == (broker,)
            assert kafka.sizes([broker])[topic, 0] == {broker: 0}
            assert kafka.reassign({(topic, 0): (broker,)}) == {}
            kafka.elect([(topic, 0)])
        finally:
            assert kafka.change(dict.fromkeys(throttle)) == {}


WORK: dict[Role, Callable[[Settings], None]] = {
    Role.JOB: run_job,
    Role.PRODUCER: produce,
    Role.CONSUMER: consume,
    Role.GROUP: read_in_group,
    Role.ADMIN: create,
    Role.AUDITOR: audit,
    Role.RECOVERER: recover_all,
    Role.FOLLOWER: follow_once,
    Role.APPLIER: apply_maps,
    Role.ADOPTER: adopt_one,
    Role.MOVER: move_partitions,
}


LOOKING = (Role.JOB, Role.RECOVERER)  # at their rights, before they do anything


def work_without_looking(role: Role, settings: Settings) -> None:
    """It is Kafka who refuses."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(topic_admin, "access_faults", lambda *_, **__: [])
        WORK[role](settings)


def prefix_of(role: Role, user: str) -> str:
    """Where topics are made each user has his own."""
    recovered = dict.fromkeys((Role.RECOVERER, Role.APPLIER), RECOVERED_PREFIX)
    others = {Role.ADMIN: f"{user}.", Role.ADOPTER: ADOPTED_PREFIX}
    return {**others, **recovered}.get(role, PREFIX)


def spoil(secured: Secured, name: str) -> None:
    """Make a topic with other settings than the product's."""
    with AdminClient(secured.plain) as admin:
        admin.create_topics([NewTopic(name, 1)])[name].result(timeout=60)
        while name not in admin.list_topics(timeout=60).topics:
            time.sleep(0.02)


def remove(secured: Secured, name: str) -> None:
    with AdminClient(secured.plain) as admin:
        admin.delete_topics([name])[name].result(timeout=60)
        while name in admin.list_topics(timeout=60).topics:
            time.sleep(0.02)


def prepare(
    secured: Secured, role: Role, user: str, spoiled: str | None, *, has_records: bool = True
) -> None:
    """What must be there for all rights to be used; for those to make something, must not."""
    there = {
        Role.APPLIER: mapped(user)[1:],
        Role.MOVER: mapped(user)[1:2],
        Role.ADOPTER: adopted(user),
    }
    for name in (*there.get(role, ()), *([] if spoiled is None else [spoiled])):
        spoil(secured, name)
    if role in MAPPED and not has_records:
        remove(secured, f"{prefix_of(role, user)}{APPLIED_TOPICS}")


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize("role", Role)
def test_the_rights_of_the_table_are_enough(users: Secured, role: Role) -> None:
    """The job as a whole runs so in `test_security.py`."""
    user = f"{role}-0"
    prefix = prefix_of(role, user)
    settings = settings_of(users, user, prefix)
    prepare(users, role, user, f"{prefix}{REPLICA_MAP}" if role is Role.ADMIN else None)
    if role in LOOKING:
        check_topics(settings.connection().client(), prefix=prefix, role=role)
    work_without_looking(role, settings)


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize(("role", "number"), CASES)
def test_each_right_of_the_table_is_needed(users: Secured, role: Role, number: int) -> None:
    """What is not needed is not asked for."""
    user = f"{role}-{number}"
    prefix = prefix_of(role, user)
    missing = rights(role, prefix)[number - 1]
    is_spoiled = missing.operation == "AlterConfigs" and role is Role.ADMIN
    settings = settings_of(users, user, prefix)
    prepare(
        users,
        role,
        user,
        missing.name if is_spoiled else None,
        has_records=(missing.operation, missing.name) != ("Create", f"{prefix}{APPLIED_TOPICS}"),
    )
    with pytest.raises((AssignerError, KafkaException, AssertionError)) as caught:
        work_without_looking(role, settings)
    message = str(caught.value)
    assert re.search("uthoriz|user may not|missing", message), message
    if role is not Role.GROUP:  # Its consumer is the test's.
        assert isinstance(caught.value, AssignerError | AssertionError)
    if role in LOOKING and missing.resource is Resource.TOPIC:
        with pytest.raises(AccessError) as refused:
            check_topics(settings.connection().client(), prefix=prefix, role=role)
        assert f"may not do what the {role} does: {missing.name}: access is " in str(refused.value)
        assert missing.operation in str(refused.value).partition("expected ")[2]


def look(settings: Settings) -> None:
    with Target(settings.connection()) as target:
        target.look(["mapped"])


@pytest.mark.parametrize(
    ("work", "reported"),
    [
        (look, "not Describe mapped at "),
        (
            lambda given: check_topics(given.connection().client(), prefix=PREFIX),
            "not do what the job does: ",
        ),
        (recover, "not do what the recoverer does: "),
        (audit, "not use acls.assigner-audit; "),
        (consume, "not use acls.replica-map, "),
        (produce, "not use acls.spu-events, "),
        (create, "not Describe acls.spu-events, "),
        (follow_once, "not do what the follower does: acls.spu-events: "),
    ],
)
def test_a_user_without_any_rights_is_refused_by_name(
    users: Secured, work: Callable[[Settings], None], reported: str, tmp_path: Path
) -> None:
    """Kafka hides the topics from him: they must not look missing."""
    settings = replace(settings_of(users, "nobody"), checkpoint=str(tmp_path / "new"))
    with pytest.raises(
        AssignerError, match=f"^this user may {reported}.*grant what `spu-assigner top"
    ):
        work(settings)
