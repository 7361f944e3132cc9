"""Every poison of the catalogue: the outcome that is promised, in bounded memory and time, and the
neighbours are answered.
"""

from __future__ import annotations

import hashlib
import io
import json
import tracemalloc
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from spu_assigner.core.assigner import Assigner
from spu_assigner.core.base.errors import Code, InvalidEventError
from spu_assigner.core.base.events import Event, Policy, SpuJoined
from spu_assigner.core.base.limits import DEAD_LETTER_RAW_SIZE_MAX, MESSAGE_SIZE_MAX
from spu_assigner.core.base.records import RingEvent, TopicStatus
from spu_assigner.core.explain.decisions import ExplainingAssigner, Explanation
from spu_assigner.schemas.errors import DeadLetterCode, DecodeError, EncodeError
from spu_assigner.schemas.messages.codec import EventKind, decode_event, decode_record, encode_event
from spu_assigner.schemas.messages.wire import DeadLetter, Wire
from spu_assigner.stream.client.explanation import explanation_text
from spu_assigner.stream.client.produce_options import AssignmentFileError, read_assignment
from spu_assigner.stream.client.simulate import answer_lines
from spu_assigner.stream.job.shard.batch import DEAD_LETTER_KEY_SIZE_MAX
from spu_assigner.stream.job.shard.bundle import Bundle, InputSource, Message, MessageKind
from spu_assigner.stream.job.shard.clusters import Clusters
from spu_assigner.stream.job.shard.input_batch import Batch, Row
from spu_assigner.stream.job.shard.options import Options
from spu_assigner.stream.job.shard.state_log import Shard
from spu_assigner.stream.kafka.config.settings import Settings, SettingsError
from support.events.builders import Events
from support.events.poisons import (
    FILES,
    LINES,
    MESSAGES,
    SETTINGS,
    SPU_EVENTS,
    File,
    Line,
    Poison,
    create,
    join,
)
from support.shard.stores import DictStore, run_batch

MIB = 1024 * 1024
BY_KEY = (DeadLetterCode.KEY_MISSING, DeadLetterCode.KEY_MISMATCH)  # no fault of the value
GOOD = "good"  # the cluster of the neighbours
OPTIONS = Options(topic_prefix="", default_policy=Policy.FLUVIO, wire=Wire.CONFLUENT)


@contextmanager
def at_most(size: int) -> Iterator[None]:
    """Fails when Python allocates more at any moment."""
    tracemalloc.start()
    try:
        yield
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak <= size, f"{peak / MIB:.1f} MiB were allocated"


# Messages from Kafka.


def test_the_unchanged_bytes_of_the_catalogue_are_events() -> None:
    """Each poison is wrong for its own reason alone."""
    assert decode_event(create(), kind="topic") == Events("c").create(event_id="e")
    assert decode_event(join(), kind="spu") == Events("c").join(event_id="e")


def batch_of(sent: Sequence[Poison | Event]) -> Batch:
    rows: list[Row] = []
    for place, item in enumerate(sent):
        if isinstance(item, Poison):
            is_spu, key, value = item.topic == SPU_EVENTS, item.key, item.value
        else:
            is_spu, key = isinstance(item, SpuJoined), item.cluster_id.encode()
            value = encode_event(item)
        source = InputSource.SPU_EVENTS if is_spu else InputSource.TOPIC_EVENTS
        rows.append((source, 0, place, place, key, value))
    return Batch.of_rows(rows)


def answered(sent: Sequence[Poison | Event]) -> dict[int, list[Message]]:
    found: dict[int, list[Message]] = {}
    for data in run_batch(Shard(Clusters()), DictStore(), batch_of(sent), OPTIONS):
        for message in Bundle(data).messages():
            if message.kind <= MessageKind.DEAD_LETTER:
                found.setdefault(int(message.id.split(b"/")[2]), []).append(message)
    return found


def check(poison: Poison, offset: int, messages: list[Message]) -> None:
    [message] = messages
    assert message.value is not None
    record = decode_record(message.value)
    if poison.letter is None:
        assert isinstance(record, TopicStatus | RingEvent)
        assert record.code is poison.rejection
        assert record.cluster_id.encode() == poison.key == message.key.split(b"/")[0]
        return
    value = poison.value or b""
    assert isinstance(record, DeadLetter)
    assert record.code == poison.letter.value
    assert poison.says in record.message
    assert len(record.message) <= 500
    assert record == DeadLetter(
        source_topic=poison.topic,
        source_partition=0,
        source_offset=offset,
        source_timestamp_ms=offset,
        code=record.code,
        message=record.message,
        raw=None if poison.value is None else value[:DEAD_LETTER_RAW_SIZE_MAX],
        size=len(value),
        sha256=hashlib.sha256(value).hexdigest(),
    )
    assert message.key == (None if poison.key is None else poison.key[:DEAD_LETTER_KEY_SIZE_MAX])


def test_every_poisoned_message_has_the_outcome_that_is_promised_and_its_neighbours_answers() -> (
    None
):
    events = Events(GOOD)
    sent: list[Poison | Event] = [events.join(0)]
    for number, poison in enumerate(MESSAGES):
        sent += [poison, events.create(f"t{number}")]
    found = answered(sent)
    assert sorted(found) == list(range(len(sent)))
    for offset, item in enumerate(sent):
        if isinstance(item, Poison):
            check(item, offset, found[offset])
        else:
            kinds = [message.kind for message in found[offset]]
            joined = isinstance(item, SpuJoined)
            expected = (
                [MessageKind.RING_EVENT]
                if joined
                else [MessageKind.REPLICA_MAP, MessageKind.TOPIC_STATUS]
            )
            assert kinds == expected


@pytest.mark.thorough
@pytest.mark.parametrize("poison", [each for each in MESSAGES if each.value], ids=lambda x: x.name)
def test_a_poisoned_message_is_decoded_in_bounded_memory(poison: Poison) -> None:
    size = len(poison.value or b"")
    kind: EventKind = "spu" if poison.topic == SPU_EVENTS else "topic"
    with at_most(2 * MIB if size <= 2 * MESSAGE_SIZE_MAX else 48 * MIB):
        try:
            decode_event(poison.value, kind=kind)
            found = None
        except DecodeError as error:
            found = error.code
    assert found == (None if poison.letter in BY_KEY else poison.letter)


# Lines.


@pytest.mark.thorough
@pytest.mark.parametrize("line", LINES, ids=lambda line: line.name)
def test_a_poisoned_line_is_reported_and_its_neighbours_are_answered(line: Line) -> None:
    raw = line.make()
    good = [
        b'{"type":"spu_joined","event_id":"a","cluster_id":"g","spu_id":0}',
        b'{"type":"spu_joined","event_id":"b","cluster_id":"g","spu_id":1}',
    ]
    target = io.BytesIO()
    with at_most(6 * MIB + 32 * len(raw)):  # an empty list takes 3 bytes of text and 72 of memory
        status = answer_lines(
            io.BytesIO(b"\n".join((good[0], raw, good[1]))), target, Policy.FLUVIO
        )
    first, poison, last = map(json.loads, target.getvalue().splitlines())
    assert (first["cause"], last["cause"]) == ("a", "b")
    assert len(json.dumps(poison)) < 8 * DEAD_LETTER_RAW_SIZE_MAX
    if line.answer is not None:
        assert (status, poison["type"], poison["code"]) == (0, "topic_status", line.answer)
        assert len(poison["message"]) < 1_000
        return
    assert (status, poison["type"], poison["code"]) == (1, "dead_letter", "BAD_EVENT")
    assert poison["line"] == 2
    assert line.says in poison["message"]
    assert len(poison["message"]) <= 500


def test_a_line_of_a_gigabyte_takes_the_memory_of_8_mib() -> None:
    """It is cut where the limit is, and the rest is read and dropped."""

    class Endless(io.RawIOBase):
        left = 1024 * MIB

        def readable(self) -> bool:
            return True

        def readinto(self, buffer: Any) -> int:
            size = min(len(buffer), self.left)
            self.left -= size
            buffer[:size] = b"x" * size
            return size

    target = io.BytesIO()
    with at_most(40 * MIB):
        assert answer_lines(io.BufferedReader(Endless()), target, Policy.FLUVIO) == 1
    assert b"longer than 8388608 bytes" in target.getvalue()


# Files.


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_a_poisoned_replica_assignment_is_refused_by_name(file: File, tmp_path: Path) -> None:
    """One line that names the file and what to fix, at once and in bounded memory."""
    path = file.make(tmp_path)
    with at_most(40 * MIB), pytest.raises(AssignmentFileError) as caught:
        read_assignment(path)
    assert file.says in str(caught.value)
    assert str(caught.value).startswith(f"replica assignment {str(path)!r} ")
    assert str(caught.value).isprintable()
    assert caught.value.exit_status == 2


@pytest.mark.parametrize("file", SETTINGS, ids=lambda file: file.name)
def test_a_poisoned_settings_file_is_refused_by_name(file: File, tmp_path: Path) -> None:
    """The job must not start with other settings than those meant, nor hang before it."""
    path = file.make(tmp_path)
    with at_most(16 * MIB), pytest.raises(SettingsError) as caught:
        Settings.load(environ={}, file=path)
    assert file.says in str(caught.value)
    assert caught.value.exit_status == 2


def test_a_settings_file_may_be_a_link(tmp_path: Path) -> None:
    """Kubernetes mounts every file of a ConfigMap as one."""
    (tmp_path / "file").write_text("shards = 3\n", encoding="utf-8")
    (tmp_path / "link").symlink_to("file")
    assert Settings.load(environ={}, file=tmp_path / "link").shards == 3


# Values that only those who embed the core, or a command line, can give.

HUGE = 10**5000


@pytest.mark.parametrize(
    ("event", "code"),
    [
        (Events().join(HUGE), Code.INVALID_SPU_ID),
        (Events().leave(HUGE), Code.SPU_UNKNOWN),
        (Events().create(replication_factor=-HUGE), Code.INVALID_REPLICATION_FACTOR),
        (Events().create(policy=Policy.KAFKA, start_index=0, shift=HUGE), Code.INVALID_SHIFT),
        (Events().rebalance(HUGE), Code.INVALID_MAX_MOVES),
        (Events().manual("t", [HUGE]), Code.MANUAL_INVALID_SPU),
    ],
    ids=lambda value: value if isinstance(value, Code) else "",
)
def test_an_integer_that_python_cannot_spell_out_is_answered(event: Event, code: Code) -> None:
    """It refuses more than 4,300 digits, so a message must not quote them; Avro has none such."""
    [answer] = Assigner(Policy.FLUVIO).apply(event)
    assert answer.code is code  # type: ignore[union-attr]
    with pytest.raises(EncodeError, match="an integer of 16610 bits"):
        encode_event(event)


def test_half_a_surrogate_pair_is_refused_where_it_comes_in() -> None:
    """Python makes one of a byte on the command line that is no UTF-8; no message can hold it."""
    with pytest.raises(InvalidEventError, match="half a surrogate pair is none"):
        Events().join(event_id="\udcff")
    for given in ({"rack": "\udcff"}, {"labels": {"a": "\udcff"}}, {"labels": {"\udcff": "a"}}):
        with pytest.raises(InvalidEventError, match="half a surrogate pair is none"):
            Events().join(**given)


def test_an_explanation_cannot_move_the_cursor() -> None:
    """Racks and event ids are free text, and a terminal obeys what is in them."""
    escape = "\x1b[2J\n"
    assigner = ExplainingAssigner(Policy.FLUVIO)
    assigner.apply(Events().join(0, rack=escape))
    [(_, reasons), _] = assigner.apply(Events().create(event_id=escape))
    [(partition, decision)] = reasons
    text = explanation_text(
        Explanation(
            cluster_id="c1",
            topic="t",
            partition=partition,
            policy=Policy.FLUVIO,
            replicas=decision.replicas,
            decisions=(decision,),
            is_whole=True,
        )
    )
    assert text.count(r"\x1b[2J\n") == 2
    assert all(line.isprintable() for line in text.split("\n"))
