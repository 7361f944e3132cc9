"""The codec: fastavro's bytes, but strict; never anything but a `DecodeError`."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from io import BytesIO
from typing import Any, get_args

import fastavro
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from spu_assigner.core.base.constraints import Constraints, Preference
from spu_assigner.core.base.errors import AssignerError
from spu_assigner.core.base.events import TopicDelete
from spu_assigner.core.base.limits import MANUAL_MESSAGE_SIZE_MAX, MESSAGE_SIZE_MAX
from spu_assigner.core.base.replica_lists import ReplicaLists
from spu_assigner.schemas.avro.registry import Registry
from spu_assigner.schemas.avro.writing import array_bytes, long_bytes
from spu_assigner.schemas.errors import DeadLetterCode, DecodeError, EncodeError
from spu_assigner.schemas.messages.codec import (
    EventKind,
    decode_event,
    decode_record,
    encode_event,
    encode_record,
)
from spu_assigner.schemas.messages.meanings import TYPE_NAMES
from spu_assigner.schemas.messages.replica_lists import lists_bytes, read_lists
from spu_assigner.schemas.messages.wire import DeadLetter, Wire
from support.events.builders import Events
from support.events.event_codecs import (
    MAP,
    STATUS,
    decode,
    encode,
    entry_of,
    events,
    fields_of,
    messages,
    ragged_lists,
    replica_lists,
)
from support.events.poisons import HUGE
from support.project.case_share import share_of

REGISTRY = Registry.load()
PARSED = {entry.id: fastavro.parse_schema(entry.schema) for entry in REGISTRY.entries}


def letter_of(value: bytes | None, message: str = "m") -> DeadLetter:
    return DeadLetter.of_value(
        value,
        source_topic="t",
        source_partition=0,
        source_offset=1,
        source_timestamp_ms=2,
        code=DeadLetterCode.TOO_LARGE,
        message=message,
    )


# Right bytes.


@given(events() | messages(), st.sampled_from(Wire))
def test_a_message_is_written_as_fastavro_writes_it_and_read_back(value: Any, wire: Wire) -> None:
    for _ in range(2):  # The rows of a table are prepared by its first use.
        data = encode(value, wire)
        out = BytesIO()
        entry = entry_of(data, REGISTRY)
        assert entry.type_name == TYPE_NAMES[type(value)]
        fastavro.schemaless_writer(out, PARSED[entry.id], fields_of(value))
        assert data[5 if wire is Wire.CONFLUENT else 10 :] == out.getvalue()
    assert decode(data) == [value]


def test_the_frames_are_those_of_confluent_and_of_avro() -> None:
    event = TopicDelete(event_id="e", cluster_id="c", topic="t")
    entry = REGISTRY.current("TopicDelete")
    assert encode_event(event)[:5] == b"\x00" + entry.id.to_bytes(4, "big")
    assert encode_event(event, wire=Wire.SINGLE_OBJECT)[:10] == b"\xc3\x01" + bytes.fromhex(
        entry.fingerprint
    )


def test_a_bytearray_is_read_like_bytes() -> None:
    """Spark hands over either, by version and setting."""
    event = Events().create()
    data = encode_event(event)
    assert decode_event(bytearray(data), kind="topic") == event
    assert decode_record(bytearray(encode_record(MAP))) == MAP


@given(replica_lists() | ragged_lists(), st.integers(1, 7))
def test_lists_in_several_sized_blocks_are_read_too(lists: ReplicaLists, rows: int) -> None:
    """Other writers of Avro may split an array, and give the bytes of each part."""
    encoded = [array_bytes([long_bytes(x) for x in each]) for each in lists.tolist()]
    data = b""
    for begin in range(0, len(encoded), rows):
        block = b"".join(encoded[begin : begin + rows])
        data += long_bytes(-len(encoded[begin : begin + rows])) + long_bytes(len(block)) + block
    assert read_lists(data + b"\x00", 0) == (lists, len(data) + 1)


# Wrong bytes.


def test_an_event_of_over_64_kib_needs_manual_lists() -> None:
    """1 MiB is for the lists; names have limits of their own."""
    lists = [{"id": i, "replicas": [1, 2, 3]} for i in range(20_000)]
    event = Events().create(replicas=lists)
    data = encode_event(event)
    assert MESSAGE_SIZE_MAX < len(data) < MANUAL_MESSAGE_SIZE_MAX
    assert decode_event(data, kind="topic") == event
    with pytest.raises(EncodeError, match="at most 65536"):
        encode_event(Events().join(labels={"a": "x" * MESSAGE_SIZE_MAX}))


def test_the_job_s_own_messages_are_no_events_and_events_no_records() -> None:
    """A message in the wrong topic is recognised by its schema."""
    letter, create = letter_of(None), Events().create()
    with pytest.raises(
        DecodeError, match="is that of DeadLetter here; expected SpuJoined, SpuLeft"
    ):
        decode_event(encode_record(letter), kind="spu")
    with pytest.raises(DecodeError, match="the value is a DeadLetter; expected SpuJoined, SpuLeft"):
        decode_event(encode_record(letter, wire=Wire.SINGLE_OBJECT), kind="spu")
    with pytest.raises(DecodeError, match="is that of TopicCreate here; expected a record"):
        decode_record(encode_event(create))
    with pytest.raises(DecodeError, match="the value is a TopicCreate; expected a record"):
        decode_record(encode_event(create, wire=Wire.SINGLE_OBJECT))


@pytest.mark.parametrize("number", [0, 1, 7, 69, 2**31])
@pytest.mark.parametrize("body", [b"\x06abc\x06def", b""])
def test_an_id_of_a_foreign_registry_is_not_called_a_type_that_the_value_has(
    number: int, body: bytes
) -> None:
    """Registries count from 1, as ours does: the same id is of another schema there."""
    for kind in get_args(EventKind):
        with pytest.raises(DecodeError) as caught:
            decode_event(b"\0" + number.to_bytes(4, "big") + body, kind=kind)
        assert "the value is a" not in caught.value.message
        assert f"schema id {number} is " in caught.value.message
        assert "one that another registry gave means nothing here" in caught.value.message


@pytest.mark.parametrize(
    "replicas",
    [
        b"\x00",  # no list
        b"\x04\x00\x00\x00",  # empty lists
        b"\x04\x02\x02\x00\x00\x00",  # one list is empty
        b"\x04\x02\x01\x00\x04\x02\x04\x00\x00",  # -1 in lists of one and of two
        b"\x02" + HUGE + b"\x02\x00\x00",
        HUGE + b"\x02\x02\x00\x00",
        b"\x02\x02" + long_bytes(2**31) + b"\x00\x00",
    ],
)
def test_replica_lists_that_make_no_map_are_refused(replicas: bytes) -> None:
    data = encode_record(replace(MAP, replication_factor=2))
    body = lists_bytes(ReplicaLists.of_lists([[1]]))
    assert data.count(body) == 1
    with pytest.raises(DecodeError) as caught:
        decode_record(data.replace(body, replicas))
    assert caught.value.code is DeadLetterCode.UNDECODABLE


def test_the_lists_of_a_status_are_all_of_one_length() -> None:
    status = replace(STATUS, replicas=ReplicaLists.of_lists([[1, 2], [3]]))
    with pytest.raises(DecodeError, match="2 replica lists have several lengths; expected one"):
        decode_record(encode_record(status))


@st.composite
def mutated(draw: st.DrawFn, sources: st.SearchStrategy[bytes]) -> bytes:
    data = bytearray(draw(sources))
    for _ in range(draw(st.integers(1, 3))):
        place = draw(st.integers(0, len(data)))
        accident = draw(st.sampled_from(["change", "insert", "cut", "drop", "repeat"]))
        if accident == "change" and place < len(data):
            data[place] = draw(st.integers(0, 255))
        elif accident == "insert":
            data[place:place] = draw(
                st.binary(max_size=12) | st.integers(-(2**63), 2**63 - 1).map(long_bytes)
            )
        elif accident == "cut":
            del data[place:]
        elif accident == "drop":
            del data[place : place + 3]
        else:
            data += data[place:]
    return bytes(data)


@settings(max_examples=share_of(1_000))
@given(mutated((events() | messages()).map(encode)) | st.binary())
def test_whatever_the_bytes_the_codec_gives_one_message_or_a_decode_error(data: bytes) -> None:
    """And what it takes, fastavro reads as the same."""
    found = decode(data)
    assert len(found) <= 1
    for value in found:
        assert decode(encode(value)) == [value]
        schema = PARSED[entry_of(data, REGISTRY).id]
        fields: Any = fastavro.schemaless_reader(BytesIO(data[5:]), schema, None)
        assert fields == fields_of(value)


# What cannot be written.


@pytest.mark.parametrize(
    ("event", "says"),
    [
        (Events().create(partitions=2**31), "partitions is 2147483648; expected -2147483648"),
        (Events().join(10**4000), "spu_id is <an integer of 13288 bits>"),
        (Events().create(constraints=Constraints(prefer=(Preference("a", 2**31),))), "2147483648"),
        (Events().delete(occurred_at=2**63), "occurred_at"),
        (Events().create(replicas=[[0, 1]]), "entry 0 is not an object of id and replicas"),
        (Events().create(replicas=[{"id": 0, "replicas": [True]}]), "entry 0 holds True"),
        (Events().create(replicas=[{"id": 0.0, "replicas": []}]), "entry 0 holds 0.0"),
        (Events().create(replicas=[{"id": 2**63, "replicas": []}]), "entry 0 holds 92233720368"),
        (Events().create(replicas={"lists": []}), "expected a list, or an object"),
        (
            Events().create(replicas=[{"id": 0, "replicas": [1] * 2**20}]),
            "has 1048610 bytes; at most 1048576 are taken",
        ),
    ],
)
def test_an_event_that_avro_cannot_hold_is_refused_by_the_writer(event: Any, says: str) -> None:
    with pytest.raises(EncodeError, match=says) as caught:
        encode_event(event)
    assert isinstance(caught.value, AssignerError)
    assert len(str(caught.value)) < 500


def test_a_deleted_map_has_no_value() -> None:
    with pytest.raises(EncodeError, match="tombstone"):
        encode_record(replace(MAP, replicas=None))


def test_a_dead_letter_keeps_64_kib_and_describes_the_rest_by_size_and_digest() -> None:
    """Enough to find the culprit, not enough to fill the topic."""
    letter = letter_of(b"ab" * 50_000, "m" * 9_999)
    assert letter.raw == b"ab" * 32_768
    assert letter.size == 100_000
    assert letter.sha256 == hashlib.sha256(b"ab" * 50_000).hexdigest()
    assert len(letter.message) <= 500
    absent = letter_of(None)
    assert (absent.raw, absent.size) == (None, 0)
