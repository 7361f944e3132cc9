"""What moving partitions asks of a Kafka cluster, by the admin protocol.

    with Reassigner(connection) as kafka:
        shapes = kafka.shapes(topics)
        failures = kafka.reassign({("t", 0): (3, 2)})

kafka-python asks: librdkafka has no AlterPartitionReassignments, and Kafka's own client needs a
JVM.

Rules: a request that got no answer is made again, by a new client, for as long as a broker may take
to restart: all of them may be repeated. What Kafka refuses is reported by name.
"""

from __future__ import annotations

import base64
import logging
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar
from uuid import UUID

from spu_assigner.core.base.errors import AssignerError
from spu_assigner.stream.clusters.moves.throttle import Place, Values
from spu_assigner.stream.common.printable import listed
from spu_assigner.stream.kafka.acls import Role
from spu_assigner.stream.kafka.config.connection import Connection
from spu_assigner.stream.kafka.errors import REQUEST_SECONDS_MAX, granting
from spu_assigner.stream.kafka.log_dirs import (
    UnseenReplicas,
    all_logs,
    read_unseen,
    replicas_of,
)

if TYPE_CHECKING:
    from kafka.admin import KafkaAdminClient

PARTITIONS_MAX: Final = 1_000  # of a request
TOPICS_MAX: Final = 200  # of a request for settings
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
_LOGGER: Final = logging.getLogger("kafka")
_LOGGER.addHandler(logging.NullHandler())  # What goes wrong is raised.
_LOGGER.propagate = False

Partition = tuple[str, int]  # a topic's name and the partition's number
Replicas = tuple[int, ...]
_T = TypeVar("_T")


class MovesError(AssignerError):
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
    """A Kafka cluster, through one admin client that is made when it is first needed."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._client: KafkaAdminClient | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            with suppress(Exception):  # It is not needed any more, whatever has become of it.
                client.close()

    def brokers(self) -> dict[int, str | None]:
        """The brokers that are alive, with their racks.

        Raises:
            MovesError: Kafka does not answer.
        """
        return self._ask("its brokers", _alive)

    def require_rights(self, *, is_limited: bool) -> None:
        """Return if this user may move partitions, with `is_limited` under a throttle.

        Raises:
            MovesError: Kafka does not answer, or a right to the cluster is missing.
        """
        found = self._ask("its rights", lambda client: client.describe_cluster())
        allowed = found.get("authorized_operations")  # None: the broker does not report them.
        needed = {"Alter": "ALTER", **({"AlterConfigs": "ALTER_CONFIGS"} if is_limited else {})}
        missing = [right for right, name in needed.items() if name not in (allowed or ())]
        if missing and allowed is not None:
            raise MovesError(f"this user may not {' and '.join(missing)} the cluster; {RIGHTS}")

    def shapes(self, topics: Iterable[str] | None = None) -> dict[Partition, PartitionShape]:
        """Partitions of these topics, or of all; without topics that are not there.

        Raises:
            MovesError: Kafka does not answer, or this user may not see one that is named.
        """
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
        """All reassignments that are under way, whoever has begun them.

        Raises:
            MovesError: Kafka does not answer, or this user may not ask.
        """
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
        """Give partitions new lists, or cancel (None) what is under way; those that Kafka refuses.

        Raises:
            MovesError: Kafka does not answer, or this user may not.
        """
        from kafka import TopicPartition
        from kafka.errors import AuthorizationError

        failures: dict[Partition, str] = {}
        places = list(lists)
        for begin in range(0, len(places), PARTITIONS_MAX):
            part = {
                TopicPartition(*each): lists[each]
                for each in places[begin : begin + PARTITIONS_MAX]
            }
            answer = self._ask(
                "to move partitions",
                lambda client, part=part: client.alter_partition_reassignments(part),  # type: ignore[misc]  # a default is typed as what it is given
            )
            for place, error in answer.items():
                if error is not None and issubclass(error, AuthorizationError):
                    raise MovesError(f"this user may not Alter the cluster; {RIGHTS}")
                if error is not None:
                    failures[place.topic, place.partition] = _error_name(error)
        return failures

    def sizes(
        self, partitions: Collection[Partition], brokers: Sequence[int] | None = None
    ) -> dict[tuple[int, str, int], int]:
        """Bytes of replicas, by broker, topic and partition; of all brokers, or of these.

        Raises:
            MovesError: Kafka does not answer, or this user may not ask.
        """
        asked: dict[str, list[int]] = {}
        for topic, number in sorted(partitions):
            asked.setdefault(topic, []).append(number)
        answers = self._ask(
            "the sizes of replicas",
            lambda client: client.describe_log_dirs(
                topic_partitions=asked, brokers=None if brokers is None else list(brokers)
            ),
        )
        return _sizes_in(answers)

    def held(self, broker: int) -> set[Partition]:
        """All that is on the disks of a broker, also of topics that this user may not see.

        Raises:
            MovesError: Kafka does not answer, or this user may not ask.
        """
        answer = self._ask("what a broker holds", lambda client: all_logs(client, broker))
        return {(topic, number) for _, topic, number in _sizes_in([answer])}

    def unseen(self) -> UnseenReplicas:
        """The replicas, on all brokers, of topics that this user may not see.

        Raises:
            UnreachableError, ClientError: Kafka does not answer.
        """
        return read_unseen(self._connection)

    def elect(self, partitions: Iterable[Partition]) -> None:
        """Have the first broker of each list lead, where it is in sync.

        Raises:
            MovesError: Kafka does not answer, or this user may not.
        """
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

        Raises:
            MovesError: Kafka does not answer, or this user may not ask.
        """
        from kafka.admin import ConfigFilterType

        values: dict[Place, str | None] = {}
        for part in _parts(_by_resource(places)):
            found = self._ask_of(
                part,
                "for settings",
                lambda client, part=part: client.describe_configs(  # type: ignore[misc]  # likewise
                    [_resource(where, names) for where, names in part.items()],
                    config_filter=ConfigFilterType.ALL,
                ),
            )
            if found is None:
                continue
            for where, names in part.items():
                kind = "broker" if isinstance(where, int) else "topic"
                entries = found.get(kind, {}).get(str(where), {})
                for name in names:
                    entry = entries.get(name, {})
                    is_set = with_defaults or entry.get("config_source") in _BY_HAND
                    values[where, name] = (entry.get("value") or None) if is_set else None
        return values

    def change(self, values: Values) -> dict[Place, str]:
        """Set, or remove (None), settings; those that Kafka refuses, with its reason.

        Those of a broker that is not alive have NOT_ALIVE; if it died meanwhile they may be set.

        Raises:
            MovesError: Kafka does not answer.
        """
        from kafka.admin import AlterConfigOp, ConfigResource, ConfigResourceType

        failures: dict[Place, str] = {}
        for part in _parts(_by_resource(values)):
            resources = [
                ConfigResource(
                    ConfigResourceType.BROKER
                    if isinstance(where, int)
                    else ConfigResourceType.TOPIC,
                    str(where),
                    {
                        name: (AlterConfigOp.DELETE, None)
                        if (value := values[where, name]) is None
                        else (AlterConfigOp.SET, value)
                        for name in names
                    },
                )
                for where, names in part.items()
            ]
            answer = self._ask_of(
                part,
                "to change settings",
                lambda client, resources=resources: client.alter_configs(  # type: ignore[misc]  # likewise
                    resources, raise_on_unknown=False, incremental=True
                ),
            )
            for where, names in part.items():
                kind = "broker" if isinstance(where, int) else "topic"
                result = (
                    NOT_ALIVE
                    if answer is None
                    else answer.get(kind, {}).get(str(where), "no answer")
                )
                if result != "OK":
                    failures |= {(where, name): result for name in names}
        return failures

    def _ask_of(
        self,
        part: Mapping[int | str, list[str]],
        what: str,
        request: Callable[[KafkaAdminClient], _T],
    ) -> _T | None:
        """Ask for a part's settings; None: they are of a broker that is not alive, or dies now.

        Who is alive is looked at before each try: one that was killed is fenced some seconds later.
        """
        broker = next(iter(part))
        return self._ask(
            what,
            lambda client: (
                request(client) if isinstance(broker, str) or broker in _alive(client) else None
            ),
        )

    def _ask(self, what: str, request: Callable[[KafkaAdminClient], _T]) -> _T:
        """Ask, again while nobody answers.

        Raises:
            MovesError: RETRY_SECONDS_MAX passed, or Kafka refuses.
        """
        from kafka.errors import AuthorizationError, KafkaError

        deadline = time.monotonic() + RETRY_SECONDS_MAX
        while True:
            try:
                return request(self._opened())
            except AuthorizationError as reason:
                raise MovesError(
                    f"this user may not ask Kafka {what} ({_error_name(type(reason))}); {RIGHTS}"
                ) from reason
            except (KafkaError, OSError, RuntimeError) as reason:
                # A RuntimeError: no controller was found, or an answer came to a closed client.
                self.close()
                if time.monotonic() > deadline:
                    raise MovesError(
                        f"Kafka was asked {what} and does not answer "
                        f"({type(reason).__name__}); check that its brokers run, and run this again"
                    ) from reason
            time.sleep(RETRY_SECONDS)

    def _opened(self) -> KafkaAdminClient:
        if self._client is None:
            from kafka.admin import KafkaAdminClient

            milliseconds = int(REQUEST_SECONDS_MAX * 1000)
            self._client = KafkaAdminClient(
                request_timeout_ms=milliseconds,
                bootstrap_timeout_ms=milliseconds,
                **self._connection.kafka_python(),
            )
        return self._client


def _alive(client: KafkaAdminClient) -> dict[int, str | None]:
    return {
        int(each["broker_id"]): each["rack"]
        for each in client.describe_cluster()["brokers"]
        if not each.get("is_fenced")
    }


def _sizes_in(answers: Iterable[Mapping[str, Any]]) -> dict[tuple[int, str, int], int]:
    """Bytes of replicas, by broker, topic and partition.

    Raises:
        MovesError: a broker does not report all.
    """
    found: dict[tuple[int, str, int], int] = {}
    for answer in answers:
        broker, folders = answer["broker"], answer["log_dirs"]
        faults = [f"error {each['error_code']}" for each in folders if each["error_code"]]
        if faults or not folders:  # Who may not ask is shown a broker without any disk.
            why = faults[0] if faults else "this user may not Describe the cluster"
            raise MovesError(
                f"broker {broker} does not report the sizes of its replicas ({why}); look at "
                f"its disks, and {RIGHTS}"
            )
        for topic, number, size in replicas_of(answer):
            found[broker, topic, number] = size
    return found


def _by_resource(places: Iterable[Place]) -> dict[int | str, list[str]]:
    found: dict[int | str, list[str]] = {}
    for where, name in places:
        found.setdefault(where, []).append(name)
    return found


def _parts(resources: Mapping[int | str, list[str]]) -> list[dict[int | str, list[str]]]:
    """Each broker alone, as one that is not alive fails the request; topics in pieces."""
    parts: list[dict[int | str, list[str]]] = [
        {where: names} for where, names in resources.items() if not isinstance(where, str)
    ]
    topics = [where for where in resources if isinstance(where, str)]
    for begin in range(0, len(topics), TOPICS_MAX):
        parts.append({where: resources[where] for where in topics[begin : begin + TOPICS_MAX]})
    return parts


def _resource(where: int | str, names: Sequence[str]) -> Any:
    from kafka.admin import ConfigResource, ConfigResourceType

    kind = ConfigResourceType.BROKER if isinstance(where, int) else ConfigResourceType.TOPIC
    return ConfigResource(kind, str(where), list(names))


def _id_text(topic_id: Any) -> str:
    """Kafka's id of a topic, as librdkafka writes it, and so `applied-topics`; Kafka's own tools
    write - and _ for + and /.
    """
    return base64.b64encode(UUID(str(topic_id)).bytes).decode().rstrip("=")


def _error_name(error: type[Exception]) -> str:
    return str(getattr(error, "message", None) or error.__name__)
