"""Hypothesis strategies of events and records, and their fields as fastavro takes them.

`fields_of` is written apart from the codec on purpose: it is the oracle that the codec is held to.
"""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any

import numpy as np
from hypothesis import strategies as st
from hypothesis.extra import numpy as nps
from spu_assigner.core.base.errors import Code
from spu_assigner.core.base.events import (
    ClusterRebalance,
    Event,
    LeaveMode,
    OnShortage,
    Policy,
    SpuJoined,
    SpuLeft,
    TopicCreate,
    TopicDelete,
    TopicGrow,
    TopicRelease,
)
from spu_assigner.core.base.records import (
    Chain,
    ChainEntry,
    Mode,
    Move,
    Order,
    Reason,
    ReplicaMap,
    RingChange,
    RingEvent,
    SeenEntry,
    SpuChanged,
    Status,
    TopicStatus,
    Wait,
    Waiting,
)
from spu_assigner.core.base.replica_lists import ReplicaLists, Table
from spu_assigner.schemas.messages.wire import (
    AppliedTopic,
    CommitMarker,
    DeadLetter,
    Origin,
    PartitionOffsets,
    PartitionPosition,
    RecoveredFrom,
)

INT32 = st.integers(-(2**31), 2**31 - 1) | st.integers(0, 130)
LONG = st.integers(-(2**63), 2**63 - 1) | st.integers(0, 130)
COUNT = st.integers(0, 2**31 - 1) | st.integers(0, 130)
TEXT = st.text(st.characters(codec="utf-8"), max_size=70)
NAME = st.from_regex(r"[a-zA-Z0-9._-]{1,70}", fullmatch=True).filter(lambda x: x not in (".", ".."))
HASH = st.integers(0, 2**64 - 1)
EVENT_ID = st.text(st.characters(codec="utf-8"), min_size=1, max_size=100)
COMMON: dict[str, Any] = {
    "event_id": EVENT_ID,
    "cluster_id": NAME,
    "occurred_at": st.none() | LONG,
}
MANUAL = st.lists(st.fixed_dictionaries({"id": LONG, "replicas": st.lists(LONG, max_size=4)}))
CREATES = st.builds(
    TopicCreate,
    **COMMON,
    topic=NAME,
    partitions=INT32,
    replication_factor=INT32,
    policy=st.none() | st.sampled_from(Policy),
    ignore_rack=st.booleans(),
    start_index=st.none() | INT32,
    shift=st.none() | INT32,
    replicas=st.none() | MANUAL,
    validate_only=st.booleans(),
    on_shortage=st.sampled_from(OnShortage),
)


def events() -> st.SearchStrategy[Event]:
    """Every event that Avro can hold."""
    return st.one_of(
        st.builds(
            SpuJoined,
            **COMMON,
            spu_id=INT32,
            rack=st.none() | TEXT,
            cores=INT32,
            capacity=st.none() | INT32,
            labels=st.none() | st.dictionaries(TEXT, TEXT, max_size=3),
        ),
        st.builds(SpuLeft, **COMMON, spu_id=INT32, mode=st.sampled_from(LeaveMode)),
        CREATES,
        st.builds(TopicDelete, **COMMON, topic=NAME),
        st.builds(TopicRelease, **COMMON, topic=NAME),
        st.builds(TopicGrow, **COMMON, topic=NAME, partitions=INT32),
        st.builds(ClusterRebalance, **COMMON, max_moves=INT32),
    )


@st.composite
def replica_lists(draw: st.DrawFn) -> ReplicaLists:
    """Lists of ids of one to five bytes, sometimes rows of a table, used before or not."""
    largest = draw(st.sampled_from([63, 8191, 2**20, 2**31 - 1]))
    shape = draw(st.tuples(st.integers(1, 90), st.integers(1, 6)))
    matrix = draw(nps.arrays(np.int32, shape, elements=st.integers(0, largest)))
    if draw(st.booleans()):
        return ReplicaLists(matrix)
    start = draw(st.integers(0, shape[0] - 1))
    return ReplicaLists.of_table(Table(matrix), start, draw(st.integers(1, shape[0] - start)))


@st.composite
def ragged_lists(draw: st.DrawFn) -> ReplicaLists:
    """Lists of different length, short ones and long ones."""
    ids = st.integers(0, draw(st.sampled_from([63, 8191, 2**31 - 1])))
    lists = st.lists(st.lists(ids, min_size=1, max_size=4), min_size=2, max_size=80)
    return ReplicaLists.of_lists(draw(lists))


def reasons() -> st.SearchStrategy[Reason]:
    """Of creates, and of repairs with moves; some of the same ring."""
    few = st.integers(0, 3)
    return st.builds(
        Reason,
        mode=st.sampled_from(Mode),
        first_partition=COUNT,
        start_index=st.none() | st.integers(0, 2**63 - 1),
        shift=st.none() | few | COUNT,
        is_named=st.booleans(),
        ring_size=few | COUNT,
        ring_fingerprint=few | HASH,
        offline=few | COUNT,
        saturated=few | COUNT,
        same_rack=COUNT,
        in_list=COUNT,
        moves=st.lists(
            st.builds(Move, partition=COUNT, gone=st.none() | COUNT, taken=st.none() | COUNT),
            max_size=3,
        ).map(tuple),
    )


def replica_maps() -> st.SearchStrategy[ReplicaMap]:
    """Maps of topics that live."""
    return st.builds(
        ReplicaMap,
        cluster_id=NAME,
        topic=NAME,
        revision=COUNT,
        policy=st.sampled_from(Policy),
        replicas=replica_lists() | ragged_lists(),
        cores=st.none() | replica_lists() | ragged_lists(),
        chain_index=st.none() | st.integers(0, 2**63 - 1),
        cause=EVENT_ID,
        replication_factor=st.integers(1, 32),
        ignore_rack=st.booleans(),
        own_events=st.lists(HASH, max_size=3).map(tuple),
        reason=st.none() | reasons(),
    )


def messages() -> st.SearchStrategy[Any]:
    """Every record, entry, dead letter and marker."""
    code = st.none() | st.sampled_from(Code)
    offsets = st.builds(PartitionOffsets, partition=COUNT, first=COUNT, last=COUNT, count=COUNT)
    positions = st.builds(PartitionPosition, partition=COUNT, next=COUNT)
    return st.one_of(
        replica_maps(),
        st.builds(
            TopicStatus,
            cluster_id=NAME,
            topic=NAME,
            status=st.sampled_from(Status),
            code=code,
            message=st.none() | TEXT,
            replicas=st.none() | replica_lists(),
            cause=EVENT_ID,
            moves=st.none() | COUNT,
        ),
        st.builds(
            RingEvent,
            cluster_id=NAME,
            spu_id=INT32,
            change=st.sampled_from(RingChange),
            code=code,
            message=st.none() | TEXT,
            ring_size=COUNT,
            cause=EVENT_ID,
        ),
        st.builds(
            SpuChanged,
            cluster_id=NAME,
            spu_id=COUNT,
            online=st.booleans(),
            rack=st.none() | TEXT,
            cores=COUNT,
            capacity=COUNT,
            labels=st.dictionaries(TEXT, TEXT, max_size=3).map(lambda x: tuple(sorted(x.items()))),
            registration=COUNT,
            core_weights=st.lists(COUNT, max_size=5).map(tuple),
            leaving=st.booleans(),
        ),
        st.builds(
            Waiting,
            cluster_id=NAME,
            topic=NAME,
            sequence=st.integers(0, 2**63 - 1),
            kind=st.sampled_from(Wait),
            cause=EVENT_ID,
            policy=st.none() | st.sampled_from(Policy),
            partitions=COUNT,
            replication_factor=COUNT,
            ignore_rack=st.booleans(),
            start_index=st.none() | COUNT,
            shift=st.none() | COUNT,
        ),
        st.builds(
            ChainEntry,
            cluster_id=NAME,
            chains=st.tuples(
                *(
                    st.tuples(
                        st.just(order),
                        st.builds(Chain, cycle=COUNT, lead=st.none() | COUNT, moved=st.booleans()),
                    )
                    for order in Order
                )
            ),
            registration_next=COUNT,
            seen_count=COUNT,
        ),
        st.builds(
            SeenEntry,
            cluster_id=NAME,
            block=st.integers(0, 15),
            hashes=st.lists(HASH, max_size=16).map(tuple),
        ),
        st.builds(
            DeadLetter,
            source_topic=NAME,
            source_partition=COUNT,
            source_offset=COUNT,
            source_timestamp_ms=LONG,
            code=TEXT,
            message=TEXT,
            raw=st.none() | st.binary(max_size=200),
            size=COUNT,
            sha256=TEXT,
        ),
        st.builds(
            CommitMarker,
            query=TEXT,
            checkpoint_id=TEXT,
            batch=COUNT,
            count=COUNT,
            digest=TEXT,
            offsets=st.dictionaries(NAME, st.lists(offsets, max_size=3).map(tuple), max_size=3),
            release=TEXT,
            shards=COUNT,
            default_policy=TEXT,
            positions=st.dictionaries(NAME, st.lists(positions, max_size=3).map(tuple), max_size=3),
            recovered_from=st.none() | st.builds(RecoveredFrom, checkpoint_id=TEXT, batch=COUNT),
        ),
        st.builds(
            AppliedTopic,
            cluster_id=NAME,
            topic=NAME,
            topic_id=st.none() | TEXT,
            origin=st.sampled_from(Origin),
            recorded_at=LONG,
            lists=TEXT,
        ),
    )


def fields_of(value: Any) -> Any:
    """What fastavro takes and gives for an event, a record, or a part of one."""
    match value:
        case Enum():
            return value.name
        case ReplicaLists():
            return value.tolist()
        case ChainEntry():
            chains = [{"order": o.name, **chain._asdict()} for o, chain in value.chains]
            return {**_plain(value), "chains": chains}
        case SeenEntry():
            return {**_plain(value), "hashes": [h.to_bytes(8, "big") for h in value.hashes]}
        case Reason():
            return {**_plain(value), "ring_fingerprint": value.ring_fingerprint.to_bytes(8, "big")}
        case ReplicaMap():
            fields = _plain(value)
            del fields["is_released"]  # It is said of tombstones alone, by their headers.
            return {**fields, "own_events": [h.to_bytes(8, "big") for h in value.own_events]}
        case SpuChanged():
            return {**_plain(value), "labels": dict(value.labels)}
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
