"""Large answers by way of files: the same bundles in the same order, and no file left behind."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from spu_assigner.stream.job.batch_buffer import BatchBuffer, BatchBufferError
from spu_assigner.stream.job.shard.bundle import Bundler, MessageKind
from spu_assigner.stream.job.shard.spill import SpillError, read_note, remove_left, spill

LABEL = 7


def bundles(count: int) -> list[bytes]:
    made = []
    for number in range(count):
        bundler = Bundler()
        bundler.put(MessageKind.REPLICA_MAP, b"id%d" % number, b"key", bytes(1_000), 0)
        made.append(bundler.close(()))
    return made


def ids(buffer: BatchBuffer) -> list[bytes]:
    return [message.id for _, bundle in buffer.placed() for message in bundle.messages()]


@contextmanager
def full_disk(size: int) -> Iterator[None]:
    """No file can become larger: a write is short, and the next one fails."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_what_is_beyond_the_measure_goes_to_a_file_and_comes_back_in_order(tmp_path: Path) -> None:
    """Spark's rows hold a note of some bytes then; a crash before sending leaves no file."""
    made = bundles(10)
    assert list(spill(made[:3], tmp_path, LABEL)) == made[:3]
    assert list(tmp_path.iterdir()) == []
    rows = list(spill(made, tmp_path, LABEL, size_max=3 * len(made[0])))
    assert rows[:3] == made[:3]
    assert sum(map(len, rows[3:])) < 10 * 300
    [file] = tmp_path.iterdir()
    assert file.read_bytes() == b"".join(made[3:])
    with BatchBuffer() as buffer:
        for sequence, row in reversed(list(enumerate(rows))):
            buffer.add(LABEL, sequence, row)
        assert list(tmp_path.iterdir()) == []
        for _ in range(2):
            assert ids(buffer) == [b"id%d" % number for number in range(10)]


def test_a_task_that_fails_or_is_ended_leaves_no_file(tmp_path: Path) -> None:
    """Spark repeats it, and nobody asks for the first attempt's file."""

    def failing() -> Iterator[bytes]:
        yield from bundles(3)
        raise ConnectionError("the shard server is gone")

    with pytest.raises(ConnectionError):
        list(spill(failing(), tmp_path, LABEL, size_max=0))
    assert list(tmp_path.iterdir()) == []
    rows = spill(bundles(3), tmp_path, LABEL, size_max=0)
    assert read_note(next(rows)) is not None
    rows.close()  # type: ignore[attr-defined]  # it is a generator
    assert list(tmp_path.iterdir()) == []


def test_a_bundle_that_is_not_written_whole_fails_the_batch(tmp_path: Path) -> None:
    """Else its place would hold the begin of it and what was written after it, when room was made:
    bytes that nobody has decided, which would be sent."""
    made = bundles(3)

    def parts() -> Iterator[bytes]:
        yield made[0]
        with full_disk(len(made[0]) + 100):
            yield made[1]
        yield made[2]

    rows = spill(parts(), tmp_path, LABEL, size_max=0)
    assert read_note(next(rows)) is not None
    with pytest.raises(SpillError, match=r"cannot be written \(File too large\); make room in /"):
        next(rows)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("tail", "says"), [(b"?", "are not what was written there"), (b"", "ends 1 bytes early")]
)
def test_a_file_with_other_bytes_stops_the_batch(tail: bytes, says: str, tmp_path: Path) -> None:
    """The digest is of what the shard has decided, not of what the file gives back."""
    made = bundles(2)
    first, last = spill(made, tmp_path, LABEL, size_max=0)
    [file] = tmp_path.iterdir()
    file.write_bytes(made[0] + made[1][:-1] + tail)
    with BatchBuffer() as buffer:
        buffer.add(LABEL, 0, first)
        buffer.add(LABEL, 1, last)
        read = buffer.placed()
        _, bundle = next(read)
        assert [message.id for message in bundle.messages()] == [b"id0"]
        with pytest.raises(BatchBufferError, match=says):
            next(read)
    with BatchBuffer() as buffer, pytest.raises(BatchBufferError, match="start the job again"):
        buffer.add(LABEL, 0, first)  # It was unlinked.


def test_a_shard_server_removes_the_files_of_its_own_shard(tmp_path: Path) -> None:
    """A driver that was killed has opened none of them."""
    for label in (LABEL, 70):
        list(spill(bundles(2), tmp_path, label, size_max=0))
    remove_left(tmp_path, LABEL)
    assert [path.name.partition("-")[0] for path in tmp_path.iterdir()] == ["70"]
