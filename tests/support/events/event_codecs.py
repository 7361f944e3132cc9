"""Hypothesis strategies of events and records, their fields as fastavro takes them, and the least
record of a kind.

`fields_of` is written apart from the codec on purpose: it is the oracle that the codec is held to.
"""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import partial
from io import BytesIO, StringIO
from types import NoneType
from typing import Any, get_args, get_origin, get_type_hints

import fastavro
import numpy as np
from hypothesis import strategies as st
from hypothesis.extra import numpy as nps
from spu_assigner.core.base.errors import Code
from spu_assigner.core.base.events import Event, Policy, TopicAdopted, TopicCreate
from spu_assigner.core.base.records import (
    Chain,
    ChainEntry,
    Move,
    Order,
    Reason,
    RecordedRing,
    ReplicaMap,
    RingChange,
    RingEvent,
    SeenEntry,
    SpuChanged,
    Status,
    TopicStatus,
    Waiting,
)
from spu_assigner.core.base.replica_lists import ReplicaLists, Table
from spu_assigner.core.base.resources import Need
from spu_assigner.schemas.avro.registry import FOLDER, Registered, Registry
from spu_assigner.schemas.errors import DecodeError
from spu_assigner.schemas.messages.codec import (
    EVENT_KINDS,
    EventKind,
    Wire,
    confluent_header,
    decode_event,
    decode_record,
    encode_event,
    encode_record,
    single_object_header,
)
from spu_assigner.schemas.messages.meanings import TYPE_NAMES
from spu_assigner.schemas.messages.wire import (
    AppliedTopic,
    CommitMarker,
    DeadLetter,
    PartitionOffsets,
    PartitionPosition,
    RecoveredFrom,
)

INT32 = st.integers(-(2**31), 2**31 - 1) | st.integers(0, 130)
LONG = st.integers(-(2**63), 2**63 - 1) | st.integers(0, 130)
INDEX = st.none() | st.integers(0, 2**63 - 1)
COUNT = st.integers(0, 2**31 - 1) | st.integers(0, 130)
TEXT = st.text(st.characters(codec="utf-8"), max_size=70)
NAME = st.from_regex(r"[a-zA-Z0-9._-]{1,70}", fullmatch=True).filter(lambda x: x not in (".", ".."))
HASH = st.integers(0, 2**64 - 1)
HASHES = st.lists(HASH, max_size=16).map(tuple)
EVENT_ID = st.text(st.characters(codec="utf-8"), min_size=1, max_size=100)
AMOUNTS = st.dictionaries(TEXT, LONG, max_size=3)
LABELS = st.dictionaries(TEXT, TEXT, max_size=3)
MANUAL = st.lists(st.fixed_dictionaries({"id": LONG, "replicas": st.lists(LONG, max_size=4)}))

_BY_NAME: dict[str, Any] = {
    "event_id": EVENT_ID,
    "cluster_id": NAME,
    "occurred_at": st.none() | LONG,
    "topic": NAME,
    "cause": EVENT_ID,
    "demand": AMOUNTS,
    "leader_demand": st.none() | AMOUNTS,
}


def built(cls: type, number: Any = COUNT, **given: Any) -> st.SearchStrategy[Any]:
    """Objects of a dataclass: fields by what is given, else by their name, else by their type."""
    by_type = {int: number, str: TEXT, bool: st.booleans(), bytes: st.binary(max_size=200)}

    def of(hint: Any) -> st.SearchStrategy[Any]:
        if NoneType in get_args(hint):
            return st.none() | of(get_args(hint)[0])
        if get_origin(hint) is tuple:
            return st.lists(of(get_args(hint)[0]), max_size=3).map(tuple)
        if is_dataclass(hint):
            return built(hint, INT32)
        return by_type[hint] if hint in by_type else st.sampled_from(hint)

    hints = get_type_hints(cls)
    known = _BY_NAME | given
    return st.builds(
        cls, **{name: known[name] if name in known else of(hints[name]) for name in hints}
    )


CREATES = built(TopicCreate, INT32, replicas=st.none() | MANUAL, demand=st.none() | AMOUNTS)
ADOPTED = st.lists(st.lists(LONG, max_size=4).map(tuple), max_size=9).map(tuple)
ADOPTIONS = built(TopicAdopted, replicas=ADOPTED, demand=st.none() | AMOUNTS)


def _in_pairs(by_name: dict[str, Any]) -> tuple[tuple[str, Any], ...]:
    return tuple(sorted(by_name.items()))


NEEDS = st.builds(Need, demand=AMOUNTS.map(_in_pairs), leader_demand=AMOUNTS.map(_in_pairs))


def events() -> st.SearchStrategy[Event]:
    others = [cls for cls in get_args(Event) if cls not in (TopicCreate, TopicAdopted)]
    built_others = [
        built(cls, INT32, labels=st.none() | LABELS, resources=st.none() | AMOUNTS)
        for cls in others
    ]
    return st.one_of(CREATES, ADOPTIONS, *built_others)


@st.composite
def replica_lists(draw: st.DrawFn) -> ReplicaLists:
    """Lists of ids of one to five bytes, sometimes rows of a table, used before or not."""
    largest = draw(st.sampled_from([63, 8191, 2**20, 2**31 - 1]))
    shape = draw(st.tuples(st.integers(1, 90), st.integers(1, 6)))
    matrix = draw(nps.arrays(np.int32, shape, elements=st.integers(0, largest)))
    if draw(st.booleans()):
        return ReplicaLists(matrix)
    start = draw(st.integers(0, shape[0] - 1))
    return Table(matrix).lists(start, draw(st.integers(1, shape[0] - start)))


@st.composite
def ragged_lists(draw: st.DrawFn) -> ReplicaLists:
    ids = st.integers(0, draw(st.sampled_from([63, 8191, 2**31 - 1])))
    lists = st.lists(st.lists(ids, min_size=1, max_size=4), min_size=2, max_size=80)
    return ReplicaLists.of_lists(draw(lists))


def reasons() -> st.SearchStrategy[Reason]:
    few = st.integers(0, 3)
    ring = built(RecordedRing, members=st.sampled_from(["0-4,7", "0;1-3"]) | TEXT)
    return built(
        Reason,
        start_index=INDEX,
        shift=st.none() | few | COUNT,
        ring=st.none() | ring,
        moves=st.lists(built(Move), max_size=3).map(tuple),
    )


def replica_maps() -> st.SearchStrategy[ReplicaMap]:
    lists = replica_lists() | ragged_lists()
    return built(
        ReplicaMap,
        replicas=lists,
        cores=st.none() | lists,
        chain_index=INDEX,
        replication_factor=st.integers(1, 32),
        own_events=HASHES,
        reason=st.none() | reasons(),
        is_released=st.just(False),
        need=st.none() | NEEDS,
        wanted_lengths=st.none() | st.lists(st.integers(1, 32), min_size=1, max_size=9).map(tuple),
    )


def messages() -> st.SearchStrategy[Any]:
    def by_topic(cls: type) -> st.SearchStrategy[Any]:
        return st.dictionaries(NAME, st.lists(built(cls), max_size=3).map(tuple), max_size=3)

    chains = [st.tuples(st.just(order), built(Chain)) for order in Order]
    code = st.none() | st.sampled_from(Code)
    return st.one_of(
        replica_maps(),
        built(TopicStatus, code=code, replicas=st.none() | replica_lists()),
        built(RingEvent, spu_id=INT32, code=code),
        built(
            SpuChanged,
            labels=LABELS.map(_in_pairs),
            resources=AMOUNTS.map(_in_pairs),
            core_weights=st.lists(COUNT, max_size=5).map(tuple),
        ),
        built(Waiting, sequence=st.integers(0, 2**63 - 1), need=st.none() | NEEDS),
        built(ChainEntry, chains=st.tuples(*chains)),
        built(SeenEntry, hashes=HASHES),
        built(DeadLetter, source_timestamp_ms=LONG),
        built(
            CommitMarker,
            offsets=by_topic(PartitionOffsets),
            positions=by_topic(PartitionPosition),
            recovered_from=st.none() | built(RecoveredFrom),
            topic_ids=st.dictionaries(NAME, NAME, max_size=2),
        ),
        built(AppliedTopic, recorded_at=LONG),
    )


def entry_of(message: bytes, registry: Registry) -> Registered:
    """The schema that a message names in its frame."""
    makers = (confluent_header, single_object_header)
    return next(
        entry
        for entry in registry.entries
        if any(message.startswith(make(entry)) for make in makers)
    )


def fields_of(value: Any) -> Any:
    """What fastavro takes and gives for an event, a record, or a part of one."""
    match value:
        case Enum():
            return value.name
        case ReplicaLists():
            return value.tolist()
        case ChainEntry():
            chains = [{"order": o.name, **_plain(chain)} for o, chain in value.chains]
            return {**_plain(value), "chains": chains}
        case SeenEntry():
            return _plain(value) | {"hashes": [h.to_bytes(8, "big") for h in value.hashes]}
        case ReplicaMap():
            fields = _plain(value)
            del fields["is_released"]  # It is said of tombstones alone, by their headers.
            return {**fields, "own_events": [h.to_bytes(8, "big") for h in value.own_events]}
        case SpuChanged() | Need():
            pairs = ("labels", "resources", "demand", "leader_demand")
            named = {name: dict(getattr(value, name)) for name in pairs if hasattr(value, name)}
            return _plain(value) | named
        case CommitMarker():
            by_topic = {
                name: {topic: fields_of(each[topic]) for topic in sorted(each)}
                for name in ("offsets", "positions")
                for each in (getattr(value, name),)
            }
            return {**_plain(value), **by_topic}
        case _ if is_dataclass(value):
            return _plain(value)
        case tuple() | list():
            return [fields_of(each) for each in value]
        case dict():
            return {name: fields_of(each) for name, each in value.items()}
        case _:
            return value


def _plain(value: Any) -> dict[str, Any]:
    return {field.name: fields_of(getattr(value, field.name)) for field in fields(value)}


MAP = ReplicaMap(
    cluster_id="c1",
    topic="t",
    revision=1,
    policy=Policy.KAFKA,
    replicas=ReplicaLists.of_lists([[1]]),
    cores=None,
    chain_index=1,
    cause="e5",
    replication_factor=1,
)
STATUS = TopicStatus(
    cluster_id="c1",
    topic="t",
    status=Status.VALIDATED,
    code=None,
    message=None,
    replicas=None,
    cause="e5",
)
RING = RingEvent(
    cluster_id="c1",
    spu_id=0,
    change=RingChange.SATURATED,
    code=None,
    message=None,
    ring_size=1,
    cause="e3",
)


def encode(value: Any, wire: Wire = Wire.CONFLUENT) -> bytes:
    write = encode_event if TYPE_NAMES[type(value)] in EVENT_KINDS else encode_record
    return write(value, wire=wire)


def decode(data: bytes) -> list[Any]:
    """What a message is: an event of one topic or the other, a record, or nothing."""
    found: list[Any] = []
    readers = [partial(decode_event, kind=kind) for kind in get_args(EventKind)]
    for read in (*readers, decode_record):
        with suppress(DecodeError):
            found.append(read(data))
    return found


def example(entry: Registered) -> bytes:
    """The example beside a schema, as fastavro makes a message of it."""
    text = (FOLDER / "examples" / f"{entry.type_name}.json").read_text("utf-8")
    parsed = fastavro.parse_schema(entry.schema)
    (members,) = fastavro.json_reader(StringIO(json.dumps(json.loads(text))), parsed)
    body = BytesIO()
    fastavro.schemaless_writer(body, parsed, members)
    return confluent_header(entry) + body.getvalue()
