"""What worker and keeper say to each other: bytes that can be nothing but what they were."""

from __future__ import annotations

import pickle
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from spu_assigner.core.base.events import Policy
from spu_assigner.schemas.messages.wire import Wire
from spu_assigner.stream.shard import protocol as said
from spu_assigner.stream.shard.batch import Batch, Options
from spu_assigner.stream.shard.protocol import KeeperMessageError, decode, encode

_LONGS = st.integers(-(2**63), 2**63 - 1)
_BYTES = st.binary(max_size=40)
_TEXT = st.text(max_size=12)
_OPTIONS = st.builds(
    Options,
    query_name=_TEXT,
    topic_prefix=_TEXT,
    default_policy=st.sampled_from(Policy),
    wire=st.sampled_from(Wire),
    keepers=st.none() | _TEXT,
)
_ANSWERS = st.one_of(
    st.builds(said.Bundle, _BYTES),
    st.builds(said.Get, _TEXT),
    st.builds(said.Put, _TEXT, _BYTES),
    st.builds(said.Remove, _TEXT),
    st.builds(said.Items),
    st.builds(said.Done),
    st.builds(said.Failed, _TEXT, _TEXT),
    st.builds(said.Value, st.none() | _BYTES),
    st.builds(said.Piece, st.lists(st.tuples(_TEXT, _BYTES), max_size=4)),
)


class Bomb:
    """What makes a pickle dangerous: reading it runs something."""

    def __init__(self, mark: Path) -> None:
        self._mark = mark

    def __reduce__(self) -> tuple[object, tuple[object, ...]]:
        return Path.touch, (self._mark,)


@st.composite
def asks(draw: st.DrawFn) -> said.Ask:
    rows = draw(st.integers(0, 5))
    columns = [
        np.array(draw(st.lists(_LONGS, min_size=rows, max_size=rows)), dtype=np.int64)
        for _ in range(4)
    ]
    keys, values = (
        draw(st.lists(st.none() | _BYTES, min_size=rows, max_size=rows)) for _ in range(2)
    )
    source, partition, offset, time_ms = columns
    batch = Batch(
        source=source, partition=partition, offset=offset, time_ms=time_ms, keys=keys, values=values
    )
    return said.Ask(batch, draw(_OPTIONS))


def shown(message: said.Message) -> object:
    """A message as something that can be compared: arrays have no plain equality."""
    if not isinstance(message, said.Ask):
        return message
    batch = message.batch
    columns = (batch.source, batch.partition, batch.offset, batch.time_ms)
    return message.options, [each.tolist() for each in columns], batch.keys, batch.values


@given(message=_ANSWERS | asks())
def test_a_message_arrives_as_it_was_sent(message: said.Message) -> None:
    """One byte astray and a decision would differ from its replay."""
    assert shown(decode(encode(message))) == shown(message)


@given(message=_ANSWERS | asks(), size=st.integers(0, 200))
def test_part_of_a_message_is_another_message_or_refused(message: said.Message, size: int) -> None:
    """Whatever the bytes, nothing but the named error comes out."""
    with suppress(KeeperMessageError):
        found = decode(encode(message)[:size])
        assert shown(decode(encode(found))) == shown(found)


@given(data=st.binary(max_size=200))
def test_foreign_bytes_are_a_message_or_refused(data: bytes) -> None:
    """Lengths in them are never believed beyond what is there."""
    with suppress(KeeperMessageError):
        found = decode(data)
        assert shown(decode(encode(found))) == shown(found)


def test_bytes_too_many_are_refused() -> None:
    """They would belong to a newer release's message."""
    with pytest.raises(KeeperMessageError, match=r"DONE .* 3 bytes too many"):
        decode(encode(said.Done()) + b"abc")


def test_a_pickle_among_the_bytes_stays_bytes(tmp_path: Path) -> None:
    """A producer of events, or who can write the checkpoint, must not run code in the job."""
    mark = tmp_path / "it ran"
    bomb = pickle.dumps(Bomb(mark))
    pickle.loads(bomb)
    assert mark.exists(), "the bomb itself must work"
    mark.unlink()
    batch = Batch(
        source=np.zeros(1, dtype=np.int64),
        partition=np.zeros(1, dtype=np.int64),
        offset=np.zeros(1, dtype=np.int64),
        time_ms=np.zeros(1, dtype=np.int64),
        keys=[bomb],
        values=[bomb],
    )
    options = Options(
        query_name="q",
        topic_prefix="",
        default_policy=Policy.FLUVIO,
        wire=Wire.CONFLUENT,
        keepers=None,
    )
    sent: list[said.Message] = [
        said.Ask(batch, options),
        said.Value(bomb),
        said.Piece([("head", bomb)]),
        said.Put("head", bomb),
    ]
    for message in sent:
        assert shown(decode(encode(message))) == shown(message)
    with pytest.raises(KeeperMessageError):
        decode(bomb)
    assert not mark.exists()
