"""How fast the core is, measured so that it can be compared between machines and over time.

Each case is measured beside a fixed piece of work in the same process, in turns: the figure is
the ratio of the two. CPU time of this thread is taken, the least of some rounds, and Python's
collector is off meanwhile, so that neither other processes nor what the tests before have left
behind, threads too, count.
"""

from __future__ import annotations

import gc
import hashlib
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import count, islice
from typing import Any, Final, NamedTuple

import numpy as np
from msgspec.structs import replace
from spu_assigner.core import Assigner, Constraints, SpreadLevel
from spu_assigner.core.base.events import Event, LeaveMode, Policy, SpuJoined, SpuLeft, TopicDelete
from spu_assigner.core.base.records import Record
from spu_assigner.schemas.messages.codec import decode_event, encode_event, encode_record
from support.bench.targets import RACKED, RULED, UNEQUAL
from support.bench.workload import creates, joins

ROUNDS: Final = 7
ATTEMPTS: Final = 3  # other work on the machine may hold up one; a slower core is slower in each
TURNS: Final = 25
SMALL: Final = 500  # events of a round, where they are cheap
REFERENCE_TOPICS: Final = 300
REFERENCE_IDS: Final = 300_000
RESOURCES: Final = ("disk_bytes", "bytes_in_per_s", "bytes_out_per_s", "cores_milli")
RULES: Final = Constraints(require=("tier=ssd",), spread=(SpreadLevel("zone"),))
Work = Callable[[], object]


class Case(NamedTuple):
    """What is measured: an iterator that makes the work of each round ready."""

    name: str
    rounds: Callable[[], Iterator[Work]]
    reference: Work
    events: int  # of a round


class Speed(NamedTuple):
    """What a case gave."""

    ratio: float  # of a round to the reference
    us: float  # an event; for the reader alone


def in_plain_python() -> None:
    """The reference of what is mostly Python: hashes, small lists, a dictionary."""
    placed: dict[str, tuple[int, list[list[int]]]] = {}
    for number in range(REFERENCE_TOPICS):
        name = f"topic-{number}"
        hashed = int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest())
        lists = [[(number + p + r * (1 + p // 64)) % 64 for r in range(3)] for p in range(16)]
        placed[name] = (hashed, lists)
    if len(placed) != REFERENCE_TOPICS:
        raise ValueError("the reference has not done its work")


def in_arrays() -> None:
    """The reference of what is mostly numpy: as many ids as a map of 100,000 lists holds."""
    ids = np.arange(REFERENCE_IDS, dtype=np.int32) % 1_009
    counts = np.bincount(ids, minlength=1_009)
    order = np.argsort(counts[ids] + ids, kind="stable")
    if len(order) != REFERENCE_IDS:
        raise ValueError("the reference has not done its work")


def speed_of(case: Case) -> Speed:
    """Measure it."""
    works = case.rounds()
    for work in islice(works, 2):  # Tables are made in the first.
        work()
        case.reference()
    ours, theirs = [], []
    for work in islice(works, ROUNDS):
        with _collector_off():
            ours.append(_seconds(work))
            theirs.append(_seconds(case.reference))
    return Speed(ratio=min(ours) / min(theirs), us=min(ours) * 1e6 / case.events)


def slower_than(case: Case, stored: float, times: float) -> float | None:
    """The ratio if it is more than so many times the stored one, each time that it is measured."""
    ratio = float("inf")
    for _ in range(ATTEMPTS):
        ratio = min(ratio, speed_of(case).ratio)
        if ratio <= times * stored:
            return None
    return ratio


def _seconds(work: Work) -> float:
    begun = time.thread_time()
    work()
    return time.thread_time() - begun


@contextmanager
def _collector_off() -> Iterator[None]:
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def _applied(assigner: Assigner, events: Sequence[Event]) -> Work:
    def work() -> None:
        for event in events:
            assigner.records(event)

    return work


def _joined(policy: Policy, clusters: int, spus: int) -> Assigner:
    assigner = Assigner(policy)
    _applied(assigner, joins(clusters, spus))()
    return assigner


def _small(policy: Policy) -> Iterator[Work]:
    """The job's work unit: 16 partitions × 3 replicas, over 50 clusters of 64 SPUs."""
    assigner = _joined(policy, 50, 64)
    for first in count(0, SMALL):
        yield _applied(assigner, creates(first, SMALL))


def _of_64_spus(*, is_ruled: bool = False, **unlike: Any) -> Iterator[Work]:
    """Creates of 16 × 3 on one cluster of 64 SPUs; what differs between these."""
    of_each = {"demand": dict.fromkeys(RESOURCES, 3), "constraints": RULES} if is_ruled else {}
    assigner = Assigner(Policy.BALANCED)
    for spu_id in range(64):
        fields = {field: value(spu_id) for field, value in unlike.items()}
        joined = {"event_id": f"j{spu_id}", "cluster_id": "c0", "spu_id": spu_id, **fields}
        assigner.records(SpuJoined(**joined))
    for first in count(0, SMALL):
        asked = creates(first, SMALL, clusters=1)
        yield _applied(assigner, [replace(each, **of_each) for each in asked])


def _large(policy: Policy) -> Iterator[Work]:
    """A topic of 100,000 partitions on 1,000 SPUs."""
    assigner = _joined(policy, 1, 1_000)
    for number in count():
        yield _applied(assigner, creates(number, 1, clusters=1, partitions=100_000))


def _deletes() -> Iterator[Work]:
    assigner = _joined(Policy.FLUVIO, 50, 64)
    for first in count(0, SMALL):
        made: list[Any] = creates(first, SMALL)
        _applied(assigner, made)()
        places = [{"cluster_id": each.cluster_id, "topic": each.topic} for each in made]
        yield _applied(assigner, [TopicDelete(event_id=f"d{at['topic']}", **at) for at in places])


def _changes_of_the_ring() -> Iterator[Work]:
    """Of 1,000 SPUs one leaves and comes back, with a create after each."""
    assigner = _joined(Policy.FLUVIO, 1, 1_000)
    for number in count():
        asked = iter(creates(number * 2 * TURNS, 2 * TURNS, clusters=1))
        events: list[Event] = []
        for turn in range(TURNS):
            name, who = f"{number}-{turn}", {"cluster_id": "c0", "spu_id": turn}
            events.append(SpuLeft(event_id=f"l{name}", mode=LeaveMode.OFFLINE, **who))  # type: ignore[arg-type]
            events.append(next(asked))
            events.append(SpuJoined(event_id=f"r{name}", capacity=10**8, **who))  # type: ignore[arg-type]
            events.append(next(asked))
        yield _applied(assigner, events)


def _decommission() -> Iterator[Work]:
    """Of an SPU that holds 300 replicas."""
    spus, of = 100, {"cluster_id": "c0"}
    assigner = _joined(Policy.BALANCED, 1, spus)
    _applied(assigner, creates(0, 100, clusters=1, partitions=100))()
    for number in count():
        leave = SpuLeft(event_id=f"l{number}", spu_id=number, mode=LeaveMode.DECOMMISSION, **of)
        join = SpuJoined(event_id=f"n{number}", spu_id=spus + number, capacity=10**8, **of)
        assigner.records(join)  # The next one to leave holds about as much.
        yield _applied(assigner, [leave])


def _codec() -> Iterator[Work]:
    """A small create's message read, its answers written."""
    assigner = _joined(Policy.FLUVIO, 50, 64)
    for first in count(0, SMALL):
        events = creates(first, SMALL)
        messages = [encode_event(event) for event in events]
        records = [record for event in events for record in assigner.apply(event)]

        def work(messages: list[bytes] = messages, records: list[Record] = records) -> None:
            for message in messages:
                decode_event(message, kind="topic")
            for record in records:
                encode_record(record)

        yield work


THREE: Final = (Policy.FLUVIO, Policy.KAFKA, Policy.BALANCED)
UNLIKE: Final[dict[str, dict[str, Any]]] = {
    RACKED: {"capacity": lambda _: 10**8, "rack": lambda i: f"r{i % 3}"},
    UNEQUAL: {"capacity": lambda i: 10**8 * (1 + i % 3), "rack": lambda i: f"r{i // 3 % 3}"},
    RULED: {
        "is_ruled": True,
        "capacity": lambda _: 10**6,
        "rack": lambda i: f"r{i % 4}",
        "labels": lambda i: {"zone": f"z{i % 4 // 2}", "tier": "ssd" if i % 8 < 5 else "hdd"},
        "resources": lambda _: dict.fromkeys(RESOURCES, 10**9),
    },
}
CASES: Final = (
    *(Case(f"small creates, {p}", partial(_small, p), in_plain_python, SMALL) for p in THREE),
    *(
        Case(f"{name}, balanced", partial(_of_64_spus, **unlike), in_plain_python, SMALL)
        for name, unlike in UNLIKE.items()
    ),
    *(Case(f"a large create, {p}", partial(_large, p), in_arrays, 1) for p in THREE),
    Case("deletes", _deletes, in_plain_python, SMALL),
    Case("changes of a ring", _changes_of_the_ring, in_plain_python, 4 * TURNS),
    Case("a decommission", _decommission, in_plain_python, 1),
    Case("messages read and written", _codec, in_plain_python, SMALL),
)
