"""The six exact policies give the same bytes as when their digests were stored.

`python tests/unit/core/policies/test_exact_bytes.py --write` stores them. What is digested is what
users depend on: answers as JSON, what the reason of a map says of the placement, and the chains.
"""

from __future__ import annotations

import argparse
import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any, Final

import pytest
from msgspec.structs import astuple
from spu_assigner.core.base.events import Event, LeaveMode, OnShortage, Policy
from spu_assigner.core.base.records import Order, Reason, RecordedRing, ReplicaMap
from spu_assigner.core.decision.answers import answers
from spu_assigner.core.decision.machine import step
from spu_assigner.core.state.cluster_state import ClusterState
from spu_assigner.core.state.ring import ids_of_text, ring_of_text
from spu_assigner.schemas.json_lines.lines import answer_to_json
from support.events.builders import Events

STORED: Final = Path(__file__).with_name("exact_bytes.json")
EXACT: Final = tuple(policy for policy in Policy if policy is not Policy.BALANCED)
REQUESTS: Final = 2_000
REQUESTS_OF_A_CLUSTER: Final = 50
CAPACITIES: Final = (None, 12, 60, 400)
PARTITIONS: Final = (1, 2, 3, 7, 16, 40, 150)


def life(policy: Policy, random: Random) -> Iterator[Event]:
    """The events of one cluster, of which so many are requests."""
    build, size = Events(), random.choice([3, 5, 8, 13, 20, 40])
    racks = random.choice([0, 0, 1, 3, 4])
    capacity = random.choice(CAPACITIES)

    def join(spu_id: int) -> Event:
        rack = f"r{random.randrange(racks)}" if racks and random.random() < 0.995 else None
        slots = None if capacity is None else random.randint(1, 2 * capacity)
        return build.join(spu_id, rack=rack, cores=random.randint(1, 3), capacity=slots)

    yield from map(join, range(size))
    living: list[str] = []
    for number in range(REQUESTS_OF_A_CLUSTER):
        name, partitions = f"t{number}", random.choice(PARTITIONS)
        if living and policy is not Policy.MANUAL and random.random() < 0.2:
            yield build.grow(random.choice(living), partitions)
        else:
            yield create(policy, random, build, name, partitions, size=size)
            living.append(name)
        if random.random() < 0.3:
            yield change(random, build, join, living, size)


def create(
    policy: Policy, random: Random, build: Events, name: str, partitions: int, *, size: int
) -> Event:
    if policy is Policy.MANUAL:
        replicas = random.randint(1, 3)
        lists = [random.sample(range(size), replicas) for _ in range(min(partitions, 20))]
        if random.random() < 0.1:
            lists[-1].append(random.randrange(size + 2))
        return build.manual(name, *lists)
    given: dict[str, Any] = {"policy": policy}
    if random.random() < 0.15:
        given["ignore_rack"] = True
    if random.random() < 0.1:
        given["validate_only"] = True
    if random.random() < 0.1:
        given["on_shortage"] = OnShortage.WAIT
    if policy in (Policy.FLUVIO, Policy.KAFKA) and random.random() < 0.25:
        given["start_index"] = random.randrange(3 * size)
        if policy is Policy.KAFKA and random.random() < 0.5:
            given["shift"] = random.randrange(2 * size)
    return build.create(name, partitions, random.choice([1, 2, 3, 3, 3, 4]), **given)


def change(random: Random, build: Events, join: Any, living: list[str], size: int) -> Event:
    spu_id = random.randrange(size)
    match random.randrange(7):
        case 0:
            return build.leave(spu_id, mode=LeaveMode.OFFLINE)
        case 1:
            return build.cordon(spu_id)
        case 2:
            return build.uncordon(spu_id)
        case 3 | 4 if living:
            return build.delete(living.pop(random.randrange(len(living))))
        case _:
            event: Event = join(spu_id)
            return event


def facts_of(reason: Reason) -> list[str]:
    ring = reason.ring or RecordedRing(members="")
    members = ring_of_text(ring.members).size
    outside = [len(ids_of_text(text)) for text in (ring.offline, ring.saturated)]
    placed = reason.mode, reason.first_partition, reason.start_index, reason.shift, reason.is_named
    return [str(each) for each in (*placed, members, *outside)]


def _chains(state: ClusterState) -> Iterator[tuple[object, ...]]:
    """All chains; of orders that came after `BALANCED`, and so after the digests, moved ones."""
    old = [*Order].index(Order.BALANCED) + 1
    for number, chain in enumerate(state.chains.values()):
        if number < old or chain.moved:
            yield astuple(chain)


def digests(policy: Policy) -> list[str]:
    """One for each cluster: where a policy differs is found by the first that does."""
    found = []
    for cluster in range(REQUESTS // REQUESTS_OF_A_CLUSTER):
        random, state = Random(f"{policy.value}-{cluster}"), ClusterState("c1")
        hashed = hashlib.blake2b(digest_size=6)
        for event in life(policy, random):
            records = step(state, event, default_policy=policy)
            for answer in answers(records):
                hashed.update(answer_to_json(answer).encode())
                if isinstance(answer, ReplicaMap) and answer.reason is not None:
                    hashed.update(json.dumps(facts_of(answer.reason)).encode())
            hashed.update(repr([*_chains(state)]).encode())
        found.append(hashed.hexdigest())
    return found


@pytest.mark.parametrize("policy", EXACT)
def test_an_exact_policy_gives_the_bytes_that_were_stored(policy: Policy) -> None:
    """Lists, cores, chains, codes and messages: who reads them may depend on each."""
    stored = json.loads(STORED.read_text())[policy.value]
    found = digests(policy)
    assert len(found) == len(stored)
    differing = [
        n for n, (one, other) in enumerate(zip(found, stored, strict=True)) if one != other
    ]
    assert not differing, f"the lives of these clusters differ: {differing}"


def main() -> None:
    """Print the digests, or store them: when a policy was changed on purpose."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--write", action="store_true")
    made = {policy.value: digests(policy) for policy in EXACT}
    if parser.parse_args().write:
        STORED.write_text(json.dumps(made, indent=1) + "\n")
    else:
        print(json.dumps(made, indent=1))


if __name__ == "__main__":
    main()
