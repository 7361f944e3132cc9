"""The messages between worker and shard server: bytes that can be nothing but what they were."""

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
from spu_assigner.stream.shard import protocol
from spu_assigner.stream.shard.batch import Batch, Options
from spu_assigner.stream.shard.protocol import ShardProtocolError, decode, encode

_LONGS = st.integers(-(2**63), 2**63 - 1)
_BYTES = st.binary(max_size=40)
_TEXT = st.text(max_size=12)
_OPTIONS = st.builds(
    Options,
    query_name=_TEXT,
    topic_prefix=_TEXT,
    default_policy=st.sampled_from(Policy),
    wire=st.sampled_from(Wire),
    server_secret=st.none() | _TEXT,
)
_ANSWERS = st.one_of(
    st.builds(protocol.BundleReady, _BYTES),
    st.builds(protocol.GetState, _TEXT),
    st.builds(protocol.PutState, _TEXT, _BYTES),
    st.builds(protocol.RemoveState, _TEXT),
    st.builds(protocol.ListState),
    st.builds(protocol.BatchDone),
    st.builds(protocol.BatchFailed, _TEXT, _TEXT),
    st.builds(protocol.StateValue, st.none() | _BYTES),
    st.builds(protocol.StatePiece, st.lists(st.tuples(_TEXT, _BYTES), max_size=4)),
)


class Bomb:
    """What makes a pickle dangerous: reading it runs something."""

    def __init__(self, mark: Path) -> None:
        self._mark = mark

    def __reduce__(self) -> tuple[object, tuple[object, ...]]:
        return Path.touch, (self._mark,)


@st.composite
def asks(draw: st.DrawFn) -> protocol.ProcessBatch:
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
    return protocol.ProcessBatch(batch, draw(_OPTIONS))


def comparable(message: protocol.ShardMessage) -> object:
    """A message as something that can be compared: arrays have no plain equality."""
    if not isinstance(message, protocol.ProcessBatch):
        return message
    batch = message.batch
    columns = (batch.source, batch.partition, batch.offset, batch.time_ms)
    return message.options, [each.tolist() for each in columns], batch.keys, batch.values


@given(message=_ANSWERS | asks())
def test_a_message_arrives_as_it_was_sent(message: protocol.ShardMessage) -> None:
    """One byte astray and a decision would differ from its replay."""
    assert comparable(decode(encode(message))) == comparable(message)


@given(message=_ANSWERS | asks(), size=st.integers(0, 200))
def test_part_of_a_message_is_another_message_or_refused(
    message: protocol.ShardMessage, size: int
) -> None:
    """Whatever the bytes, nothing but the named error comes out."""
    with suppress(ShardProtocolError):
        found = decode(encode(message)[:size])
        assert comparable(decode(encode(found))) == comparable(found)


@given(data=st.binary(max_size=200))
def test_foreign_bytes_are_a_message_or_refused(data: bytes) -> None:
    """Lengths in them are never believed beyond what is there."""
    with suppress(ShardProtocolError):
        found = decode(data)
        assert comparable(decode(encode(found))) == comparable(found)


def test_bytes_too_many_are_refused() -> None:
    """They would belong to a newer release's message."""
    with pytest.raises(ShardProtocolError, match=r"DONE .* 3 bytes too many"):
        decode(encode(protocol.BatchDone()) + b"abc")


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
        server_secret=None,
    )
    sent: list[protocol.ShardMessage] = [
        protocol.ProcessBatch(batch, options),
        protocol.StateValue(bomb),
        protocol.StatePiece([("head", bomb)]),
        protocol.PutState("head", bomb),
    ]
    for message in sent:
        assert comparable(decode(encode(message))) == comparable(message)
    with pytest.raises(ShardProtocolError):
        decode(bomb)
    assert not mark.exists()
