"""What the answers are to be: the core's own on the same events, byte for byte."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import cache

from confluent_kafka import Message
from spu_assigner.core import Assigner
from spu_assigner.core.base.events import Policy
from spu_assigner.core.base.records import ReplicaMap
from spu_assigner.schemas.errors import DecodeError
from spu_assigner.schemas.messages.codec import decode_record, encode_event, encode_record
from support.bench.workload import creates, joins

SHOWN_MAX = 400  # characters of what differs


class WrongAnswerError(Exception):
    """An answer is missing, repeated, or another than the core's."""


@cache
def expected_maps(policy: Policy, total: int, reasons: bool) -> dict[bytes, bytes]:
    """The map of each create by its key; without reasons, as a neighbour knows none."""
    assigner = Assigner(policy)
    for event in joins():
        assigner.apply(event)
    found = {}
    # Four input partitions, but one for each cluster: within a cluster the order is the producer's.
    for event in creates(0, total):
        record = assigner.apply(event)[0]
        assert isinstance(record, ReplicaMap)
        if not reasons:
            record = replace(record, reason=None, own_events=())
        found[f"{record.cluster_id}/{record.topic}".encode()] = encode_record(record)
    return found


@cache
def expected_copies(total: int) -> dict[bytes, bytes]:
    """The events themselves, each under a key of its own."""
    values = [encode_event(event) for event in (*joins(), *creates(0, total))]
    return {value: value for value in values}


def check(answers: Iterable[Message], expected: dict[bytes, bytes], *, by_value: bool) -> None:
    """Each expected answer is there once, and nothing else.

    Args:
        by_value: answers have the keys of their events, which are those of clusters.

    Raises:
        WrongAnswerError: which is the first that is not, and how many are.
    """
    left = dict(expected)
    faults = []
    for answer in answers:
        key, value = answer.key(), answer.value()
        wanted = left.pop(value if by_value else key, None)
        if wanted is None:
            faults.append(f"{key!r} came twice, or was not asked for")
        elif wanted != value:
            faults.append(f"{key!r} is {_shown(value)}; expected {_shown(wanted)}")
    faults += [f"no answer {key!r}" for key in left]
    if faults:
        raise WrongAnswerError(f"{len(faults)} wrong answers; the first: {faults[0]}")


def _shown(value: bytes | None) -> str:
    try:
        return str(decode_record(value or b""))[:SHOWN_MAX]
    except DecodeError:
        return repr(value)[:SHOWN_MAX]
