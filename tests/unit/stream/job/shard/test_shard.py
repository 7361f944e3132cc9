"""The stored form of a shard: never a wrong copy, bounded size, bounded cost."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from spu_assigner.core.base.errors import InvariantError
from spu_assigner.stream.job.shard import state_log as shard_module
from spu_assigner.stream.job.shard.state_log import (
    HEAD,
    Shard,
    ShardDamagedError,
    ShardFormatError,
    segment_key,
)
from support.project.case_share import share_of
from support.shard.stored_entries import read_entries
from support.shard.stores import DictStore, begin, commit, write_ahead


class DictCopy(dict[bytes, bytes]):
    clears = 0  # each precedes a load

    def clear(self) -> None:
        self.clears += 1
        super().clear()

    def restore(self, key: bytes, value: bytes | None) -> None:
        if value is None:
            self.pop(key, None)
        else:
            self[key] = value


def write(shard: Shard[DictCopy], store: DictStore, entries: dict[bytes, bytes | None]) -> range:
    """One batch: the copy is changed, then all is written; gives the segments handed in."""
    segments = begin(shard, store)
    for key, value in entries.items():
        shard.copy.restore(key, value)
    commit(shard, store, entries)
    return segments


def entries_of(number: int, size: int = 100) -> dict[bytes, bytes | None]:
    return {b"key-%d" % number: bytes(size)}


def test_a_trusted_copy_costs_two_calls_a_batch() -> None:
    """Each call to Spark's state server is a round trip; a small batch has one get and one put."""
    store = DictStore()
    shard = Shard(DictCopy())
    write(shard, store, entries_of(0))
    store.calls = 0
    write(shard, store, entries_of(1))
    assert (store.calls, shard.copy.clears) == (2, 1)


def test_what_came_and_went_leaves_nothing_in_the_log() -> None:
    """Topics, waiting requests and SPUs that are gone; the state must not grow with history."""
    store = DictStore()
    shard = Shard(DictCopy())
    write(shard, store, {b"sc1/chains/all": bytes(40)})
    sizes = []
    for number in range(10_000):
        keys = (b"mc1/t%d", b"sc1/waiting/t%d", b"sc1/spu/%d")
        came = {key % number: bytes(100) for key in keys}
        write(shard, store, {**came, b"sc1/chains/all": bytes(40)})
        write(shard, store, dict.fromkeys(came))
        sizes.append(store.size)
    assert max(sizes[5_000:]) <= max(sizes[:5_000])
    assert max(sizes) <= shard_module.SLACK_SIZE + 4 * shard_module.INLINE_SIZE_MAX
    write(shard, store, {b"sc1/chains/all": bytes(300_000)})
    assert read_entries(store.current) == {b"sc1/chains/all": bytes(300_000)}


def test_a_batch_and_the_log_are_in_proportion_to_what_lives() -> None:
    """No batch pays for the history: cleaning goes on piece by piece."""
    store = DictStore()
    shard = Shard(DictCopy())
    for number in range(2_000):
        write(shard, store, {b"key-%d" % (number % 1_000): bytes(3_000)})
    slack = shard_module.SLACK_SIZE + shard_module.SEGMENT_SIZE
    assert store.size <= 2 * sum(map(len, shard.copy.values())) + slack
    before = dict(store.current)
    most = 0
    for number in range(200):
        write(shard, store, {b"key-%d" % number: bytes(3_000)})
        written = sum(
            len(value) for key, value in store.current.items() if before.get(key) is not value
        )
        most = max(most, written)
        before = dict(store.current)
    assert most <= shard_module.CLEANED_SIZE + shard_module.SEGMENT_SIZE


def test_state_of_another_format_is_refused() -> None:
    """Reading it wrongly would be worse than not starting."""
    store = DictStore()
    write(Shard(DictCopy()), store, entries_of(0))
    for number in (1, 2, 9):  # of those before 1.0, and of one to come
        store.current[HEAD] = bytes((number,)) + store.current[HEAD][1:]
        with pytest.raises(ShardFormatError, match=f"format {number}, this release reads 3"):
            begin(Shard(DictCopy()), store)


@pytest.mark.parametrize("change", [lambda data: data[:9], lambda data: data + b"x"])
def test_a_piece_of_another_size_is_refused(change: Callable[[bytes], bytes]) -> None:
    """It was cut, or written over."""
    store = DictStore()
    write(Shard(DictCopy()), store, entries_of(0, size=10_000))
    whole = dict(store.current)
    for key, value in whole.items():
        store.current = {**whole, key: change(value)}
        with pytest.raises(ShardDamagedError, match=f"has {len(change(value))} bytes"):
            begin(Shard(DictCopy()), store)


def test_a_missing_segment_is_refused() -> None:
    """A store that lost a part must not pass for a smaller state."""
    store = DictStore()
    write(Shard(DictCopy()), store, entries_of(0, size=10_000))
    del store.current["seg-000000000000"]
    with pytest.raises(InvariantError, match="seg-000000000000 is missing"):
        begin(Shard(DictCopy()), store)


@settings(max_examples=share_of(200), deadline=None)
@given(seed=st.integers(0, 2**32))
def test_no_history_of_failures_and_workers_gives_a_wrong_copy(seed: int) -> None:
    """The law of this module: whatever fails, whoever goes on holds the committed state."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shard_module, "SLACK_SIZE", 1_000)  # so that cleaning is common
        patch.setattr(shard_module, "CLEANED_SIZE", 5_000)
        patch.setattr(shard_module, "SEGMENT_SIZE", 10_000)
        live_through(random.Random(seed))


def live_through(chance: random.Random) -> None:
    store = DictStore()
    workers = [Shard(DictCopy()) for _ in range(3)]
    turn = 0
    expected: dict[bytes, bytes] = {}
    for number in range(60):
        if chance.random() < 0.05:
            workers[chance.randrange(3)] = Shard(DictCopy())  # it died
        turn = chance.randrange(3) if chance.random() < 0.4 else turn
        worker = workers[turn]
        batch: dict[bytes, bytes | None] = {}
        for _ in range(chance.randrange(4)):
            value = None if chance.random() < 0.3 else bytes([number]) * chance.randrange(6_000)
            batch[b"key-%d" % chance.randrange(20)] = value
        if chance.random() < 0.2:
            store.fails_at = store.calls + chance.randrange(1, 6)
        try:
            begin(worker, store)
            assert worker.copy == expected
            whole: dict[bytes, bytes | None] = {}
            while chance.random() < 0.2:  # A large batch is written piece by piece.
                piece = {b"key-%d" % chance.randrange(20): bytes(chance.randrange(6_000))}
                write_ahead(worker, store, dict(piece))
                whole.update(piece)
            whole.update(batch)
            for key, value in whole.items():
                worker.copy.restore(key, value)
            commit(worker, store, batch)
            if chance.random() < 0.1:
                raise ConnectionError("another partition failed")
        except ConnectionError:
            store.abort()
            continue
        store.fails_at = None
        store.commit()
        for key, value in whole.items():
            if value is None:
                expected.pop(key, None)
            else:
                expected[key] = value
    assert read_entries(store.current) == expected
    segments = Shard(DictCopy()).begin(store.current.get(HEAD))
    assert store.current.keys() - {HEAD} == {segment_key(number) for number in segments}
