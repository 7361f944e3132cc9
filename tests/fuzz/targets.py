"""What is fuzzed, each with the promise that no input may break.

A target takes bytes and raises whatever is wrong. `seeds` are good inputs for it, made from the
examples beside the schemas. Import this module where the fuzzer can instrument what it imports.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from io import BytesIO
from typing import Any

import fastavro
from spu_assigner.core.base.events import Policy, SpuEvent, TopicCreate
from spu_assigner.core.decision.machine import step
from spu_assigner.core.state.cluster_state import ClusterState
from spu_assigner.schemas.avro.registry import Registry
from spu_assigner.schemas.errors import DeadLetterCode, DecodeError, EncodeError
from spu_assigner.schemas.json_lines.lines import event_from_json, event_to_json
from spu_assigner.schemas.messages.codec import (
    EventKind,
    confluent_header,
    decode_event,
    decode_record,
    encode_event,
    encode_record,
    single_object_header,
)
from spu_assigner.schemas.messages.meanings import TYPE_NAMES
from spu_assigner.schemas.messages.wire import DeadLetter, Wire
from spu_assigner.stream.common.json_line_reading import event_of_line
from spu_assigner.stream.job.shard.bundle import Bundle, InputSource, MessageKind
from spu_assigner.stream.job.shard.clusters import Clusters
from spu_assigner.stream.job.shard.input_batch import Batch
from spu_assigner.stream.job.shard.options import Options
from spu_assigner.stream.job.shard.state_log import Shard
from support.events.event_codecs import example, fields_of
from support.events.one_cluster import picture
from support.events.random_lives import life_of
from support.model.shadow import is_remembered
from support.shard.stores import DictStore, begin, run_batch


class PromiseError(Exception):
    """An input broke what its target promises."""


@dataclass(frozen=True, kw_only=True)
class Target:
    """One promise under fire."""

    name: str
    one: Callable[[bytes], None]  # raises if the promise is broken
    seeds: Callable[[], list[bytes]]
    size_max: int  # of an input, bytes
    share: int  # of 100 inputs: the slower ones get fewer


_REGISTRY = Registry.load()
_HEADERS = [
    make(entry) for entry in _REGISTRY.entries for make in (confluent_header, single_object_header)
]
_PARSED = {
    name: fastavro.parse_schema(_REGISTRY.current(name).schema) for name in _REGISTRY.type_names
}
_RAW = 255  # as first byte of a message: what follows has its own header
_CLUSTERS = (b"c1", b"c2", b"c", b"..")


def _hold(claim: bool, otherwise: str) -> None:
    if not claim:
        raise PromiseError(otherwise)


def message_of(data: bytes) -> bytes:
    """A message: the first byte chooses a header, so that few inputs end at an unknown schema."""
    if not data or data[0] == _RAW:
        return data[1:]
    return _HEADERS[data[0] % len(_HEADERS)] + data[1:]


def _seed_of(message: bytes) -> bytes:
    """The input that gives this message."""
    for index, header in enumerate(_HEADERS):
        if message.startswith(header):
            return bytes((index,)) + message[len(header) :]
    return bytes((_RAW,)) + message


def _examples() -> Iterator[bytes]:
    return (example(_REGISTRY.current(name)) for name in _REGISTRY.type_names)


# The decoder.


def decoder(data: bytes) -> None:
    """An event, a record or a DecodeError; what decodes is what fastavro reads, whole and no more,
    and comes back from either encoding."""
    message = message_of(data)
    kinds: tuple[EventKind, EventKind] = ("spu", "topic")
    for kind in kinds:
        try:
            event = decode_event(message, kind=kind)
        except DecodeError as error:
            _hold(error.code in DeadLetterCode, f"{error.code} is no code")
            continue
        _check_whole(message, event, lambda raw, kind=kind: decode_event(raw, kind=kind))
        for wire in Wire:
            again = decode_event(encode_event(event, wire=wire), kind=kind)
            _hold(again == event, f"{event} came back as {again}")
    try:
        record = decode_record(message)
    except DecodeError:
        return
    _check_whole(message, record, decode_record)
    for wire in Wire:
        found = decode_record(encode_record(record, wire=wire))
        _hold(found == record, f"{record} came back as {found}")


def _check_whole(message: bytes, value: Any, decode: Callable[[bytes], Any]) -> None:
    """The value takes all bytes and needs them all, and fastavro reads the same."""
    for changed in (message + b"\x00", message[:-1]):
        try:
            found = decode(changed)
        except DecodeError:
            continue
        raise PromiseError(f"{message.hex()} is {value}, and with a byte more or less {found}")
    name = TYPE_NAMES[type(value)]
    for make in (confluent_header, single_object_header):
        header = make(_REGISTRY.current(name))
        if message.startswith(header):
            body = BytesIO(message[len(header) :])
            fields = fastavro.schemaless_reader(body, _PARSED[name], None)
            if name != "ReplicaMap" or fields["replication_factor"] > 0:  # 0: filled in
                _hold(fields == fields_of(value), f"fastavro reads {fields}, we {value}")


def _decoder_seeds() -> list[bytes]:
    return [_seed_of(message) for message in _examples()]


# Lines of JSON.


def jsonl(data: bytes) -> None:
    """A line is an event, blank, or a DecodeError; an event comes back from its line, and from
    Avro if that can hold it."""
    try:
        event = event_of_line(data)
    except DecodeError as error:
        _hold(error.code is DeadLetterCode.BAD_EVENT, f"a line has {error.code}")
        return
    if event is None:
        _hold(not data.strip(), "a line was passed over")
        return
    again = event_from_json(event_to_json(event))
    _hold(again == event, f"{event} came back as {again}")
    try:
        message = encode_event(event)
    except EncodeError:
        return
    kind: EventKind = "spu" if isinstance(event, SpuEvent) else "topic"
    found = decode_event(message, kind=kind)
    if isinstance(event, TopicCreate) and isinstance(event.replicas, dict):
        event = replace(event, replicas=event.replicas["partitions"])
    _hold(found == event, f"{event} came back from Avro as {found}")


def _jsonl_seeds() -> list[bytes]:
    kinds: tuple[EventKind, EventKind] = ("spu", "topic")
    seeds = []
    for message in _examples():
        for kind in kinds:
            with suppress(DecodeError):  # It is a record, or an event of the other kind.
                seeds.append(event_to_json(decode_event(message, kind=kind)).encode())
    return seeds


# Messages from Kafka.

_MESSAGES_MAX = 16
_OPTIONS = Options(topic_prefix="", default_policy=Policy.BALANCED, wire=Wire.CONFLUENT)


@dataclass(frozen=True, kw_only=True)
class Raw:
    """One message as Kafka hands it over."""

    source: InputSource
    key: bytes | None
    value: bytes | None


def raws_of(data: bytes) -> list[Raw]:
    """Messages: a byte of flags, a size in two bytes, and so many bytes of message each."""
    raws: list[Raw] = []
    while len(data) >= 3 and len(raws) < _MESSAGES_MAX:
        flags, size = data[0], int.from_bytes(data[1:3], "big")
        value: bytes | None = message_of(data[3 : 3 + size])
        data = data[3 + size :]
        source = InputSource.SPU_EVENTS if flags & 1 else InputSource.TOPIC_EVENTS
        key = value[:9] if value and flags & 8 else _CLUSTERS[flags >> 1 & 3]
        if flags & 192 == 192:
            value = None
        raws.append(Raw(source=source, key=None if flags & 48 == 48 else key, value=value))
    return raws


def shard_batch(data: bytes) -> None:
    """Every message is one dead letter or is answered, and what was kept rebuilds the state."""
    raws = raws_of(data)
    if not raws:
        return
    store, shard = DictStore(), Shard(Clusters())
    batch = Batch.of_rows(
        [(raw.source, 0, place, place, raw.key, raw.value) for place, raw in enumerate(raws)]
    )
    answers, letters = [0] * len(raws), [0] * len(raws)
    for bundle in run_batch(shard, store, batch, _OPTIONS):
        for message in Bundle(bundle).messages():
            offset = int(message.id.split(b"/")[2])
            if message.kind == MessageKind.DEAD_LETTER:
                letters[offset] += 1
                letter = decode_record(message.value or b"")
                _hold(isinstance(letter, DeadLetter), f"a dead letter is {letter}")
            else:
                answers[offset] += message.kind < MessageKind.DEAD_LETTER
    _check_each(raws, answers, letters)
    again = Clusters()
    begin(Shard(again), store)
    known = {name: state for name, state in shard.copy.items() if state.memory.count}
    _hold(again.keys() == known.keys(), f"kept {list(again)}, known {list(known)}")
    for name, state in known.items():
        _hold(picture(again[name]) == picture(state), f"{name} is restored as another state")


def _check_each(raws: list[Raw], answers: list[int], letters: list[int]) -> None:
    states: dict[str, ClusterState] = {}
    for raw, answered, dead in zip(raws, answers, letters, strict=True):
        event = None
        with suppress(DecodeError):
            kind: EventKind = "spu" if raw.source is InputSource.SPU_EVENTS else "topic"
            event = decode_event(raw.value, kind=kind)
        said = f"{raw}: {answered} answers, {dead} dead letters"
        if event is None or raw.key != event.cluster_id.encode():
            _hold((answered, dead) == (0, 1), said)
            continue
        state = states.setdefault(event.cluster_id, ClusterState(event.cluster_id))
        is_known = is_remembered(state, event)
        _hold(dead == 0 and (answered == 0 if is_known else answered > 0), said)
        step(state, event, default_policy=_OPTIONS.default_policy)


def _shard_batch_seeds() -> list[bytes]:
    def packed(message: bytes, *, is_spu: bool = False) -> bytes:
        seed = _seed_of(message)
        return bytes((is_spu,)) + len(seed).to_bytes(2, "big") + seed

    lives = [life_of(number).events[:_MESSAGES_MAX] for number in range(8)]
    together = [
        b"".join(packed(encode_event(each), is_spu=isinstance(each, SpuEvent)) for each in events)
        for events in lives
    ]
    return [*together, *map(packed, _examples())]


TARGETS = {
    target.name: target
    for target in (
        Target(name="decoder", one=decoder, seeds=_decoder_seeds, size_max=512, share=48),
        Target(name="jsonl", one=jsonl, seeds=_jsonl_seeds, size_max=1024, share=40),
        Target(
            name="shard_batch", one=shard_batch, seeds=_shard_batch_seeds, size_max=1024, share=12
        ),
    )
}
