"""The source documents' own examples, as events with the answers that they must get.

Every replica map here is typed in from its document, not computed: this is what the product is held
against. Where a document gives a rule and no table (document 003, and what is refused), the answer
was worked out by hand. One cluster an example. Members join first and requests follow, as a request
sees the members that were written before it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from spu_assigner.core.base.errors import Code
from spu_assigner.core.base.events import (
    ClusterRebalance,
    Event,
    OnShortage,
    Policy,
    SpuJoined,
    TopicCreate,
    TopicDelete,
    TopicGrow,
    TopicRelease,
)
from spu_assigner.core.base.records import RingChange, Status
from spu_assigner.schemas.errors import DeadLetterCode

Lists = tuple[tuple[int, ...], ...]  # one replica list for each partition


@dataclass(frozen=True, slots=True, kw_only=True)
class ScenarioStep:
    """One message, and the whole answer that it must get."""

    event_id: str  # of raw bytes too: a name for them
    event: Event | bytes  # bytes: sent as they are, to topic-events, with the cluster as key
    status: Status | None = None  # None: no request
    code: Code | DeadLetterCode | None = None
    replicas: Lists | None = None  # on replica-map, or in the status of a validated request
    cores: Lists | None = None  # parallel to replicas
    ring: tuple[tuple[int, RingChange], ...] = ()
    leaves_tombstone: bool = False  # on replica-map

    @property
    def is_join(self) -> bool:
        return isinstance(self.event, SpuJoined)

    @property
    def topic(self) -> str:
        """The topic that is asked about; a name for what asks of none."""
        match self.event:
            case bytes():
                return "bytes"
            case TopicCreate() | TopicDelete() | TopicRelease() | TopicGrow():
                return self.event.topic
            case _:
                return self.event.cluster_id


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """One cluster's life."""

    cluster_id: str
    title: str
    source: str
    steps: tuple[ScenarioStep, ...]  # joins first
    ring: tuple[int, ...]  # at the end, ascending


# Document 000 (and 001, 002), "Replica Assignment", CRA: 5 SPUs, 3 replicas, rows 0 to 15.
TABLE: Final[Lists] = (
    (0, 1, 2),
    (1, 2, 3),
    (2, 3, 4),
    (3, 4, 0),
    (4, 0, 1),
    (0, 2, 3),
    (1, 3, 4),
    (2, 4, 0),
    (3, 0, 1),
    (4, 1, 2),
    (0, 3, 4),
    (1, 4, 0),
    (2, 0, 1),
    (3, 1, 2),
    (4, 2, 3),
    (0, 1, 2),
)

# Document 000 (and 001, 002), "CRA with Rack Enabled", example 1: 12 SPUs on 4 racks, 4 replicas.
RACKS_BALANCED: Final[Lists] = (
    (0, 4, 8, 9),
    (4, 8, 9, 1),
    (8, 9, 1, 5),
    (9, 1, 5, 6),
    (1, 5, 6, 10),
    (5, 6, 10, 2),
    (6, 10, 2, 3),
    (10, 2, 3, 7),
    (2, 3, 7, 11),
    (3, 7, 11, 0),
    (7, 11, 0, 4),
    (11, 0, 4, 8),
)

# The same, example 2: 6 SPUs on 3 racks of 1, 2 and 3, 3 replicas.
RACKS_UNBALANCED: Final[Lists] = (
    (3, 2, 0),
    (2, 0, 4),
    (0, 4, 1),
    (4, 1, 5),
    (1, 5, 3),
    (5, 3, 2),
)

KAFKA_CASE_1: Final[Lists] = ((3,), (1,))  # document 004, case 1
KAFKA_CASE_2: Final[Lists] = ((3, 1), (1, 2))  # document 004, case 2

# Documents 000 (list form) and 002 (object form), "Replica Assignment File".
MANUAL: Final[Lists] = ((0, 1, 2), (1, 2, 0))
MANUAL_LIST: Final = [{"id": 0, "replicas": [0, 1, 2]}, {"id": 1, "replicas": [1, 2, 0]}]
MANUAL_OBJECT: Final = {"partitions": MANUAL_LIST}

NO_EVENT: Final = b"these bytes are no event"


def examples(prefix: str = "") -> tuple[Example, ...]:
    """All examples; ids start with `prefix`, so that they can be played again."""
    return (
        _fluvio_table(prefix),
        _fluvio_chain(prefix),
        _racks_balanced(prefix),
        _racks_unbalanced(prefix),
        _racks_incomplete(prefix),
        _kafka_case_1(prefix),
        _kafka_case_2(prefix),
        _redpanda(prefix),
        _manual(prefix),
        _life(prefix),
        _no_event(prefix),
    )


class _Steps:
    """Builds the steps of one cluster; event ids count up from 1."""

    def __init__(self, cluster_id: str) -> None:
        self.cluster_id = cluster_id
        self.steps: list[ScenarioStep] = []

    def join(self, *spu_ids: int, **given: Any) -> _Steps:
        for spu_id in spu_ids:
            event = SpuJoined(**self._common(), spu_id=spu_id, **given)
            self._add(event, ring=((spu_id, RingChange.JOINED),))
        return self

    def create(
        self,
        topic: str,
        size: tuple[int, int],
        replicas: Lists,
        *,
        cores: Lists | None = None,
        saturated: Sequence[int] = (),
        **given: Any,
    ) -> _Steps:
        """A create of (partitions, replication factor) that is granted."""
        status = Status.VALIDATED if given.get("validate_only") else Status.ASSIGNED
        return self._request(
            self._create(topic, size, given),
            status,
            replicas=replicas,
            cores=cores,
            ring=tuple((spu_id, RingChange.SATURATED) for spu_id in saturated),
        )

    def refuse(self, topic: str, size: tuple[int, int], code: Code, **given: Any) -> _Steps:
        """A create that is refused."""
        return self._request(self._create(topic, size, given), Status.REJECTED, code=code)

    def delete(self, topic: str, *, restored: Sequence[int] = ()) -> _Steps:
        ring = tuple((spu_id, RingChange.RESTORED) for spu_id in restored)
        event = TopicDelete(**self._common(), topic=topic)
        return self._request(event, Status.DELETED, ring=ring, leaves_tombstone=True)

    def release(self, topic: str) -> _Steps:
        """A topic is forgotten that no saturated SPU holds."""
        event = TopicRelease(**self._common(), topic=topic)
        return self._request(event, Status.RELEASED, leaves_tombstone=True)

    def grow(self, topic: str, partitions: int, replicas: Lists) -> _Steps:
        event = TopicGrow(**self._common(), topic=topic, partitions=partitions)
        return self._request(event, Status.ASSIGNED, replicas=replicas)

    def wait(self, topic: str, size: tuple[int, int], code: Code) -> _Steps:
        """A create that finds too few SPUs and stays in line."""
        event = self._create(topic, size, {"on_shortage": OnShortage.WAIT})
        return self._request(event, Status.WAITING, code=code)

    def withdraw(self, topic: str) -> _Steps:
        """A delete of what waits: there is no map of it."""
        return self._request(TopicDelete(**self._common(), topic=topic), Status.DELETED)

    def rebalance(self, max_moves: int) -> _Steps:
        event = ClusterRebalance(**self._common(), max_moves=max_moves)
        return self._request(event, Status.ASSIGNED)

    def send(self, raw: bytes, code: DeadLetterCode) -> _Steps:
        self._add(raw, code=code)
        return self

    def example(self, *, title: str, source: str, ring: Sequence[int]) -> Example:
        return Example(
            cluster_id=self.cluster_id,
            title=title,
            source=source,
            steps=tuple(self.steps),
            ring=tuple(ring),
        )

    def _create(self, topic: str, size: tuple[int, int], given: dict[str, Any]) -> TopicCreate:
        """`lists` among the given are the manual lists of the request."""
        partitions, replication_factor = size
        lists = given.pop("lists", None)
        return TopicCreate(
            **self._common(),
            topic=topic,
            partitions=partitions,
            replication_factor=replication_factor,
            replicas=lists,
            **given,
        )

    def _request(self, event: Event, status: Status, **expected: Any) -> _Steps:
        self._add(event, status=status, **expected)
        return self

    def _add(self, event: Event | bytes, **expected: Any) -> None:
        self.steps.append(
            ScenarioStep(event_id=self._common()["event_id"], event=event, **expected)
        )

    def _common(self) -> dict[str, Any]:
        number = len(self.steps) + 1
        return {"cluster_id": self.cluster_id, "event_id": f"{self.cluster_id}.{number}"}


def _fluvio_table(prefix: str) -> Example:
    return (
        _Steps(f"{prefix}fluvio-table")
        .join(0, 1, 2, 3, 4)
        .create("table", (16, 3), TABLE, policy=Policy.FLUVIO)
        .example(
            title="Fluvio, no racks: 5 SPUs, 3 replicas, 16 rows",
            source="document 000, CRA",
            ring=range(5),
        )
    )


def _fluvio_chain(prefix: str) -> Example:
    return (
        _Steps(f"{prefix}fluvio-chain")
        .join(0, 1, 2, 3, 4)
        .create("first", (9, 3), TABLE[:9], policy=Policy.FLUVIO)  # ends at index 8
        .create("next", (7, 3), TABLE[9:], policy=Policy.FLUVIO)  # goes on with [4, 1, 2]
        .example(
            title="Fluvio, chained: the next topic starts with [4, 1, 2]",
            source="document 000, CRA",
            ring=range(5),
        )
    )


def _racks_balanced(prefix: str) -> Example:
    return (
        _Steps(f"{prefix}fluvio-racks-balanced")
        .join(0, 1, 2, rack="rack-a")
        .join(3, 4, 5, rack="rack-b")
        .join(6, 7, 8, rack="rack-c")
        .join(9, 10, 11, rack="rack-d")
        .create("racks", (12, 4), RACKS_BALANCED, policy=Policy.FLUVIO)
        .example(
            title="Fluvio, racks, example 1: 12 SPUs on 4 racks",
            source="document 000, CRA with rack enabled",
            ring=range(12),
        )
    )


def _racks_unbalanced(prefix: str) -> Example:
    return (
        _Steps(f"{prefix}fluvio-racks-unbalanced")
        .join(0, rack="rack-a")
        .join(1, 2, rack="rack-b")
        .join(3, 4, 5, rack="rack-c")
        .create("racks", (6, 3), RACKS_UNBALANCED, policy=Policy.FLUVIO)
        .example(
            title="Fluvio, racks, example 2: 6 SPUs on racks of 1, 2 and 3",
            source="document 000, CRA with rack enabled",
            ring=range(6),
        )
    )


def _racks_incomplete(prefix: str) -> Example:
    return (
        _Steps(f"{prefix}fluvio-racks-incomplete")
        .join(0, 1, 2, 3, rack="rack-a")
        .join(4)
        .refuse("racks", (15, 3), Code.RACKS_INCOMPLETE, policy=Policy.FLUVIO)
        .create("ignored", (15, 3), TABLE[:15], policy=Policy.FLUVIO, ignore_rack=True)
        .example(
            title="Fluvio, one SPU has no rack: refused, or racks ignored",
            source="document 000, CRA with rack enabled",
            ring=range(5),
        )
    )


def _kafka_case_1(prefix: str) -> Example:
    return (
        _Steps(f"{prefix}kafka-case-1")
        .join(1, 2, 3)
        .create("case", (2, 1), KAFKA_CASE_1, policy=Policy.KAFKA, start_index=2, shift=2)
        .example(
            title="Kafka, case 1: brokers 1, 2, 3, one replica, start and shift 2",
            source="document 004, case 1",
            ring=(1, 2, 3),
        )
    )


def _kafka_case_2(prefix: str) -> Example:
    return (
        _Steps(f"{prefix}kafka-case-2")
        .join(1, 2, 3)
        .create("case", (2, 2), KAFKA_CASE_2, policy=Policy.KAFKA, start_index=2, shift=2)
        .example(
            title="Kafka, case 2: brokers 1, 2, 3, two replicas, start and shift 2",
            source="document 004, case 2",
            ring=(1, 2, 3),
        )
    )


def _redpanda(prefix: str) -> Example:
    """Slots 2, 3 and 4, two cores each: the nodes fill up one by one.

    `too-much` asks for two slots where one is left: its first partition is taken back, so
    `last-slot` gets that slot. Deleting `a` frees slots on all three, which come back at the tail
    in the order of their ids.
    """
    redpanda: dict[str, Any] = {"policy": Policy.REDPANDA}
    return (
        _Steps(f"{prefix}redpanda")
        .join(0, cores=2, capacity=2)
        .join(1, cores=2, capacity=3)
        .join(2, cores=2, capacity=4)
        .create("a", (2, 2), ((0, 1), (2, 0)), cores=((1, 1), (1, 1)), saturated=[0], **redpanda)
        .create("b", (1, 2), ((1, 2),), cores=((1, 1),), **redpanda)
        .create("c", (1, 2), ((1, 2),), cores=((0, 0),), saturated=[1], **redpanda)
        .refuse("too-much", (2, 1), Code.INSUFFICIENT_CAPACITY, **redpanda)
        .create("last-slot", (1, 1), ((2,),), cores=((1,),), saturated=[2], **redpanda)
        .refuse("none-left", (1, 1), Code.INSUFFICIENT_CAPACITY, **redpanda)
        .delete("a", restored=[0, 1, 2])
        .create("after", (1, 3), ((0, 1, 2),), cores=((1, 1, 1),), saturated=[1, 2], **redpanda)
        .example(
            title="Redpanda: nodes saturate one by one, a request is rolled back, nodes return",
            source="document 003, worked out by hand",
            ring=(0,),
        )
    )


def _manual(prefix: str) -> Example:
    gap = [{"id": 0, "replicas": [0, 1, 2]}, {"id": 2, "replicas": [1, 2, 0]}]
    twice = [{"id": 0, "replicas": [0, 1, 1]}]
    return (
        _Steps(f"{prefix}manual")
        .join(0, 1, 2)
        .create("tried", (1, 1), MANUAL, lists=MANUAL_LIST, validate_only=True)
        .create("list-form", (1, 1), MANUAL, lists=MANUAL_LIST)
        .create("object-form", (1, 1), MANUAL, lists=MANUAL_OBJECT)
        .refuse("gap", (1, 1), Code.MANUAL_PARTITION_IDS, lists=gap)
        .refuse("twice", (1, 1), Code.MANUAL_DUPLICATE_SPU, lists=twice)
        .example(
            title="Manual maps: both file forms, one only tried, two with a fault",
            source="documents 000 and 002, replica assignment file",
            ring=range(3),
        )
    )


def _life(prefix: str) -> Example:
    """Two partitions more go on where the first four ended; nothing is left to even out."""
    grown = ((0, 1), (1, 2), (2, 0), (0, 2), (1, 0), (2, 1))
    return (
        _Steps(f"{prefix}life")
        .join(0, 1, 2)
        .create("orders", (4, 2), grown[:4], policy=Policy.FLUVIO)
        .wait("large", (1, 4), Code.INSUFFICIENT_SPUS)
        .grow("orders", 6, grown)
        .rebalance(100)
        .withdraw("large")
        .release("orders")
        .example(
            title="A topic grows and is released, another waits for SPUs and is withdrawn",
            source="worked out by hand",
            ring=range(3),
        )
    )


def _no_event(prefix: str) -> Example:
    return (
        _Steps(f"{prefix}no-event")
        .join(0, 1)
        .send(NO_EVENT, DeadLetterCode.UNDECODABLE)
        .create("neighbour", (2, 2), ((0, 1), (1, 0)), policy=Policy.FLUVIO)
        .example(
            title="Bytes that are no event: set aside, and their neighbour is answered",
            source="worked out by hand",
            ring=range(2),
        )
    )
