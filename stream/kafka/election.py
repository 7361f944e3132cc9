"""An election by a consumer group: of the processes that do one thing, one leads.

All are members of one consumer group on a topic of one partition; the one that is assigned it
leads. Nothing is read there. A newcomer does not change the leader.

The group alone is no lock: a process that was stopped for a while still believes that it leads. So
a leader first takes one transactional id, in whose transactions it writes: that fences the older.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition
from confluent_kafka.admin import AdminClient
from spu_assigner.core.base.errors import AssignerError
from spu_assigner.stream.common.quantities import now_ms
from spu_assigner.stream.kafka.acls import Role, follower_name
from spu_assigner.stream.kafka.config.connection import Connection
from spu_assigner.stream.kafka.errors import CREATE_TOPICS, granting, is_denied
from spu_assigner.stream.kafka.topics import ASSIGNER_STATE, topic_name

SESSION_SECONDS: Final = 6  # of a leader's silence, and another leads; the least that brokers take
_HOPELESS: Final = (
    KafkaError.INVALID_SESSION_TIMEOUT,
    KafkaError.INCONSISTENT_GROUP_PROTOCOL,  # members of another kind have the group
)

# When the leader of a cluster's followers last looked, in seconds since 1970, and the partitions
# that were not in Kafka as mapped; None: it looks at no topics.
FollowerLook = tuple[float, int | None]


class ElectionError(AssignerError):
    """The group does not take this process."""


class FollowerLooks:
    """What followers committed last, by cluster; of groups that this user may Describe.

    A consumer of each group, which joins nothing, asks: the admin client's own request ends the
    process when the coordinator of the group moves (librdkafka#5040).
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._consumers: dict[str, Consumer] = {}  # by group

    def read(self, admin: AdminClient, seconds: float) -> dict[str, FollowerLook]:
        """Ask Kafka; raises KafkaException."""
        prefix, looks = self._connection.prefix, dict[str, FollowerLook]()
        begins, topic = follower_name("", prefix=prefix), topic_name(ASSIGNER_STATE, prefix=prefix)
        for listed in admin.list_consumer_groups(request_timeout=seconds).result().valid:
            if (group := listed.group_id).startswith(begins):
                if group not in self._consumers:
                    options = {"group.id": group, "enable.auto.commit": False, "log_level": 0}
                    self._consumers[group] = Consumer({**self._connection.client(), **options})
                [at] = self._consumers[group].committed([TopicPartition(topic, 0)], timeout=seconds)
                if at.error is None and at.offset >= 0:
                    ahead = int(at.metadata) if at.metadata else None
                    looks[group.removeprefix(begins)] = at.offset / 1000, ahead
        return looks

    def close(self) -> None:
        """Close the consumers."""
        for consumer in self._consumers.values():
            consumer.close()


class LeaderElection:
    """Membership in a group; the topic has one partition, the role is for messages."""

    def __init__(self, connection: Connection, *, group: str, topic: str, role: Role) -> None:
        self.is_mine: bool | None = None  # whether this process leads; None: not yet known
        self._connection = connection
        self._group = group
        self._topic = topic_name(topic, prefix=connection.prefix)
        self._role = role
        self._consumer = self._joined()

    def poll(self, seconds: float) -> None:
        """Take over what the group says."""
        message: Message | None = self._consumer.poll(seconds)
        error = None if message is None else message.error()
        if error is None:
            return
        if error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
            raise ElectionError(f"{error.str()}; {CREATE_TOPICS}")
        if is_denied(error):
            raise ElectionError(
                f"this user may not Read group {self._group!r}; {granting(self._role)}"
            )
        if error.code() in _HOPELESS:
            raise ElectionError(
                f"group {self._group!r} does not take this {self._role}: {error.str()}; check that "
                "nothing else uses this group, and the brokers' limits of session timeouts"
            )

    def commit_look(self, ahead: int | None) -> None:
        """Commit the time of a look as an offset; what fails is committed after the next look."""
        topic = topic_name(ASSIGNER_STATE, prefix=self._connection.prefix)
        saw = "" if ahead is None else str(ahead)
        with suppress(KafkaException):
            self._consumer.commit(offsets=[TopicPartition(topic, 0, now_ms(), metadata=saw)])

    def leave(self) -> None:
        """Stop leading and queue again."""
        self.close()
        self.is_mine = None
        self._consumer = self._joined()

    def close(self) -> None:
        """Leave the group: another member leads at once."""
        self._consumer.close()

    def _joined(self) -> Any:
        consumer = Consumer(
            {
                **self._connection.client(),
                "group.id": self._group,
                "partition.assignment.strategy": "cooperative-sticky",  # a newcomer moves nothing
                "session.timeout.ms": SESSION_SECONDS * 1000,
                "heartbeat.interval.ms": SESSION_SECONDS * 1000 // 4,
                "enable.auto.commit": False,
                "auto.offset.reset": "error",  # nothing is read
                "log_level": 0,
            }
        )
        lost = self._lost
        consumer.subscribe([self._topic], on_assign=self._assigned, on_revoke=lost, on_lost=lost)
        return consumer

    def _assigned(self, consumer: Any, partitions: Sequence[TopicPartition]) -> None:
        self.is_mine = bool(partitions) or bool(self.is_mine)
        consumer.incremental_assign([])  # Nothing is fetched.

    def _lost(self, consumer: Any, _partitions: Sequence[TopicPartition]) -> None:
        self.is_mine = False
        consumer.incremental_unassign([])
