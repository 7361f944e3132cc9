"""Runs the real core through random lives and checks after each event what must hold.

    python tests/support/events/simulation.py --seeds 100000 --from 0 --processes 2

A life follows from its seed alone. One that fails is printed as JSON Lines that `spu-assigner
simulate` reads.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import time
from collections.abc import Iterable, Iterator
from multiprocessing import get_context
from pathlib import Path
from random import Random
from typing import Any, Final

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[2]))  # for `support`

from spu_assigner.core.base.events import Event, Policy
from spu_assigner.core.base.limits import EVENT_IDS_REMEMBERED
from spu_assigner.core.base.records import (
    ChainEntry,
    EntryGone,
    EntryKind,
    Record,
    ReplicaMap,
    SeenEntry,
    SpuChanged,
    Waiting,
)
from spu_assigner.core.decision.answers import answers
from spu_assigner.core.decision.machine import decide, step
from spu_assigner.core.state import memory as state_module
from spu_assigner.core.state.cluster_state import ClusterState, evolve
from spu_assigner.schemas.json_lines.lines import answer_to_json
from support.events.one_cluster import picture
from support.events.random_lives import CLUSTER, Life, as_json, life_of
from support.model.oracle import Oracle
from support.model.shadow import Shadow, ViolationError, is_remembered

CHUNK: Final = 250  # seeds that a process takes at once
DECIDE_TWICE: Final = 4  # one of so many lives has an event decided beforehand: it writes nothing

Published = dict[tuple[str, str], Any]


def simulate(life: Life, *, digests: bool = False) -> bytes:
    """Live this life; returns a digest of all its records and of its state, if asked to."""
    remembered = EVENT_IDS_REMEMBERED
    setattr(state_module, "EVENT_IDS_REMEMBERED", life.memory)  # noqa: B010 — a short life forgets
    try:
        return _live(life, digests=digests)
    finally:
        setattr(state_module, "EVENT_IDS_REMEMBERED", remembered)  # noqa: B010


def _live(life: Life, *, digests: bool) -> bytes:
    random = Random(life.seed)
    state, shadow = ClusterState(CLUSTER), Shadow()
    history: list[tuple[Record, ...]] = []
    published: Published = {}
    looked_at = random.randrange(DECIDE_TWICE * len(life.events)) if life.events else -1
    for number, event in enumerate(life.events):
        if number == looked_at:
            _check_decide_writes_nothing(state, event, life)
        is_known = is_remembered(state, event)
        records = step(state, event, default_policy=life.default_policy)
        shadow.follow(state, event, records, is_known=is_known)
        history.append(records)
        for record in records:
            if isinstance(record, ReplicaMap):
                published["map", record.topic] = record
        if event.event_id in life.crashes:
            publish(published, state)
            restored = picture(restored_from(published, random))
            _same(restored, picture(state), "what was published restores another state")
            state = restored_from(published, random)  # at which nobody has looked yet
    _check_leaders(state, shadow)
    replayed = ClusterState(CLUSTER)
    for records in history:
        for record in records:
            evolve(replayed, record)
    _same(picture(replayed), picture(state), "the records replayed give another state")
    if not digests:
        return b""
    return hashlib.blake2b(repr((history, picture(state))).encode(), digest_size=16).digest()


def difference(events: Iterable[Event], default_policy: Policy) -> str | None:
    """Where the core first answers otherwise than the oracle; None: nowhere."""
    state, oracle = ClusterState(CLUSTER), Oracle(default_policy.value)
    for number, event in enumerate(events):
        found = [
            json.loads(answer_to_json(each))
            for each in answers(step(state, event, default_policy=default_policy))
        ]
        for line in found:  # Of messages the oracle says nothing.
            if line["type"] == "ring_event":
                line.pop("message", None)
            elif "message" in line:
                line["message"] = None
        asked = as_json(event)
        if found != (expected := oracle.apply(asked)):
            return f"event {number}, {asked}: {found}, expected {expected}"
    return None


def publish(published: Published, state: ClusterState) -> None:
    """Take over the entries that changed, as a compacted topic does; tombstones take away."""
    for entry in state.take_entries():
        if isinstance(entry, EntryGone):
            published.pop((entry.kind.value, entry.name), None)
        else:
            published[_key(entry)] = entry
    for key in [key for key, value in published.items() if is_tombstone(value)]:
        del published[key]


def is_tombstone(value: object) -> bool:
    """Whether this is the map of a deleted topic."""
    return isinstance(value, ReplicaMap) and value.replicas is None


def _key(entry: SpuChanged | Waiting | ChainEntry | SeenEntry) -> tuple[str, str]:
    match entry:
        case SpuChanged():
            return EntryKind.SPU.value, str(entry.spu_id)
        case Waiting():
            return EntryKind.WAITING.value, entry.topic
        case ChainEntry():
            return EntryKind.CHAINS.value, "all"
        case SeenEntry():
            return EntryKind.SEEN.value, str(entry.block)


def restored_from(published: Published, random: Random) -> ClusterState:
    """A state rebuilt from the latest values, which come in any order."""
    restored = ClusterState(CLUSTER)
    values = list(published.values())
    random.shuffle(values)
    for value in values:
        restored.restore(value)
    return restored


def _check_decide_writes_nothing(state: ClusterState, event: Event, life: Life) -> None:
    before = picture(state)
    first = decide(state, event, default_policy=life.default_policy)
    _same(picture(state), before, "decide wrote to the state")
    second = decide(state, event, default_policy=life.default_policy)
    if repr(first) != repr(second):
        raise ViolationError("decide decides twice in different ways")


def _check_leaders(state: ClusterState, shadow: Shadow) -> None:
    expected = shadow.leaders()
    found = state.ledger.leaders(state.ledger.ring_ids()).tolist()
    for spu_id, leaders in zip(state.ledger.ring_ids().tolist(), found, strict=True):
        if leaders != expected[spu_id]:
            raise ViolationError(f"SPU {spu_id} leads {leaders}, the lists {expected[spu_id]}")


def _same(found: dict[str, Any], expected: dict[str, Any], otherwise: str) -> None:
    if found != expected:
        parts = [name for name in expected if found[name] != expected[name]]
        shown = "; ".join(f"{name}: {found[name]} for {expected[name]}" for name in parts)
        raise ViolationError(f"{otherwise}: {shown}")


def fault_of(life: Life) -> str | None:
    """What is wrong with a life; None: nothing."""
    try:
        simulate(life)
    except Exception as error:  # whatever the core raises is a fault of its own
        return f"{type(error).__name__}: {error}"
    return None


def digest_of(first: int, count: int) -> str:
    """One digest for all that these seeds give."""
    digest = hashlib.blake2b(digest_size=16)
    for seed in range(first, first + count):
        life = life_of(seed)
        fault = fault_of(life)
        digest.update(simulate(life, digests=True) if fault is None else fault.encode())
    return digest.hexdigest()


def first_fault(first: int, count: int) -> tuple[int, str] | None:
    for seed in range(first, first + count):
        fault = fault_of(life_of(seed))
        if fault is not None:
            return seed, fault
    return None


def report_of(seed: int) -> str:
    """A failing seed for a person: why it fails, its settings and its events."""
    life = life_of(seed)
    lines = [
        f"seed {seed}: {fault_of(life)}",
        f"default policy {life.default_policy.value}, memory of {life.memory} event ids, "
        f"rebuilt after {sorted(life.crashes)}",
        *(json.dumps(as_json(event)) for event in life.events),
    ]
    return "\n".join(lines)


def faults(first: int, count: int, processes: int) -> Iterator[tuple[int, tuple[int, str] | None]]:
    """(Seeds done, fault or None) for each chunk, in order of seeds."""
    chunks = [(at, min(CHUNK, first + count - at)) for at in range(first, first + count, CHUNK)]
    done = 0
    # A fork would take over the clients of other tests, whose threads it has not: their end waits
    # for those threads, so a fork that collects such garbage stands still for ever.
    with get_context("spawn").Pool(processes) as pool:
        for (_, size), fault in zip(chunks, pool.imap(_chunk, chunks), strict=True):
            done += size
            yield done, fault


def _chunk(chunk: tuple[int, int]) -> tuple[int, str] | None:
    return first_fault(*chunk)


def main() -> int:
    """The command; the exit status is 1 when a life failed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--seeds", type=int, default=1000, help="how many lives")
    parser.add_argument("--from", type=int, default=0, dest="first", help="the first seed")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--digest", action="store_true", help="print one digest of all, no more")
    asked = parser.parse_args()
    if asked.digest:
        print(digest_of(asked.first, asked.seeds))
        return 0
    began = time.monotonic()
    for done, fault in faults(asked.first, asked.seeds, asked.processes):
        seconds = time.monotonic() - began
        if sys.stderr.isatty() or done % (40 * CHUNK) == 0 or done == asked.seeds:
            print(f"{done} of {asked.seeds} lives, {seconds:.0f} s", file=sys.stderr, flush=True)
        if fault is not None:
            print(report_of(fault[0]))
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
