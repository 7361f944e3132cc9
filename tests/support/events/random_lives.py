"""Random lives of a cluster from a seed: events of the core, and where it crashes in between.

Nothing here looks at the cluster; but most events name SPUs and topics that were named before, so
that few are wasted. The same seed gives the same life.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from random import Random
from typing import Any, Final

from spu_assigner.core.base.constraints import (
    Constraints,
    Preference,
    SpreadLevel,
    Taint,
    TaintEffect,
    Toleration,
)
from spu_assigner.core.base.events import Event, LeaveMode, OnShortage, Policy, TopicAdopted
from spu_assigner.schemas.json_lines.lines import event_to_json
from support.events.builders import Events

CLUSTER: Final = "c1"
# The oracle places these.
MODELLED: Final = (Policy.FLUVIO, Policy.KAFKA, Policy.REDPANDA)
OTHERS: Final = (Policy.BALANCED, *sorted({*Policy} - {*MODELLED, Policy.MANUAL}))
RESERVED: Final = ("__t", "topic-status", "replica-map")  # no create may take them
RESOURCE_LIVES: Final = 4  # of so many lives one is of topics that need resources,
RULED_LIVE: Final = 3  # and one of taints and constraints: seeds that leave this remainder
# u: capacity or rack of one that is there; k: cordon, demote, or the end of either;
# a: a topic is adopted; f: another factor
KINDS: Final = "jjjjjuuuooxxxxccccccccccaddggggffbbrrkkkkkk"
MODELLED_INSTEAD: Final = {"x": "o", "a": "c", "b": "c", "f": "g"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Life:
    """Events in order; after those with an id in `crashes` the state is rebuilt."""

    seed: int
    events: tuple[Event, ...]
    crashes: frozenset[str]
    default_policy: Policy
    memory: int  # event ids that the cluster remembers


def life_of(seed: int, *, modelled: bool = False) -> Life:
    """The life of this seed; with `modelled` one that the oracle can follow."""
    return _Author(seed, modelled=modelled).write(seed)


def rebalanced_life(seed: int) -> Life:
    """Topics with constraints fill some SPUs; others join, some change, and rebalances follow."""
    author = _Author(seed, modelled=False)
    random, spus = author.random, len(author.spu_ids)
    author.rules, author.policies = Random(seed), [Policy.BALANCED]
    author.capacity_max = max(author.capacity_max, 12)
    early = random.randint(1, spus)
    kinds = "j" * early + "c" * random.randint(4, 7) + "j" * (spus - early)
    kinds += "".join(random.choice("uukaldj") for _ in range(random.randint(0, 3))) + "bbb"
    return Life(
        seed=seed,
        events=tuple(author.event(kind, f"e{number}") for number, kind in enumerate(kinds)),
        crashes=frozenset(),
        default_policy=Policy.BALANCED,
        memory=256,
    )


class _Author:
    def __init__(self, seed: int, *, modelled: bool) -> None:
        self.random = random = Random(seed)
        self.modelled = modelled
        self.build = Events(CLUSTER)
        self.spu_ids = random.sample(range(12), random.randint(2, 7))
        self.racks: list[str | None] = random.choice(
            [[None], ["a", "b"], ["a", "b", "c"], ["a", "b", "c", "d"], [None, "a", "b"]]
        )
        self.capacity_max = random.choice([3, 6, 6, 12, 40])
        self.topics = [f"t{number}" for number in range(random.randint(2, 5))]
        if seed % 8 == 0:
            self.topics[-1] = RESERVED[seed // 8 % len(RESERVED)]
        others = MODELLED if modelled else (*MODELLED, *OTHERS)
        self.policies = random.choice([list(others), [random.choice(others)]])
        self.wait_share = random.choice([0.0, 0.5, 0.9])
        self.joined: list[int] = []
        self.left: list[int] = []
        self.asked: dict[str, int] = {}
        self.adopted: dict[str, TopicAdopted] = {}  # by topic, the last of each
        # Drawn apart, so that other lives are what they were.
        has_resources = not modelled and seed % RESOURCE_LIVES == 1
        self.resources = Random(seed).sample(["cpu", "disk", "net"], 2) if has_resources else []
        self.measures = Random(seed)
        is_ruled = not modelled and seed % RESOURCE_LIVES == RULED_LIVE
        self.rules = Random(seed) if is_ruled else None
        self.demands = Random(f"least {seed}")

    def write(self, seed: int) -> Life:
        random = self.random
        events: list[Event] = []
        early = random.randint(1, len(self.spu_ids))
        for number in range(random.randint(8, 22)):
            kind = "j" if number < early else random.choice(KINDS)
            if kind == "g" and self.resources and random.random() < 0.5:
                kind = self.measures.choice("mma")  # what a topic needs, as measured
            if kind == "g" and self.rules and self.rules.random() < 0.5:
                kind = "l"  # what it demands of its SPUs
            events.append(random.choice(events) if kind == "r" else self.event(kind, f"e{number}"))
        crashes = random.sample(range(len(events)), random.randint(0, 2))
        return Life(
            seed=seed,
            events=tuple(events),
            crashes=frozenset(events[at].event_id for at in crashes),
            default_policy=random.choice(MODELLED),
            memory=random.choice([8, 256, 256]),
        )

    def event(self, kind: str, event_id: str) -> Event:
        build, random, given = self.build, self.random, {"event_id": event_id}
        kind = MODELLED_INSTEAD.get(kind, kind) if self.modelled else kind
        match kind:
            case "j":
                return self.join(self.one_of(self.left, self.spu_ids), **given)
            case "u":
                return self.join(self.one_of(self.joined, self.spu_ids), **given)
            case "o":
                return self.leave(LeaveMode.OFFLINE, **given)
            case "x":
                return self.leave(LeaveMode.DECOMMISSION, **given)
            case "k":
                kinds = [build.cordon, build.uncordon, build.demote, build.undemote]
                made = random.choice(kinds[:2] if self.modelled else kinds)
                return made(self.one_of(self.joined, self.spu_ids), **given)
            case "a":
                return self.adopt(**given)
            case "b":
                return build.rebalance(random.choice([-1, 0, 1, 2, 5, 100, 100]), **given)
            case "c":
                return self.create(**given)
        topic = self.one_of(list(self.asked), self.topics)
        match kind:
            case "d":
                self.asked.pop(topic, None)
                is_release = event_id[-1] in "369"  # Nothing is drawn for it.
                return (build.release if is_release else build.delete)(topic, **given)
            case "g":
                partitions = self.asked.get(topic, 0) + random.randint(0, 3)
                self.asked[topic] = max(partitions, 1)
                return build.grow(topic, partitions, **given)
            case "m":
                return build.demand(topic, demand=self.amounts(1, 6) or {}, **given)
            case "l":
                rules = self.constraints() or Constraints()
                return build.constraints(topic, rules, **given)
        return build.replication(topic, random.choice([0, 1, 1, 2, 2, 3, 4]), **given)

    def one_of(self, named: list[Any], others: list[Any]) -> Any:
        return self.random.choice(named if named and self.random.random() < 0.85 else others)

    def join(self, spu_id: int, **given: Any) -> Event:
        if spu_id in self.left:
            self.left.remove(spu_id)
        if spu_id not in self.joined:
            self.joined.append(spu_id)
        random = self.random
        return self.build.join(
            spu_id,
            rack=random.choice(self.racks),
            cores=random.randint(1, 3),
            capacity=random.randint(0, self.capacity_max) if random.random() < 0.9 else None,
            resources=self.amounts(0, 60),
            labels=self.labels(),
            taints=self.taints(),
            **given,
        )

    def labels(self) -> dict[str, str] | None:
        """Labels, in a life that has them."""
        if self.rules is None:
            return None
        return {"zone": self.rules.choice("ab"), "tier": self.rules.choice(("ssd", "ssd", "hdd"))}

    def taints(self) -> tuple[Taint, ...]:
        """Likewise few taints."""
        if self.rules is None or self.rules.random() < 0.8:
            return ()
        return (Taint("pool", self.rules.choice("uv"), self.rules.choice(list(TaintEffect))),)

    def constraints(self) -> Constraints | None:
        """Likewise constraints."""
        rules = self.rules
        if rules is None or rules.random() < 0.4:
            return None
        selectors = ("tier=ssd", "zone=a", "zone in (a, b)", "!gpu", "tier != hdd")
        other = (rules.choice(self.topics),) if rules.random() < 0.3 else ()
        return Constraints(
            tolerations=(Toleration("pool", rules.choice(("u", None))),) * rules.randint(0, 1),
            require=(rules.choice(selectors),) * rules.randint(0, 1),
            forbid=("spu_id in (0, 1)",) * rules.randint(0, 1),
            prefer=(Preference(rules.choice(selectors), rules.choice((-1, 5))),),
            spread=(
                SpreadLevel(
                    "zone", rules.choice((None, 1, 2, 2)), self.demands.choice((None, None, 1))
                ),
            )
            * rules.randint(0, 1),
            apart_from=other if rules.random() < 0.5 else (),
            together_with=other if rules.random() < 0.3 else (),
            leaders=(rules.choice(selectors),) * rules.randint(0, 1),
        )

    def amounts(self, least: int, most: int, random: Random | None = None) -> dict[str, int] | None:
        """So much of some resources, in a life that has them."""
        if not self.resources:
            return None
        random = random or self.random
        named = random.sample(self.resources, random.randint(0, 2))
        return {name: random.randint(least, most) for name in named} or None

    def leave(self, mode: LeaveMode, **given: Any) -> Event:
        spu_id = self.one_of(self.joined, self.spu_ids)
        if spu_id in self.joined:
            self.joined.remove(spu_id)
            self.left.append(spu_id)
        return self.build.leave(spu_id, mode=mode, **given)

    def adopt(self, **given: Any) -> Event:
        random = self.random
        topic = random.choice(self.topics)
        demand = self.amounts(0, 8, self.measures)
        if self.resources and topic in self.adopted and self.measures.random() < 0.5:
            return replace(self.adopted[topic], demand=demand, **given)
        named = self.joined if self.joined and random.random() < 0.85 else self.spu_ids
        rows = [
            tuple(random.sample(named, min(random.randint(1, 4), len(named))))
            for _ in range(random.randint(1, 4))
        ]
        self.asked[topic] = len(rows)
        self.adopted[topic] = self.build.adopt(
            topic,
            *rows,
            policy=random.choice([None, None, *self.policies, Policy.MANUAL]),
            pinned=random.random() < 0.2,
            demand=demand,
            **given,
        )
        return self.adopted[topic]

    def create(self, **given: Any) -> Event:
        random = self.random
        topic = random.choice(self.topics)
        given["validate_only"] = random.random() < 0.05
        waits = random.random() < self.wait_share
        given["on_shortage"] = OnShortage.WAIT if waits else OnShortage.REJECT
        if random.random() < 0.15:
            width = min(random.randint(1, 3), len(self.spu_ids))
            rows = [random.sample(self.spu_ids, width) for _ in range(random.randint(1, 4))]
            return self.build.manual(topic, *rows, **given)
        policy = random.choice([None, *self.policies, *self.policies])
        partitions = random.randint(1, 5)
        self.asked.setdefault(topic, partitions)
        may_start = policy in (Policy.FLUVIO, Policy.KAFKA) and not self.modelled
        if may_start and random.random() < 0.1:
            given["start_index"] = random.randint(0, 20)
            if policy is Policy.KAFKA and random.random() < 0.5:
                given["shift"] = random.randint(0, 9)
        return self.build.create(
            topic,
            partitions,
            random.choice([1, 2, 2, 3, 3, 4]),
            policy=policy,
            ignore_rack=random.random() < 0.2,
            demand=self.amounts(0, 8),
            leader_demand=self.amounts(0, 8) if self.resources and random.random() < 0.3 else None,
            constraints=self.constraints(),
            **given,
        )


def as_json(event: Event) -> dict[str, Any]:
    members: dict[str, Any] = json.loads(event_to_json(event))
    return members
