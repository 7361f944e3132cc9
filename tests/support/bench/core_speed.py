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
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from msgspec.structs import replace
from spu_assigner.core import Assigner, Constraints, SpreadLevel
from spu_assigner.core.base.events import Event, LeaveMode, Policy, SpuJoined, SpuLeft, TopicDelete
from spu_assigner.schemas.messages.codec import decode_event, encode_event, encode_record
from support.bench.targets import RACKED, RULED, UNEQUAL
from support.bench.workload import creates, joins

ROUNDS: Final = 7
ATTEMPTS: Final = 3  # other work on the machine may hold up one; a slower core is slower in each
SMALL: Final = 500  # events of a round, where they are cheap
REFERENCE_TOPICS: Final = 300
REFERENCE_IDS: Final = 300_000
RESOURCES: Final = ("disk_bytes", "bytes_in_per_s", "bytes_out_per_s", "cores_milli")
RULES: Final = Constraints(require=("tier=ssd",), spread=(SpreadLevel("zone"),))
Work = Callable[[], object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """What is measured: `prepare` gives a function that makes the work of round n ready."""

    name: str
    prepare: Callable[[], Callable[[int], Work]]
    reference: Work
    events: int  # of a round


@dataclass(frozen=True, slots=True, kw_only=True)
class Speed:
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


def speed_of(case: Case, rounds: int = ROUNDS) -> Speed:
    """Measure it."""
    ready = case.prepare()
    for number in range(2):  # Tables are made in the first.
        ready(number)()
        case.reference()
    ours, theirs = [], []
    for number in range(2, 2 + rounds):
        work = ready(number)
        with _collector_off():
            ours.append(_seconds(work))
            theirs.append(_seconds(case.reference))
    return Speed(ratio=min(ours) / min(theirs), us=min(ours) * 1e6 / case.events)


def slower_than(
    case: Case, stored: float, times: float, *, attempts: int = ATTEMPTS, rounds: int = ROUNDS
) -> float | None:
    """The ratio if it is more than so many times the stored one, each time that it is measured."""
    ratio = float("inf")
    for _ in range(attempts):
        ratio = min(ratio, speed_of(case, rounds).ratio)
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


def _small(policy: Policy) -> Case:
    """The job's work unit: 16 partitions × 3 replicas, over 50 clusters of 64 SPUs."""

    def prepare() -> Callable[[int], Work]:
        assigner = _joined(policy, 50, 64)
        return lambda number: _applied(assigner, creates(number * SMALL, SMALL))

    return Case(
        name=f"small creates, {policy}", prepare=prepare, reference=in_plain_python, events=SMALL
    )


def _of_64_spus(name: str, *, is_ruled: bool = False, **unlike: Any) -> Case:
    """Creates of 16 × 3 on one cluster of 64 SPUs; what differs between these."""
    of_each = {"demand": dict.fromkeys(RESOURCES, 3), "constraints": RULES} if is_ruled else {}

    def prepare() -> Callable[[int], Work]:
        assigner = Assigner(Policy.BALANCED)
        for spu_id in range(64):
            fields = {field: value(spu_id) for field, value in unlike.items()}
            joined = {"event_id": f"j{spu_id}", "cluster_id": "c0", "spu_id": spu_id, **fields}
            assigner.records(SpuJoined(**joined))

        def ready(number: int) -> Work:
            asked = creates(number * SMALL, SMALL, clusters=1)
            return _applied(assigner, [replace(each, **of_each) for each in asked])

        return ready

    return Case(name=f"{name}, balanced", prepare=prepare, reference=in_plain_python, events=SMALL)


def _large(policy: Policy) -> Case:
    """A topic of 100,000 partitions on 1,000 SPUs."""

    def prepare() -> Callable[[int], Work]:
        assigner = _joined(policy, 1, 1_000)
        return lambda number: _applied(assigner, creates(number, 1, clusters=1, partitions=100_000))

    return Case(name=f"a large create, {policy}", prepare=prepare, reference=in_arrays, events=1)


def _deletes() -> Case:
    def prepare() -> Callable[[int], Work]:
        assigner = _joined(Policy.FLUVIO, 50, 64)

        def ready(number: int) -> Work:
            made = creates(number * SMALL, SMALL)
            _applied(assigner, made)()
            gone: list[Event] = [
                TopicDelete(
                    event_id=f"d{each.event_id}", cluster_id=each.cluster_id, topic=each.topic
                )
                for each in made
            ]
            return _applied(assigner, gone)

        return ready

    return Case(name="deletes", prepare=prepare, reference=in_plain_python, events=SMALL)


def _changes_of_the_ring() -> Case:
    """Of 1,000 SPUs one leaves and comes back, with a create after each."""
    turns = 25

    def prepare() -> Callable[[int], Work]:
        assigner = _joined(Policy.FLUVIO, 1, 1_000)

        def ready(number: int) -> Work:
            asked = iter(creates(number * 2 * turns, 2 * turns, clusters=1))
            events: list[Event] = []
            for turn in range(turns):
                name = f"{number}-{turn}"
                who = {"cluster_id": "c0", "spu_id": turn}
                events.append(SpuLeft(event_id=f"l{name}", mode=LeaveMode.OFFLINE, **who))  # type: ignore[arg-type]
                events.append(next(asked))
                events.append(SpuJoined(event_id=f"r{name}", capacity=10**8, **who))  # type: ignore[arg-type]
                events.append(next(asked))
            return _applied(assigner, events)

        return ready

    return Case(
        name="changes of a ring", prepare=prepare, reference=in_plain_python, events=4 * turns
    )


def _decommission() -> Case:
    """Of an SPU that holds 300 replicas."""
    spus = 100

    def prepare() -> Callable[[int], Work]:
        assigner = _joined(Policy.BALANCED, 1, spus)
        _applied(assigner, creates(0, 100, clusters=1, partitions=100))()

        def ready(number: int) -> Work:
            another = SpuJoined(
                event_id=f"n{number}", cluster_id="c0", spu_id=spus + number, capacity=10**8
            )
            leave = SpuLeft(
                event_id=f"l{number}",
                cluster_id="c0",
                spu_id=number,
                mode=LeaveMode.DECOMMISSION,
            )
            work = _applied(assigner, [leave])
            assigner.records(another)  # The next one to leave holds about as much.
            return work

        return ready

    return Case(name="a decommission", prepare=prepare, reference=in_plain_python, events=1)


def _codec() -> Case:
    """A small create's message read, its answers written."""

    def prepare() -> Callable[[int], Work]:
        assigner = _joined(Policy.FLUVIO, 50, 64)

        def ready(number: int) -> Work:
            events = creates(number * SMALL, SMALL)
            messages = [encode_event(event) for event in events]
            records = [record for event in events for record in assigner.apply(event)]

            def work() -> None:
                for message in messages:
                    decode_event(message, kind="topic")
                for record in records:
                    encode_record(record)

            return work

        return ready

    return Case(
        name="messages read and written", prepare=prepare, reference=in_plain_python, events=SMALL
    )


CASES: Final = (
    *map(_small, (Policy.FLUVIO, Policy.KAFKA, Policy.BALANCED)),
    _of_64_spus(RACKED, capacity=lambda _: 10**8, rack=lambda i: f"r{i % 3}"),
    _of_64_spus(UNEQUAL, capacity=lambda i: 10**8 * (1 + i % 3), rack=lambda i: f"r{i // 3 % 3}"),
    _of_64_spus(
        RULED,
        is_ruled=True,
        capacity=lambda _: 10**6,
        rack=lambda i: f"r{i % 4}",
        labels=lambda i: {"zone": f"z{i % 4 // 2}", "tier": "ssd" if i % 8 < 5 else "hdd"},
        resources=lambda _: dict.fromkeys(RESOURCES, 10**9),
    ),
    *map(_large, (Policy.FLUVIO, Policy.KAFKA, Policy.BALANCED)),
    _deletes(),
    _changes_of_the_ring(),
    _decommission(),
    _codec(),
)
