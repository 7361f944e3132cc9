"""What is fuzzed, each with the promise that no input may break.

A target takes bytes and raises whatever is wrong. `seeds` are good inputs for it, made from the
examples beside the schemas. Import this module where the fuzzer can instrument what it imports.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from io import BytesIO, StringIO
from itertools import chain, product
from pathlib import Path
from typing import Any

import fastavro
from spu_assigner.core.base.constraints import (
    Constraints,
    Preference,
    SpreadLevel,
    Taint,
    TaintEffect,
    Toleration,
)
from spu_assigner.core.base.events import (
    ClusterRebalance,
    Event,
    LeaveMode,
    OnShortage,
    Policy,
    SpuCordon,
    SpuDemote,
    SpuEvent,
    SpuJoined,
    SpuLeft,
    SpuUncordon,
    SpuUndemote,
    TopicAdopted,
    TopicConstraints,
    TopicCreate,
    TopicDelete,
    TopicDemand,
    TopicGrow,
    TopicRelease,
    TopicReplication,
)
from spu_assigner.core.base.records import RingChange
from spu_assigner.core.decision.machine import step
from spu_assigner.core.policies.manual_lists import ManualFault, read_lists
from spu_assigner.core.state.cluster_state import ClusterState
from spu_assigner.schemas.avro.registry import FOLDER, Registry
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
    type_name_of,
)
from spu_assigner.schemas.messages.wire import DeadLetter, Wire
from spu_assigner.stream.client.assignment_file import AssignmentFileError, read_assignment
from spu_assigner.stream.common.json_line_reading import event_of_line
from spu_assigner.stream.job.shard.batch import Options
from spu_assigner.stream.job.shard.bundle import Bundle, InputSource, MessageKind
from spu_assigner.stream.job.shard.clusters import Clusters
from spu_assigner.stream.job.shard.input_batch import Batch
from spu_assigner.stream.job.shard.state_log import Shard
from support.events.event_codecs import fields_of
from support.model.pictures import picture
from support.model.shadow import Shadow, is_remembered
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
    """The examples beside the schemas as messages."""
    for path in sorted((FOLDER / "examples").glob("*.json")):
        parsed = _PARSED[path.stem]
        one_line = json.dumps(json.loads(path.read_text("utf-8")))
        (fields,) = fastavro.json_reader(StringIO(one_line), parsed)
        body = BytesIO()
        fastavro.schemaless_writer(body, parsed, fields)
        yield confluent_header(_REGISTRY.current(path.stem)) + body.getvalue()


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
    name = type_name_of(value)
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
    events = [decode_event(message, kind=_kind_of(message)) for message in _event_examples()]
    return [event_to_json(event).encode() for event in events]


def _event_examples() -> list[bytes]:
    return [message for message in _examples() if not _is_record(message)]


def _is_record(message: bytes) -> bool:
    try:
        decode_record(message)
    except DecodeError:
        return False
    return True


def _kind_of(message: bytes) -> EventKind:
    try:
        decode_event(message, kind="spu")
    except DecodeError:
        return "topic"
    return "spu"


# Files of manual lists.

_FOLDER = Path(tempfile.mkdtemp(prefix="fuzz-"))


def manual_file(data: bytes) -> None:
    """A file holds lists or is refused by name; lists are read or their first fault is named."""
    path = _FOLDER / "lists.json"
    path.write_bytes(data)
    try:
        lists = read_assignment(path)
    except AssignmentFileError as error:
        _hold(str(path) in str(error), f"{error} names no file")
        return
    finally:
        path.unlink()
    is_sound = True
    try:
        read_lists(lists)
    except ManualFault:
        is_sound = False
    event = TopicCreate(event_id="e", cluster_id="c", topic="t", replicas=lists)
    _hold(event_from_json(event_to_json(event)) == event, f"{lists} did not survive its line")
    try:
        found = decode_event(encode_event(event), kind="topic")
    except EncodeError:
        _hold(not is_sound, f"{lists} is sound and cannot be sent")
        return
    plain = lists["partitions"] if isinstance(lists, dict) else lists
    _hold(isinstance(found, TopicCreate) and found.replicas == plain, f"{lists} became {found}")


def _manual_file_seeds() -> list[bytes]:
    lists = [{"id": 0, "replicas": [0, 1]}, {"id": 1, "replicas": [1, 2]}]
    forms: list[Any] = [lists, {"partitions": lists}, [], [{"id": 0, "replicas": [2**31]}]]
    texts = [json.dumps(form).encode() for form in forms]
    return [*texts, b"\xef\xbb\xbf" + texts[0], b'[{"id":0,"id":0}]', b"[NaN]", b"[[[[[[]]]]]]"]


# The core.

_NUMBERS = (0, 1, 2, 3, 4, 5, 6, 8, 12, 17, 33, -1, -(2**31), 2**31 - 1, 2**31, 100_001)
_LETTERS = "jjjjuoxcccccmdgbrkaftnql"
_SELECTORS = (
    *("tier", "!tier", "tier=ssd", "tier in (ssd, hdd)", "tier notin (hdd), zone", "rack=a"),
    *("rack != b", "spu_id notin (0, 3)", "spu_id in (1, 2, 3, 4)", "zone=", "tier in (ssd"),
)
_VALUES = (None, "ssd", "hdd", "x")
_EVENTS_MAX = 24


class _Bytes:
    """The input, taken piece by piece; 0 when it is used up."""

    def __init__(self, data: bytes) -> None:
        self._data = iter(data)
        self.is_empty = not data

    def byte(self) -> int:
        found = next(self._data, None)
        self.is_empty = found is None
        return found or 0

    def one_of(self, choices: Any) -> Any:
        return choices[self.byte() % len(choices)]

    def number(self, most: int) -> int:
        """Mostly 0 to `most`, sometimes a number that nobody expects."""
        byte = self.byte()
        return _NUMBERS[byte & 15] if byte >= 240 else byte % (most + 1)


def events_of(data: bytes) -> list[Event]:
    """A life of one small cluster."""
    source = _Bytes(data)
    events: list[Event] = []
    while not source.is_empty and len(events) < _EVENTS_MAX:
        letter = source.one_of(_LETTERS)
        if letter == "r" and events:
            events.append(source.one_of(events))
        else:
            common = {"event_id": f"e{len(events)}", "cluster_id": "c1"}
            events.append(_event(letter, common, source))
    return events


def _topic(byte: int) -> str:
    """One of five topics; now and then a name that none may have."""
    return ("__t", "replica-map")[byte % 2] if byte >= 240 else f"t{byte % 5}"


def _constraints(source: _Bytes) -> Constraints:
    """Rules of some kinds, one of each; selectors that are none among them."""
    kinds = source.byte()

    def some(kind: int, choices: Any) -> tuple[Any, ...]:
        return (source.one_of(choices),) if kinds >> kind & 1 else ()

    topics = [f"t{number}" for number in range(5)]
    numbers = (None, 1, 2, 0)
    levels = [SpreadLevel(*each) for each in product(("zone", "rack", "spu_id"), numbers, numbers)]
    return Constraints(
        tolerations=some(0, [Toleration("k"), Toleration("k", "v")]),
        require=some(1, _SELECTORS),
        forbid=some(2, _SELECTORS),
        prefer=some(3, [Preference(each, 10 - 4 * at) for at, each in enumerate(_SELECTORS)]),
        spread=some(4, levels),
        apart_from=some(5, topics),
        together_with=some(6, topics),
        leaders=some(7, _SELECTORS),
    )


def _ruled_event(letter: str, common: dict[str, Any], source: _Bytes) -> Event:
    """One of taints and constraints."""
    match letter:
        case "t":
            named = {"tier": source.one_of(_VALUES), "zone": source.one_of(_VALUES)}
            taints = [Taint("k", value, effect) for effect in TaintEffect for value in ("v", "w")]
            return SpuJoined(
                **common,
                spu_id=source.number(7),
                rack=source.one_of((None, "a", "b", "c")),
                capacity=source.one_of((None, 3, 6, 12)),
                labels={name: value for name, value in named.items() if value is not None},
                taints=tuple(source.one_of(taints) for _ in range(source.byte() % 3)),
            )
        case "n":
            return TopicCreate(
                **common,
                topic=_topic(source.byte()),
                partitions=source.number(9),
                replication_factor=source.number(4),
                on_shortage=source.one_of(tuple(OnShortage)),
                constraints=_constraints(source),
            )
        case _:
            topic = f"t{source.byte() % 5}"
            return TopicConstraints(**common, topic=topic, constraints=_constraints(source))


def _amounts(source: _Bytes) -> dict[str, int]:
    """Amounts of some resources, or none."""
    named = source.byte() % 4
    return {name: source.number(40) for at, name in enumerate(("cpu", "disk")) if named >> at & 1}


def _loaded_event(common: dict[str, Any], source: _Bytes) -> Event:
    """One of resources and of what is needed of them."""
    match source.byte() % 4:
        case 0:
            return SpuJoined(
                **common,
                spu_id=source.number(7),
                rack=source.one_of((None, "a", "b", "c")),
                capacity=12,
                resources=_amounts(source),
            )
        case 1:
            return TopicCreate(
                **common,
                topic=_topic(source.byte()),
                partitions=source.number(6),
                replication_factor=source.number(4),
                on_shortage=source.one_of(tuple(OnShortage)),
                demand=_amounts(source),
                leader_demand=_amounts(source),
            )
        case 2:
            topic = f"t{source.byte() % 5}"
            return TopicDemand(**common, topic=topic, demand=_amounts(source))
        case _:
            return ClusterRebalance(
                **common,
                max_moves=source.number(30),
                max_bytes=source.one_of((None, 0, 9, 40, -1, 2**53)),
                band_percent=source.one_of((None, 0, 5, 30, 1_000, -1, 1_001)),
                band=source.one_of((None, 0, 1, -1, 2)),
            )


def _event(letter: str, common: dict[str, Any], source: _Bytes) -> Event:
    match letter:
        case "j":
            return SpuJoined(
                **common,
                spu_id=source.number(7),
                rack=source.one_of((None, "a", "b", "c", "")),
                cores=1 + source.number(2),
                capacity=source.one_of((None, 0, 1, 3, 6, 12, 40, -1, 2**31)),
            )
        case "u" | "o":
            return SpuLeft(**common, spu_id=source.number(7))
        case "x":
            return SpuLeft(**common, spu_id=source.number(7), mode=LeaveMode.DECOMMISSION)
        case "k":
            change = (SpuCordon, SpuUncordon, SpuDemote, SpuUndemote)[source.byte() & 3]
            return change(**common, spu_id=source.number(7))
        case "t" | "n" | "q":
            return _ruled_event(letter, common, source)
        case "l":
            return _loaded_event(common, source)
        case "d":
            kind = source.byte()
            forget = TopicRelease if kind & 8 else TopicDelete
            return forget(**common, topic=f"t{kind % 5}")
        case "g":
            topic = f"t{source.byte() % 5}"
            return TopicGrow(**common, topic=topic, partitions=source.number(20))
        case "a":
            rows = [
                tuple(source.number(7) for _ in range(source.byte() % 5))
                for _ in range(source.byte() % 4)
            ]
            return TopicAdopted(
                **common,
                topic=_topic(source.byte()),
                replicas=tuple(rows),
                policy=source.one_of((None, *Policy)),
                pinned=source.byte() & 1 == 1,
            )
        case "f":
            topic, factor = f"t{source.byte() % 5}", source.number(6)
            return TopicReplication(**common, topic=topic, replication_factor=factor)
        case "b":
            return ClusterRebalance(**common, max_moves=source.number(30))
        case "m":
            lists = [
                [source.number(7) for _ in range(1 + source.byte() % 3)]
                for _ in range(source.byte() % 4)
            ]
            replicas = [{"id": place, "replicas": ids} for place, ids in enumerate(lists)]
            topic = _topic(source.byte())
            return TopicCreate(**common, topic=topic, replicas=replicas)
    flags = source.byte()
    return TopicCreate(
        **common,
        topic=_topic(source.byte()),
        partitions=source.number(16),
        replication_factor=source.number(4),
        policy=source.one_of((None, *Policy)),
        ignore_rack=flags & 1 == 1,
        validate_only=flags & 14 == 14,
        on_shortage=OnShortage.WAIT if flags & 16 else OnShortage.REJECT,
        start_index=source.number(40) if flags & 96 == 96 else None,
        shift=source.number(9) if flags & 224 == 224 else None,
    )


def core(data: bytes) -> None:
    """Every event is answered, and the invariants hold after each."""
    state, shadow = ClusterState("c1"), Shadow()
    for event in events_of(data):
        is_known = is_remembered(state, event)
        records = step(state, event, default_policy=Policy.BALANCED)
        shadow.follow(state, event, records, is_known=is_known)


def _core_seeds() -> list[bytes]:
    joins = bytes(chain.from_iterable((0, spu_id, 1 + spu_id % 3, 0, 4) for spu_id in range(5)))
    creates = bytes(chain.from_iterable((7, 16, topic, 4, 2, 1 + topic, 0) for topic in range(5)))
    later = bytes((6, 1, 14, 0, 14, 8, 9, 15, 20, 13, 1, 5, 2, 11, 2, 1, 1, 2, 3, 2))
    ruled = bytes(chain.from_iterable((20, 1, 2, spu_id, 1, 0, 1, spu_id) for spu_id in range(5)))
    bound = bytes((21, 1, 3, 2, 1, 22, 2, 3, 1, 22, 1, 7, 0, 6, 7, 21, 2, 2, 2, 0, 144, 1, 6))
    loaded = bytes(
        chain.from_iterable((23, 0, spu_id, spu_id % 4, 3, 20, 30) for spu_id in range(5))
    )
    needing = bytes(chain.from_iterable((23, 1, topic, 3, 2, 1, 2, 4, 1, 2) for topic in range(4)))
    measured = bytes((23, 2, 0, 3, 1, 9, 23, 3, 20, 3, 3, 23, 2, 0, 2, 40, 23, 3, 9, 0, 2, 6, 2))
    return [
        joins,
        joins + creates,
        loaded + needing + measured,
        loaded + needing + measured + later,
        joins + creates + later,
        joins + creates + later + joins,
        joins + creates + ruled + bound,
        ruled + bound + later + joins,
    ]


# Messages from Kafka.

_MESSAGES_MAX = 16
_OPTIONS = Options(
    topic_prefix="",
    default_policy=Policy.BALANCED,
    wire=Wire.CONFLUENT,
)


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
    count = len(raws)
    batch = Batch.of_rows(
        [(raw.source, 0, place, place, raw.key, raw.value) for place, raw in enumerate(raws)]
    )
    answers, letters, joins = [0] * count, [0] * count, [False] * count
    for bundle in run_batch(shard, store, batch, _OPTIONS):
        for message in Bundle(bundle).messages():
            offset = int(message.id.split(b"/")[2])
            if message.kind == MessageKind.DEAD_LETTER:
                letters[offset] += 1
                letter = decode_record(message.value or b"")
                _hold(isinstance(letter, DeadLetter), f"a dead letter is {letter}")
            else:
                answers[offset] += message.kind < MessageKind.DEAD_LETTER
                if message.value is not None:
                    record = decode_record(message.value)
                    joins[offset] |= getattr(record, "change", None) is RingChange.JOINED
    _check_each(raws, answers, letters, joins)
    again = Clusters()
    begin(Shard(again), store)
    known = {name: state for name, state in shard.copy.items() if state.memory.count}
    _hold(again.keys() == known.keys(), f"kept {list(again)}, known {list(known)}")
    for name, state in known.items():
        _hold(picture(again[name]) == picture(state), f"{name} is restored as another state")


def _check_each(raws: list[Raw], answers: list[int], letters: list[int], joins: list[bool]) -> None:
    seen: set[tuple[str, str]] = set()
    clusters: set[str] = set()  # with an SPU: one that has nothing remembers nothing
    for raw, answered, dead, joined in zip(raws, answers, letters, joins, strict=True):
        event = None
        try:
            kind: EventKind = "spu" if raw.source is InputSource.SPU_EVENTS else "topic"
            event = decode_event(raw.value, kind=kind)
        except DecodeError:
            pass
        if event is None or raw.key != event.cluster_id.encode():
            _hold((answered, dead) == (0, 1), f"{raw}: {answered} answers, {dead} dead letters")
        elif (event.cluster_id, event.event_id) in seen:
            _hold((answered, dead) == (0, 0), f"a copy, {raw}, has {answered} answers")
        else:
            clusters.update([event.cluster_id] if joined else [])
            if event.cluster_id in clusters:
                seen.add((event.cluster_id, event.event_id))
            _hold(answered > 0 and dead == 0, f"{raw}: {answered} answers, {dead} dead letters")


def _shard_batch_seeds() -> list[bytes]:
    events: list[Event] = [
        SpuJoined(event_id=f"j{spu_id}", cluster_id="c1", spu_id=spu_id, rack="ab"[spu_id % 2])
        for spu_id in range(4)
    ]
    events += [
        TopicCreate(event_id="t", cluster_id="c1", topic="t", partitions=3, replication_factor=2),
        TopicGrow(event_id="g", cluster_id="c1", topic="t", partitions=5),
        SpuLeft(event_id="l", cluster_id="c1", spu_id=0, mode=LeaveMode.DECOMMISSION),
        SpuCordon(event_id="k", cluster_id="c1", spu_id=1),
        ClusterRebalance(event_id="b", cluster_id="c1", max_moves=9),
        TopicAdopted(event_id="a", cluster_id="c1", topic="a", replicas=((1, 2), (3,))),
        TopicReplication(event_id="f", cluster_id="c1", topic="a", replication_factor=2),
        SpuUncordon(event_id="n", cluster_id="c1", spu_id=1),
        SpuDemote(event_id="m", cluster_id="c1", spu_id=1),
        SpuUndemote(event_id="p", cluster_id="c1", spu_id=1),
        TopicDelete(event_id="d", cluster_id="c1", topic="t"),
        TopicCreate(event_id="u", cluster_id="c1", topic="t", partitions=3, replication_factor=2),
        TopicRelease(event_id="r", cluster_id="c1", topic="t"),
    ]
    parts = [(isinstance(event, SpuEvent), _seed_of(encode_event(event))) for event in events]
    packed = [bytes((is_spu,)) + len(seed).to_bytes(2, "big") + seed for is_spu, seed in parts]
    singles = [
        b"\x00" + len(seed).to_bytes(2, "big") + seed
        for seed in (_seed_of(message) for message in _examples())
    ]
    return [b"".join(packed), b"".join(packed[:5]), *singles]


TARGETS = {
    target.name: target
    for target in (
        Target(name="decoder", one=decoder, seeds=_decoder_seeds, size_max=512, share=48),
        Target(name="jsonl", one=jsonl, seeds=_jsonl_seeds, size_max=1024, share=20),
        Target(
            name="manual_file", one=manual_file, seeds=_manual_file_seeds, size_max=512, share=20
        ),
        Target(
            name="shard_batch", one=shard_batch, seeds=_shard_batch_seeds, size_max=1024, share=8
        ),
        Target(name="core", one=core, seeds=_core_seeds, size_max=192, share=4),
    )
}
