"""A batch of few events whose answers are far larger than what Spark may hold of it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from spu_assigner.core.base.events import Event
from spu_assigner.stream.job import batch_buffer
from spu_assigner.stream.job.lifecycle import Job
from spu_assigner.stream.job.shard.spill import Note, read_note
from spu_assigner.stream.kafka.config.settings import Settings
from support.events.builders import Events
from support.kafka.traffic import Kafka, expected_maps

FIRST_SPU = 2**28  # ids of five bytes: maps of 8.2 MB, as large as a message may be
CREATES = 8


@pytest.mark.long("a job answers with maps of many million replicas")
def test_large_answers_go_by_a_file_and_come_out_the_same(
    settings: Settings, run: Callable[..., Job], monkeypatch: pytest.MonkeyPatch
) -> None:
    """200 such creates in one batch ended Spark's JVM: it holds a task's rows several times."""
    notes: list[Note] = []

    def noting(data: bytes) -> Note | None:
        note = read_note(data)
        notes.extend([] if note is None else [note])
        return note

    monkeypatch.setattr(batch_buffer, "read_note", noting)
    events = Events()
    sent: list[Event] = events.joins(*range(FIRST_SPU, FIRST_SPU + 20), capacity=10**8)
    sent += [events.create(f"t{number}", 100_000, 16) for number in range(CREATES)]
    kafka = Kafka(settings)
    kafka.send(sent)
    job = run()
    kafka.wait("replica-map", CREATES, job)
    assert kafka.maps() == expected_maps(sent)
    assert sum(note.size for note in notes) > 5_000_000  # what is beyond the 16 MiB
    assert len({note.path for note in notes}) == 1
    assert not any(Path(note.path).exists() for note in notes)
