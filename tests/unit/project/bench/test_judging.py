"""The judges of the load find what they are there to find."""

from __future__ import annotations

import pytest
from spu_assigner.core.assigner import Assigner
from spu_assigner.core.base.events import Event
from spu_assigner.core.base.records import ReplicaMap, RingEvent
from spu_assigner.schemas.messages.codec import encode_record
from support.bench.judging import MAPS, RING_EVENTS, STATUSES, Tally, Verdict
from support.events.builders import Events

GOOD = Verdict(lost=0, repeated=0, different=0, dead_letters=0)
Answer = tuple[str, bytes, bytes | None, bytes]


def life() -> list[Event]:
    events = Events()
    return [
        *events.joins(0, 1, 2),
        events.create("t", 4, 2),
        events.delete("t"),
        events.create("u"),
    ]


def answers() -> list[Answer]:
    """What the job says to that life: topic, key, value, ce_id."""
    assigner = Assigner()
    found: list[Answer] = []
    for offset, event in enumerate(life()):
        for ordinal, record in enumerate(assigner.apply(event)):
            is_ring = isinstance(record, RingEvent)
            name = STATUSES if not isinstance(record, ReplicaMap) else MAPS
            key = event.cluster_id if is_ring else f"{record.cluster_id}/{record.topic}"
            is_gone = isinstance(record, ReplicaMap) and record.replicas is None
            value = None if is_gone else encode_record(record)
            place = f"topic/0/{offset}/{ordinal}"
            found.append((RING_EVENTS if is_ring else name, key.encode(), value, place.encode()))
    return found


def judge(found: list[Answer]) -> Verdict:
    tally = Tally()
    for answer in found:
        tally.take(*answer)
    return tally.judge(life(), sent=len(life()))


def test_the_jobs_own_answers_are_good() -> None:
    """Else the findings below would mean nothing."""
    assert judge(answers()) == GOOD


@pytest.mark.parametrize("index", range(len(answers())))
def test_a_dropped_answer_is_found(index: int) -> None:
    """Whichever it is; but of a key's maps only the latest must be there, as after a cleaning."""
    found = answers()
    dropped = found.pop(index)
    is_outdated = any(each[:2] == dropped[:2] for each in found[index:])
    if dropped[0] == MAPS and (is_outdated or dropped[2] is None):
        assert judge(found).is_good == is_outdated
    else:
        assert not judge(found).is_good


@pytest.mark.parametrize("index", range(len(answers())))
def test_a_repeated_answer_is_found(index: int) -> None:
    """The same answer a second time, as a sink that writes twice would."""
    found = answers()
    found.append(found[index])
    assert judge(found).repeated == 1


def test_a_changed_answer_is_found() -> None:
    """A map on the wrong machines is worse than none."""
    found = [
        (topic, key, value and value[:-1] + bytes([value[-1] ^ 1]), ce_id)
        for topic, key, value, ce_id in answers()
    ]
    assert judge(found).different == len({each[:2] for each in found} - {(MAPS, b"c1/t")})


def test_an_event_without_any_answer_is_lost() -> None:
    """Counted by its place in the input."""
    found = [each for each in answers() if not each[3].startswith(b"topic/0/5/")]
    assert judge(found).lost == 1
