"""Random lives of a cluster as Hypothesis strategies: events as the contract's JSON objects.

Nothing here knows what a cluster looks like, so many an event is refused; that is part of a life.
Some lives are tight: few SPUs with few slots, where lists become short, requests wait, SPUs fill up
in the middle of a repair, and a join finds its SPU leaving.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from hypothesis import strategies as st

Json = dict[str, Any]

FLOOD: Final = 256  # events that make a cluster forget all that came before
POLICIES: Final = ("fluvio", "kafka", "redpanda", "rendezvous", "manual", None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Flavour:
    """What kind of life it is. A letter for each event: its frequency is its share."""

    kinds: str
    spu_id_max: int = 7
    capacity_max: int = 12
    topics: int = 8
    partitions_max: int = 12
    waits: int = 0  # of ten creates
    is_capacity_usually_named: bool = False
    is_wellformed: bool = True  # no capacity of 0, no request for 0 partitions or replicas
    aim: int = 7  # of ten draws, those of an SPU or a topic that was named before


# j join, l leave, x decommission, k cordon, demote or its end, c create, a adopt, d delete,
# g grow, f factor, b rebalance, r repeat
_STEADY: Final = Flavour(kinds="jjjlkccccccccaaddfr", is_wellformed=False, aim=0)
_LIVING: Final = Flavour(kinds="jjjjlxxkkccccccaaddgggffbr", waits=4)
_TIGHT: Final = Flavour(
    kinds="jjjjjlxxxkkccccccaaddgggffrr",
    spu_id_max=4,
    capacity_max=5,
    topics=4,
    partitions_max=4,
    waits=6,
    is_capacity_usually_named=True,
)
_ROOMY: Final = Flavour(  # whatever leaves finds a replacement, so racks and shares decide
    kinds="jjjjlxxxkkcccccaadggffr", capacity_max=40, topics=6, partitions_max=5, waits=3
)


class _Life:
    """Draws events, most of them about SPUs and topics that were named before."""

    def __init__(self, draw: st.DrawFn, flavour: Flavour, *, racked: bool | None) -> None:
        self.draw = draw
        self.flavour = flavour
        racks: dict[bool | None, list[str | None]] = {
            None: [None, "a", "b", "c"],
            True: ["a", "b", "c"],
            False: [None],
        }
        self.racks = racks[racked]
        self.joined: list[int] = []
        self.left: list[int] = []
        self.asked: dict[str, int] = {}  # topics, and the partitions that they were to have
        self.events: list[Json] = []

    def one_of(self, named: Sequence[Any], largest: int) -> Any:
        """A value that was named before, if the flavour aims at it, or any up to the largest."""
        if named and self.draw(st.integers(0, 9)) < self.flavour.aim:
            return self.draw(st.sampled_from(named))
        return self.draw(st.integers(0, largest))

    def topic(self) -> str:
        number = self.one_of([int(name[1:]) for name in self.asked], self.flavour.topics - 1)
        return f"t{number}"

    def join(self) -> Json:
        spu_id = self.one_of(self.left, self.flavour.spu_id_max)
        if spu_id in self.left:
            self.left.remove(spu_id)
        if spu_id not in self.joined:
            self.joined.append(spu_id)
        named = st.integers(1 if self.flavour.is_wellformed else 0, self.flavour.capacity_max)
        choices = [named] * (4 if self.flavour.is_capacity_usually_named else 1)
        return {
            "type": "spu_joined",
            "spu_id": spu_id,
            "rack": self.draw(st.sampled_from(self.racks)),
            "cores": self.draw(st.integers(1, 3)),
            "capacity": self.draw(st.one_of(*choices, st.none())),
        }

    def leave(self, mode: str) -> Json:
        spu_id = self.one_of(self.joined, self.flavour.spu_id_max)
        if spu_id in self.joined:
            self.joined.remove(spu_id)
            self.left.append(spu_id)
        return {"type": "spu_left", "spu_id": spu_id, "mode": mode}

    def cordon(self) -> Json:
        kind = self.draw(
            st.sampled_from(["spu_cordon", "spu_uncordon", "spu_demote", "spu_undemote"])
        )
        return {"type": kind, "spu_id": self.one_of(self.joined, self.flavour.spu_id_max)}

    def create(self) -> Json:
        draw, flavour = self.draw, self.flavour
        least = 1 if flavour.is_wellformed else 0
        policy = draw(st.sampled_from(POLICIES))
        event: Json = {
            "type": "topic_create",
            "topic": f"t{draw(st.integers(0, flavour.topics - 1))}",
            "policy": policy,
            "validate_only": draw(st.integers(0, 9)) == 0,
            "on_shortage": "wait" if draw(st.integers(0, 9)) < flavour.waits else "reject",
        }
        if policy == "manual":
            width = draw(st.integers(1, 3))
            ids = st.integers(0, flavour.spu_id_max)
            row = st.lists(ids, min_size=width, max_size=width, unique=True)
            rows = draw(st.lists(row, min_size=least, max_size=4))
            event["replicas"] = [{"id": place, "replicas": row} for place, row in enumerate(rows)]
            return event
        event["partitions"] = draw(st.integers(least, flavour.partitions_max))
        event["replication_factor"] = draw(st.integers(least, 4))
        event["ignore_rack"] = draw(st.integers(0, 4)) == 0
        if policy in ("fluvio", "kafka") and draw(st.integers(0, 2)) == 0:
            event["start_index"] = draw(st.integers(0, 20))
            if policy == "kafka" and draw(st.booleans()):
                event["shift"] = draw(st.integers(0, 20))
        self.asked.setdefault(event["topic"], event["partitions"])
        return event

    def grow(self) -> Json:
        topic = self.topic()
        partitions = self.asked.get(topic, 0) + self.draw(st.integers(-1, 4))
        self.asked[topic] = max(partitions, 1)
        return {"type": "topic_grow", "topic": topic, "partitions": partitions}

    def adopt(self) -> Json:
        """Most name SPUs that are there."""
        draw, flavour = self.draw, self.flavour
        named = st.integers(0, flavour.spu_id_max)
        ids = named if len(self.joined) < 2 else st.sampled_from(self.joined) | named
        least = 1 if flavour.is_wellformed else 0
        row = st.lists(ids, min_size=least, max_size=4, unique=flavour.is_wellformed)
        event: Json = {
            "type": "topic_adopted",
            "topic": f"t{draw(st.integers(0, flavour.topics - 1))}",
            "replicas": draw(st.lists(row, min_size=least, max_size=4)),
            "policy": draw(st.sampled_from([*POLICIES, None])),
            "pinned": draw(st.integers(0, 3)) == 0,
        }
        self.asked[event["topic"]] = len(event["replicas"])
        return event

    def replication(self) -> Json:
        least = 1 if self.flavour.is_wellformed else 0
        factor = self.draw(st.integers(least, 4))
        return {"type": "topic_replication", "topic": self.topic(), "replication_factor": factor}

    def delete(self) -> Json:
        topic = self.topic()
        self.asked.pop(topic, None)
        kind = self.draw(st.sampled_from(["topic_delete", "topic_delete", "topic_release"]))
        return {"type": kind, "topic": topic}

    def rebalance(self) -> Json:
        """The oracle moves nothing: only where there is nothing to move, or too few moves."""
        makers = ("topic_create", "topic_adopted")
        is_new = all(event["type"] not in makers for event in self.events)
        moves = self.draw(st.integers(-2, 3 if is_new else -1))
        return {"type": "cluster_rebalance", "max_moves": moves}

    def event(self, kind: str) -> Json:
        if kind == "l":
            return self.leave("offline")
        if kind == "x":
            return self.leave("decommission")
        if kind in "ca":
            event = self.create() if kind == "c" else self.adopt()
            if self.draw(st.integers(0, 19)) == 0:  # It is refused, whatever it asks for.
                event["topic"] = self.draw(st.sampled_from(["__t1", "dead-letter"]))
            return event
        makers = {
            "j": self.join,
            "k": self.cordon,
            "d": self.delete,
            "g": self.grow,
            "f": self.replication,
        }
        return makers.get(kind, self.rebalance)()


@st.composite
def lives(draw: st.DrawFn, *, length_max: int = 40) -> list[Json]:
    """Up to `length_max` events of cluster c1, some of them repeated."""
    racked = draw(st.sampled_from([None, True, False, True, False]))
    life = _Life(draw, draw(st.sampled_from([_STEADY, _LIVING, _TIGHT, _ROOMY])), racked=racked)
    for number in range(draw(st.integers(1, length_max))):
        early = "j" if number < 3 and life.flavour.aim else "jjjjc"
        kind = draw(st.sampled_from(life.flavour.kinds if number > 3 else early))
        if kind == "r":
            life.events.append(dict(draw(st.sampled_from(life.events))))
        else:
            life.events.append(_named(life.event(kind), number))
    return life.events


@st.composite
def flooded_lives(draw: st.DrawFn) -> list[Json]:
    """A life in whose middle all that came before is forgotten, so that copies of it are late.

    Copies of membership events are left out: they are applied again, as the contract has it.
    """
    flavour = draw(st.sampled_from([_LIVING, _TIGHT]))
    life = _Life(draw, flavour, racked=draw(st.booleans()))
    for number in range(draw(st.integers(6, 20))):
        kind = draw(st.sampled_from("jjjccgx" if number > 3 else "jjjc"))
        life.events.append(_named(life.event(kind), number))
    requests = [event for event in life.events if "topic" in event]
    unknown = {"type": "topic_delete", "topic": "unknown"}
    life.events += [_named(unknown, 1000 + number) for number in range(FLOOD)]
    for number in range(draw(st.integers(1, 12))):
        if requests and draw(st.integers(0, 3)):
            life.events.append(dict(draw(st.sampled_from(requests))))
        else:
            life.events.append(_named(life.event(draw(st.sampled_from("jcdg"))), 100 + number))
    return life.events


def _named(event: Json, number: int) -> Json:
    return {**event, "event_id": f"e{number}", "cluster_id": "c1"}
