"""With Kafka's authorizer on: exactly the rights of the table are enough, and each is needed.

For each right there is a user who has all of its role's but this one; user 0 has all. What the job
does is done without its own look at rights, so that it is Kafka who refuses.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from spu_assigner.core.errors import AssignerError
from spu_assigner.core.events import SpuJoined, TopicDelete
from spu_assigner.stream.acls import ANSWERS, INPUTS, Acl, Resource, Role, acls
from spu_assigner.stream.bundle import KINDS, Bundler, Message
from spu_assigner.stream.client import Reader, Sender, Sent
from spu_assigner.stream.outbox import Outbox
from spu_assigner.stream.settings import Settings
from spu_assigner.stream.sink import TransactionalSink
from spu_assigner.stream.topics import (
    ASSIGNER_STATE,
    REPLICA_MAP,
    AccessError,
    TopicsError,
    _admin,
    _faults,
    check_topics,
    create_topics,
)
from support.secured import PLAIN_PASSWORD, Secured

GROUP = "readers"
QUERY = "spu-assigner"
PREFIX = "acls."


def rights(role: Role, prefix: str = PREFIX) -> tuple[Acl, ...]:
    return acls(role, prefix=prefix, query_name=QUERY, group=GROUP)


CASES = [
    pytest.param(role, number, id=f"{role}-{acl.name}-{acl.operation}")
    for role in Role
    for number, acl in enumerate(rights(role), start=1)
]


@pytest.fixture(scope="module")
def users(secured: Secured) -> Secured:
    """Users, topics, and something on each to be read."""
    given = {}
    for role in Role:
        for number in range(len(rights(role)) + 1):
            user = f"{role}-{number}"
            own = list(rights(role, prefix_of(role, user)))
            if number:
                own.pop(number - 1)
            given[user] = [*own, *(rights(Role.CONSUMER) if role is Role.GROUP else ())]
    secured.allow(given)
    create_topics(secured.plain, prefix=PREFIX, partitions=1)
    everybody = Settings.load(
        flags={"bootstrap_servers": secured.broker.bootstrap_servers, "topic_prefix": PREFIX},
        environ={},
    )
    send(everybody)
    produce(everybody)
    return secured


def settings_of(secured: Secured, user: str, prefix: str = PREFIX) -> Settings:
    return Settings.load(
        environ=secured.environ(
            user,
            SPU_ASSIGNER_SASL_MECHANISM="PLAIN",
            SPU_ASSIGNER_SASL_PASSWORD=PLAIN_PASSWORD,
            SPU_ASSIGNER_TOPIC_PREFIX=prefix,
        )
    )


def send(settings: Settings) -> None:
    """One message to each output and the markers, as the job does."""
    bundler = Bundler()
    for kind in KINDS:
        bundler.add(Message(kind, b"place", b"c/t", b"value", 0))
    sink = TransactionalSink(settings, shards=1)
    with Outbox() as outbox:
        outbox.add(0, 0, bundler.close([]))
        try:
            sink.open("checkpoint")
            sink.bind("checkpoint")
            sink._send_once(outbox, 0 if sink._marker is None else sink._marker.batch + 1)
        finally:
            sink.close()


def read(settings: Settings, topics: Iterable[str], *, group: str | None = None) -> None:
    """The first message of each topic, by offsets as Spark does, or in a group."""
    for topic in topics:
        consumer = Consumer(
            {
                **settings.connection().client(),
                "group.id": group or "spark-kafka-source-of-some-query",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "log_level": 0,
            }
        )
        name = settings.topic_prefix + topic
        if group is None:
            consumer.assign([TopicPartition(name, 0, 0)])
        else:
            consumer.subscribe([name])
        try:
            _first(consumer, is_member=group is not None)
        finally:
            consumer.close()


def _first(consumer: Consumer, *, is_member: bool) -> None:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        message = consumer.poll(1.0)
        error = None if message is None else message.error()
        if error is not None and (
            is_member or error.code() != KafkaError.GROUP_AUTHORIZATION_FAILED
        ):
            raise KafkaException(error)
        if message is not None and error is None:
            return
    raise TimeoutError("nothing came")


def produce(settings: Settings) -> None:
    """An event for each input."""
    results: list[Sent] = []
    sender = Sender(settings.connection(), results.append)
    sender.send(SpuJoined(event_id="e1", cluster_id="c", spu_id=0))
    sender.send(TopicDelete(event_id="e2", cluster_id="c", topic="t"))
    sender.flush()
    assert [sent.error for sent in results] == [None, None]


def run_job(settings: Settings) -> None:
    """What the job asks of Kafka, in its order."""
    client = settings.connection().client()
    admin, complaints = _admin(client)
    if faults := _faults(admin, client, settings.topic_prefix, complaints):
        raise TopicsError(str(faults[0]))
    send(settings)
    read(settings, INPUTS)


def consume(settings: Settings) -> None:
    topics = [*ANSWERS, ASSIGNER_STATE]
    with Reader(settings.connection(), topics, from_beginning=True) as reader:
        found = {topic for topic, _ in reader.drain_messages()}
    assert found == set(topics)


def create(settings: Settings) -> None:
    """Make topics, one of which is there with a wrong setting."""
    create_topics(settings.connection().client(), prefix=settings.topic_prefix, partitions=1)


WORK: dict[Role, Callable[[Settings], None]] = {
    Role.JOB: run_job,
    Role.PRODUCER: produce,
    Role.CONSUMER: consume,
    Role.GROUP: lambda settings: read(settings, ANSWERS[:1], group=GROUP),
    Role.ADMIN: create,
}


def prefix_of(role: Role, user: str) -> str:
    """Where topics are made each user has his own."""
    return f"{user}." if role is Role.ADMIN else PREFIX


def spoil(secured: Secured, name: str) -> None:
    """Make a topic with other settings than the product's."""
    admin = AdminClient(secured.plain)
    admin.create_topics([NewTopic(name, 1)])[name].result(timeout=10)
    while name not in admin.list_topics(timeout=10).topics:
        time.sleep(0.02)


@pytest.mark.parametrize("role", Role)
def test_the_rights_of_the_table_are_enough(users: Secured, role: Role) -> None:
    """The job as a whole runs so in `test_security.py`."""
    user = f"{role}-0"
    settings = settings_of(users, user, prefix_of(role, user))
    if role is Role.ADMIN:
        spoil(users, f"{user}.{REPLICA_MAP}")
    if role is Role.JOB:
        check_topics(settings.connection().client(), prefix=PREFIX)
    WORK[role](settings)


@pytest.mark.parametrize(("role", "number"), CASES)
def test_each_right_of_the_table_is_needed(users: Secured, role: Role, number: int) -> None:
    """What is not needed is not asked for."""
    user = f"{role}-{number}"
    prefix = prefix_of(role, user)
    missing = rights(role, prefix)[number - 1]
    settings = settings_of(users, user, prefix)
    if role is Role.ADMIN and missing.operation == "AlterConfigs":
        spoil(users, missing.name)
    with pytest.raises((AssignerError, KafkaException, AssertionError)) as caught:
        WORK[role](settings)
    told = str(caught.value)
    assert re.search("uthoriz|may not|not see|access|is missing", told), told
    if role is not Role.GROUP:  # a consumer of one's own
        assert isinstance(caught.value, AssignerError | AssertionError)
    if role is Role.JOB and missing.resource is Resource.TOPIC:
        with pytest.raises(AccessError) as refused:
            check_topics(settings.connection().client(), prefix=PREFIX)
        assert f"{missing.name}: access is " in str(refused.value)
        assert missing.operation in str(refused.value).partition("expected ")[2]
