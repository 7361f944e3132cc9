"""What moving partitions asks of a Kafka cluster, by the admin protocol.

kafka-python asks: librdkafka has no AlterPartitionReassignments, and Kafka's own client needs a
JVM.

Rules: a request that got no answer is made again, by a new client, for as long as a broker may take
to restart: all of them may be repeated. What Kafka refuses is reported by name.
"""

from __future__ import annotations

import base64
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, Self, TypeVar
from uuid import UUID

from kafka import TopicPartition
from kafka.admin import (
    AlterConfigOp,
    ConfigFilterType,
    ConfigResource,
    ConfigResourceType,
    KafkaAdminClient,
)
from kafka.errors import AuthorizationError, KafkaError
from spu_assigner.stream.common.printable import listed
from spu_assigner.stream.kafka.acls import Role
from spu_assigner.stream.kafka.config.connection import Connection
from spu_assigner.stream.kafka.errors import ClientError, granting
from spu_assigner.stream.kafka.log_dirs import (
    Partition,
    Sizes,
    UnseenReplicas,
    admin_client,
    alive_brokers,
    all_logs,
    read_unseen,
    sizes_in,
)

RETRY_SECONDS_MAX: Final = 30.0  # a broker restarts, another controller is elected
RETRY_SECONDS: Final = 0.2
RIGHTS: Final = granting(Role.MOVER)
_DENIED: Final = 29  # TOPIC_AUTHORIZATION_FAILED
_BY_HAND: Final = (
    *("DYNAMIC_TOPIC_CONFIG", "DYNAMIC_BROKER_CONFIG", "DYNAMIC_DEFAULT_BROKER_CONFIG"),
    "STATIC_BROKER_CONFIG",
)
MIN_IN_SYNC: Final = "min.insync.replicas"
NOT_ALIVE: Final = "it is not alive"  # why a broker's setting is not changed

Replicas = tuple[int, ...]
# Of a broker or a topic, and the setting's name: what it is set to; None: it is not set. Without a
# place: it is of a broker that is not alive.
Place = tuple[int | str, str]
Values = Mapping[Place, str | None]
_T = TypeVar("_T")


class MovesError(ClientError):
    """Partitions cannot be moved now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionShape:
    """One partition as a broker reports it; while it is moved, with what it gives up at its end."""

    topic_id: str
    leader: int | None
    replicas: Replicas
    in_sync: Replicas


@dataclass(frozen=True, slots=True, kw_only=True)
class Ongoing:
    """A reassignment that Kafka has under way."""

    replicas: Replicas
    adding: Replicas
    removing: Replicas

    @property
    def target(self) -> Replicas:
        """The list that the partition is to have."""
        return tuple(broker for broker in self.replicas if broker not in self.removing)


class Reassigner:
    """A Kafka cluster, through one admin client that is made when it is first needed.

    All that ask raise MovesError where Kafka does not answer, or this user may not.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._client: KafkaAdminClient | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._close()

    def _close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            with suppress(Exception):  # It is not needed any more, whatever has become of it.
                client.close()

    def brokers(self) -> dict[int, str | None]:
        """The brokers that are alive, with their racks."""
        return self._ask("its brokers", alive_brokers)

    def require_rights(self, *, is_limited: bool) -> None:
        """Return if this user may move partitions, with `is_limited` under a throttle."""
        found = self._ask("its rights", lambda client: client.describe_cluster())
        allowed = found.get("authorized_operations")  # None: the broker does not report them.
        needed = {"Alter": "ALTER", **({"AlterConfigs": "ALTER_CONFIGS"} if is_limited else {})}
        missing = [right for right, name in needed.items() if name not in (allowed or ())]
        if missing and allowed is not None:
            raise MovesError(f"this user may not {' and '.join(missing)} the cluster; {RIGHTS}")

    def shapes(self, topics: Iterable[str] | None = None) -> dict[Partition, PartitionShape]:
        """Partitions of these topics, or of all; without topics that are not there."""
        names = None if topics is None else sorted(set(topics))
        if names == []:
            return {}
        found = self._ask("its topics", lambda client: client.describe_topics(names))
        if denied := [topic["name"] for topic in found if topic["error_code"] == _DENIED]:
            raise MovesError(f"this user may not Describe {listed(denied)}; {RIGHTS}")
        return {
            (str(topic["name"]), int(each["partition_index"])): PartitionShape(
                topic_id=_id_text(topic["topic_id"]),
                leader=each["leader_id"] if each["leader_id"] >= 0 else None,
                replicas=tuple(each["replica_nodes"]),
                in_sync=tuple(each["isr_nodes"]),
            )
            for topic in found
            if not topic["error_code"]
            for each in topic["partitions"]
        }

    def ongoing(self) -> dict[Partition, Ongoing]:
        """All reassignments that are under way, whoever has begun them."""
        found = self._ask(
            "what is being moved", lambda client: client.list_partition_reassignments()
        )
        return {
            (place.topic, place.partition): Ongoing(
                replicas=tuple(each["replicas"]),
                adding=tuple(each["adding_replicas"]),
                removing=tuple(each["removing_replicas"]),
            )
            for place, each in found.items()
        }

    def reassign(self, lists: Mapping[Partition, Replicas | None]) -> dict[Partition, str]:
        """Give partitions new lists, or cancel (None) their moves; those that Kafka refuses."""
        if not lists:
            return {}
        asked = {TopicPartition(*each): row for each, row in lists.items()}
        answer = self._ask(
            "to move partitions", lambda client: client.alter_partition_reassignments(asked)
        )
        errors = {place: error for place, error in answer.items() if error is not None}
        if any(issubclass(error, AuthorizationError) for error in errors.values()):
            raise MovesError(f"this user may not Alter the cluster; {RIGHTS}")
        return {(at.topic, at.partition): _error_name(error) for at, error in errors.items()}

    def sizes(self, brokers: Iterable[int]) -> Sizes:
        """Bytes of all replicas on these brokers, also of topics that this user may not see."""
        asked = sorted(set(brokers))
        found = self._ask(
            "the sizes of replicas",
            lambda client: sizes_in(all_logs(client, broker) for broker in asked),
        )
        if silent := {*asked} - found.brokers:
            raise MovesError(
                f"broker {min(silent)} does not report the sizes of its replicas; look at its "
                f"disks, and {RIGHTS}"
            )
        return found.sizes

    def unseen(self) -> UnseenReplicas:
        """The replicas, on all brokers, of topics that this user may not see."""
        return read_unseen(self._connection)

    def elect(self, partitions: Iterable[Partition]) -> None:
        """Have the first broker of each list lead, where it is in sync."""
        asked: dict[str, list[int]] = {}
        for topic, number in sorted(partitions):
            asked.setdefault(topic, []).append(number)
        if asked:
            self._ask(
                "to elect preferred leaders",
                lambda client: client.elect_leaders(0, asked, raise_errors=False),
            )

    def settings(self, places: Iterable[Place], *, with_defaults: bool = False) -> Values:
        """What is set of these settings: by hand, or also by default.

        Without those of brokers that are not alive: only the broker itself can be asked.
        """

        def described(client: KafkaAdminClient, part: Values) -> Any:
            return client.describe_configs(_resources(part), config_filter=ConfigFilterType.ALL)

        values: dict[Place, str | None] = {}
        for part, found in self._ask_each(dict.fromkeys(places), "for settings", described):
            for where, name in () if found is None else part:
                entry = found.get(_kind(where), {}).get(str(where), {}).get(name, {})
                is_set = with_defaults or entry.get("config_source") in _BY_HAND
                values[where, name] = (entry.get("value") or None) if is_set else None
        return values

    def change(self, values: Values) -> dict[Place, str]:
        """Set, or remove (None), settings; those that Kafka refuses, with its reason.

        Those of a broker that is not alive have NOT_ALIVE; if it died meanwhile they may be set.
        """

        def altered(client: KafkaAdminClient, part: Values) -> Any:
            changes = {
                place: (AlterConfigOp.DELETE, None) if value is None else (AlterConfigOp.SET, value)
                for place, value in part.items()
            }
            return client.alter_configs(
                _resources(changes), raise_on_unknown=False, incremental=True
            )

        failures: dict[Place, str] = {}
        for part, answer in self._ask_each(values, "to change settings", altered):
            for where, name in part:
                result = NOT_ALIVE
                if answer is not None:
                    result = answer.get(_kind(where), {}).get(str(where), "no answer")
                if result != "OK":
                    failures[where, name] = result
        return failures

    def _ask_each(
        self, values: Values, what: str, request: Callable[[KafkaAdminClient, Values], Any]
    ) -> Iterator[tuple[Values, Any]]:
        """Ask for the settings of topics, and of each broker; None: it is not alive, or dies now.

        Who is alive is looked at before each try: one that was killed is fenced some seconds later.
        """
        parts: dict[int | None, dict[Place, str | None]] = {}
        for place, value in values.items():
            broker = place[0] if isinstance(place[0], int) else None
            parts.setdefault(broker, {})[place] = value
        for broker, part in parts.items():

            def asked(client: KafkaAdminClient, id_: int | None = broker, of: Values = part) -> Any:
                return request(client, of) if id_ is None or id_ in alive_brokers(client) else None

            yield part, self._ask(what, asked)

    def _ask(self, what: str, request: Callable[[KafkaAdminClient], _T]) -> _T:
        """Ask, again while nobody answers."""
        deadline = time.monotonic() + RETRY_SECONDS_MAX
        while True:
            try:
                self._client = self._client or admin_client(self._connection)
                return request(self._client)
            except AuthorizationError as reason:
                raise MovesError(
                    f"this user may not ask Kafka {what} ({_error_name(type(reason))}); {RIGHTS}"
                ) from reason
            except (KafkaError, OSError, RuntimeError) as reason:
                # A RuntimeError: no controller was found, or an answer came to a closed client.
                self._close()
                if time.monotonic() > deadline:
                    raise MovesError(
                        f"Kafka was asked {what} and does not answer "
                        f"({type(reason).__name__}); check that its brokers run, and run this again"
                    ) from reason
            time.sleep(RETRY_SECONDS)


def _kind(where: int | str) -> str:
    return "broker" if isinstance(where, int) else "topic"


def _resources(values: Mapping[Place, Any]) -> list[Any]:
    """Brokers and topics, as kafka-python names them, with settings and what is asked of each."""
    found: dict[int | str, dict[str, Any]] = {}
    for (where, name), value in values.items():
        found.setdefault(where, {})[name] = value
    kinds = {"broker": ConfigResourceType.BROKER, "topic": ConfigResourceType.TOPIC}
    return [
        ConfigResource(kinds[_kind(where)], str(where), settings)
        for where, settings in found.items()
    ]


def _id_text(topic_id: Any) -> str:
    """Kafka's id of a topic, as librdkafka writes it, and so `applied-topics`; Kafka's own tools
    write - and _ for + and /.
    """
    return base64.b64encode(UUID(str(topic_id)).bytes).decode().rstrip("=")


def _error_name(error: type[Exception]) -> str:
    return str(getattr(error, "message", None) or error.__name__)
