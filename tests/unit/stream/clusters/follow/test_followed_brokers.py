"""Who is announced to join and leave: lists of looks in, events out."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from spu_assigner.core.assigner import Assigner
from spu_assigner.core.base.constraints import Taint, TaintEffect
from spu_assigner.core.base.events import LeaveMode, SpuJoined, SpuLeft
from spu_assigner.stream.client.announced import (
    LABEL,
    MARK,
    AnnouncedOfCluster,
    Announcement,
    EventPosition,
    LabelsOfBrokers,
)
from spu_assigner.stream.clusters.follow.brokers import (
    MembershipDecision,
    Sightings,
    decide_brokers,
)
from spu_assigner.stream.clusters.follow.options import FollowOptions

GRACE, GAP = 3.0, 10.0
OPTIONS = FollowOptions(cluster_id="c", kafka_cluster="k", grace_seconds=GRACE)
Racks = Mapping[int, str | None]
ALL: Racks = {1: "a", 2: "b", 3: "c"}


Step = FollowOptions | SpuJoined | SpuLeft | str | tuple[Racks | None, int]


class Life:
    """A follower and the input it writes to, a look a second."""

    def __init__(self, options: FollowOptions = OPTIONS) -> None:
        self.options = options
        self.labels: LabelsOfBrokers = {}
        self.now = 0
        self.sent: list[Announcement] = []
        self.log: list[SpuJoined | SpuLeft] = []
        self.assigner = Assigner()
        self.restart()

    def restart(self) -> None:
        """All is forgotten but what lies in the input."""
        self.sight = Sightings()
        self.reader = AnnouncedOfCluster("c")
        for offset, event in enumerate(self.log):
            self.reader.take(event, place(offset))

    def by_hand(self, event: SpuJoined | SpuLeft) -> None:
        self.log.append(event)
        self.assigner.apply(event)
        self.reader.take(event, place(len(self.log) - 1))

    def look(self, racks: Racks | None) -> MembershipDecision:
        self.now += 1
        self.sight = self.sight.after(racks, now=float(self.now), gap=GAP)
        decision = self.decide()
        for event in decision.events:
            self.by_hand(event)
            self.sent.append(event)
        return decision

    def decide(self) -> MembershipDecision:
        known = self.reader.by_spu()
        return decide_brokers(known, self.sight, self.options, self.labels, occurred_at=self.now)

    def looks(self, racks: Racks | None, count: int) -> None:
        for _ in range(count):
            self.look(racks)

    def play(self, *steps: Step) -> None:
        """Looks, events by hand, options that are given by a new start, and restarts."""
        for step in steps:
            match step:
                case FollowOptions():
                    self.options = step
                case SpuJoined() | SpuLeft():
                    self.by_hand(step)
                case str():
                    self.restart()
                case racks, count:
                    self.looks(racks, count)

    @property
    def ring(self) -> list[int]:
        """What the job makes of it."""
        return sorted(self.assigner.clusters["c"].ring.ids.tolist())

    def announced(self) -> list[tuple[str, int]]:
        return [(type(event).__name__, event.spu_id) for event in self.sent]


def place(offset: int) -> EventPosition:
    return EventPosition(0, offset, offset)


def without(*ids: int) -> Racks:
    return {broker: rack for broker, rack in ALL.items() if broker not in ids}


def joins(*ids: int) -> list[tuple[str, int]]:
    return [("SpuJoined", broker) for broker in ids]


def leaves(*ids: int) -> list[tuple[str, int]]:
    return [("SpuLeft", broker) for broker in ids]


def by_hand(spu_id: int, event_id: str = "hand", **more: Any) -> SpuJoined:
    given: dict[str, Any] = {"rack": "x", "capacity": 9, **more}
    return SpuJoined(event_id=event_id, cluster_id="c", spu_id=spu_id, **given)


def left(spu_id: int, mode: LeaveMode = LeaveMode.OFFLINE) -> SpuLeft:
    return SpuLeft(event_id=f"left-{spu_id}", cluster_id="c", spu_id=spu_id, mode=mode)


FIRST: Step = (ALL, 1)
LABELLED = by_hand(2, "labelled", labels={"zone": "z"})
DRAINED = left(2, LeaveMode.DECOMMISSION)
TAKES_OVER = replace(OPTIONS, take_over=True)
EXCLUDES = replace(OPTIONS, excluded_brokers=frozenset({1, 2}))
SIZED = replace(OPTIONS, capacity=10)


@pytest.mark.parametrize(
    ("steps", "events"),
    [
        ([(ALL, 2)], []),
        # A broker leaves once it was missing for the grace time; the first of the looks may be the
        # moment it went, and only a time without any sight of it counts.
        ([(without(3), 3)], []),
        ([(without(3), 4)], leaves(3)),
        ([(without(2), 3), (ALL, 1)] * 5, []),
        ([(without(2), 4), (ALL, 1)] * 2, [*leaves(2), *joins(2)] * 2),
        # More than half are missing: a hole in the network, or a rack that goes dark in seconds.
        ([(without(1, 2), 10)], []),
        ([(without(1), 2), (without(1, 2), 10)], []),
        ([(without(1), 5), (without(1, 2), 5)], leaves(1, 2)),
        ([(without(1, 3), 4), replace(OPTIONS, allow_mass_leave=True), (without(1, 3), 1)],
         leaves(1, 3)),
        # Who was missing before a time without sight was not missing in it; none is a broker's.
        ([(without(3), 2), (None, 100), ({}, 100), (without(3), 1)], []),
        ([(without(3), 2), (None, 100), ({}, 100), (without(3), 3)], leaves(3)),
        # For how long somebody is missing is not in the input; what was announced is.
        ([(without(3), 3), "restart", (without(3), 3)], []),
        ([(without(3), 3), "restart", (without(3), 4), "restart", (without(3), 9)], leaves(3)),
        # Another rack or size joins again; what nobody says stays as it was.
        ([({**ALL, 2: "z"}, 2)], joins(2)),
        ([SIZED, (ALL, 2)], joins(1, 2, 3)),
        ([SIZED, FIRST, OPTIONS, (dict.fromkeys(ALL), 2)], joins(1, 2, 3)),
        ([EXCLUDES, (without(2), 10)], []),
        # Who describes an SPU that is online does not take it away, also for a new process.
        ([LABELLED, (ALL, 2), (without(2), 4)], [*joins(2), *leaves(2)]),
        ([LABELLED, "restart", (ALL, 2), (without(2), 4)], [*joins(2), *leaves(2)]),
        ([LABELLED, (without(2), 4)], leaves(2)),
        # Who joins it after a leave owns it; whom others made leave stays away.
        ([left(2), LABELLED, (ALL, 2), (without(2), 9)], []),
        ([DRAINED, LABELLED, (ALL, 2), (without(2), 9)], []),
        ([(without(2), 4), LABELLED, (ALL, 2), (without(2), 9)], leaves(2)),
        ([DRAINED, (ALL, 3), "restart", (ALL, 3)], []),
        ([TAKES_OVER, DRAINED, (ALL, 3), "restart", (ALL, 3)], []),
        # What others joined is taken over where that is asked for, and leaves like others then.
        ([by_hand(4), ({**ALL, 4: "d"}, 2), (ALL, 9)], []),
        ([TAKES_OVER, by_hand(4), ({**ALL, 4: "d"}, 2), (ALL, 4)], [*joins(4), *leaves(4)]),
    ],
)  # fmt: skip
def test_who_is_announced_after_the_joins_of_all(
    steps: list[Step], events: list[tuple[str, int]]
) -> None:
    """A look a second, a grace time of three."""
    life = Life()
    life.play(FIRST, *steps)
    assert life.announced()[:3] == joins(1, 2, 3)
    assert life.announced()[3:] == events
    assert len({event.event_id for event in life.sent}) == len(life.sent)
    assert all(isinstance(each, SpuJoined) or each.mode is LeaveMode.OFFLINE for each in life.sent)


def test_what_cannot_be_seen_does_not_leave() -> None:
    """Nor is what went on between looks that are far apart known."""
    life = Life()
    life.play(FIRST, (without(3), 2), (None, 100), ({}, 100))
    assert life.decide().events == ()
    life.look(without(3))
    life.now += 1_000
    assert life.look(without(3)).events == ()
    assert life.announced() == joins(1, 2, 3)


def test_a_decision_says_what_it_waits_for_holds_back_and_leaves_alone() -> None:
    """For who reads along."""
    life = Life()
    life.play(FIRST, (without(3), 3))
    assert life.decide().awaited == {3: 1.0}
    life.looks(without(1, 3), 4)
    assert life.decide().held == (1, 3)
    life.restart()
    life.play(by_hand(4), left(2), ({1: "b" * 129, **without(1), 4: None}, 1))
    reasons = life.decide().left_alone
    assert "129 characters; expected 128" in reasons[1]
    assert "made it leave" in reasons[2]
    assert "--adopt takes it over" in reasons[4]
    life.options = EXCLUDES
    assert life.decide().left_alone[1] == "it is excluded"


def test_a_first_join_says_the_rack_the_default_size_and_the_cluster() -> None:
    """`adopt` sends the same, of brokers that were never announced, and no leave."""
    life, adopt = Life(), Life(replace(OPTIONS, is_adopt=True, grace_seconds=math.inf))
    adopt.by_hand(by_hand(2))
    life.look(ALL)
    adopt.looks(ALL, 1)
    first = joined_by(life, 1)
    assert (first.rack, first.cores, first.capacity) == ("a", 1, 6_998)
    assert first.labels == {LABEL: "k"}
    assert first.event_id.startswith(f"{MARK}/")
    assert adopt.sent == [life.sent[0], life.sent[2]]
    adopt.looks(without(1), 100)
    assert len(adopt.sent) == 2


def joined_by(life: Life, spu_id: int) -> SpuJoined:
    """The last join of an SPU."""
    return [x for x in life.sent if isinstance(x, SpuJoined) and x.spu_id == spu_id][-1]


def test_what_somebody_gave_an_spu_by_hand_outlives_what_follow_says_of_it() -> None:
    """A taint that went with a change of the rack would let replicas in."""
    life = Life()
    life.look(ALL)
    taints = (Taint("pool", "pay", TaintEffect.EVICT), Taint("a", "", TaintEffect.NO_LEADERS))
    given = {"labels": {LABEL: "k", "tier": "ssd"}, "resources": {"disk": 9}, "taints": taints}
    life.by_hand(replace(life.sent[1], event_id="by-hand", **given))
    life.looks({**ALL, 2: "z"}, 2)
    again = joined_by(life, 2)
    assert again.rack == "z"
    assert {name: getattr(again, name) for name in given} == {**given, "taints": taints[::-1]}
    life.play("restart", replace(OPTIONS, resources={"net": 7}), ({**ALL, 2: "y"}, 1))
    again = joined_by(life, 2)
    assert (again.rack, again.resources) == ("y", {"disk": 9, "net": 7})
    assert sorted(again.taints) == sorted(taints)
    assert joined_by(life, 1).resources == {"net": 7}
    count = len(life.sent)
    life.play(OPTIONS, ({**ALL, 2: "y"}, 2))
    assert len(life.sent) == count


def test_the_file_wins_for_what_it_names_and_what_it_does_not_name_stays() -> None:
    """Neither sends a join because of what the other says of something else."""
    life = Life()
    life.look(ALL)
    given = {"tier": "ssd", ("b", TaintEffect.NO_LEADERS): "1"}
    life.labels = {2: given, 9: {"tier": "hdd"}}
    life.looks(ALL, 3)
    assert life.announced()[3:] == joins(2)
    joined = joined_by(life, 2)
    of_file = Taint("b", "1", TaintEffect.NO_LEADERS)
    assert (joined.labels, joined.taints) == ({LABEL: "k", "tier": "ssd"}, (of_file,))
    # By hand, in whatever order: nothing follows, also for a new process.
    hand = (of_file, Taint("a", "", TaintEffect.EVICT))
    life.by_hand(replace(joined, event_id="hand", labels={**joined.labels, "x": "y"}, taints=hand))
    life.play((ALL, 2), "restart", (ALL, 2))
    assert len(life.sent) == 4
    # What the file names comes back, once, and leaves the rest.
    life.by_hand(replace(joined, event_id="undone", labels={LABEL: "k", "x": "y", "tier": "hdd"}))
    life.looks(ALL, 3)
    assert life.announced()[3:] == joins(2, 2)
    assert joined_by(life, 2).labels == {LABEL: "k", "x": "y", "tier": "ssd"}
    # A name that is taken out of the file stays until it is removed by hand.
    life.labels = {}
    life.looks({**ALL, 2: "z"}, 2)
    assert joined_by(life, 2).labels == {LABEL: "k", "x": "y", "tier": "ssd"}
    life.by_hand(replace(joined, event_id="removed", rack="z", labels={LABEL: "k"}))
    life.looks({**ALL, 2: "z"}, 2)
    assert life.announced()[3:] == joins(2, 2, 2)


LOOKS = st.lists(
    st.one_of(
        st.none(),
        st.dictionaries(st.integers(0, 4), st.sampled_from([None, "a", "b"])),
        st.just("restart"),
        st.sampled_from(["join", "leave"]),
    ),
    max_size=60,
)


@given(looks=LOOKS, spu_id=st.integers(0, 4))
def test_no_life_breaks_a_promise(looks: list[Racks | str | None], spu_id: int) -> None:
    """Flapping, blindness, restarts and hands in between: a plain model looks over the shoulder."""
    life = Life()
    missing = dict.fromkeys(range(5), 0.0)  # seconds in which each was surely away
    before: Racks = {}
    clear = False
    for number, look in enumerate(looks):
        if look == "restart":
            life.restart()
            missing, before, clear = dict.fromkeys(range(5), 0.0), {}, False
            continue
        if isinstance(look, str):
            life.by_hand(
                by_hand(spu_id, f"h{number}")
                if look == "join"
                else replace(left(spu_id), event_id=f"h{number}")
            )
            continue
        sees = bool(look)
        for broker in missing:
            if look and broker in look:
                missing[broker] = 0.0
            elif sees and clear and broker not in before:
                missing[broker] += 1.0
        decision = life.look(look)
        for event in decision.events:
            assert not is_his(life, event)
            if isinstance(event, SpuLeft):
                assert missing[event.spu_id] >= GRACE
            else:
                assert event.spu_id in (look or {})
        assert life.decide().events == ()  # What was announced is known.
        if sees:
            before, clear = look or {}, True
        else:
            clear = False
    ids = [event.event_id for event in life.sent]
    assert len(set(ids)) == len(ids)


def is_his(life: Life, event: Announcement) -> bool:
    """Whether somebody else had joined the SPU, or made it leave, before this event was sent.

    His join of an SPU that is online says more of it, and does not make it his.
    """
    his = is_online = False
    for each in life.log:
        if each == event:
            break
        if each.spu_id == event.spu_id:
            is_join = isinstance(each, SpuJoined)
            his = not each.event_id.startswith(MARK) and (his or not (is_join and is_online))
            is_online = is_join
    return his


@given(looks=LOOKS)
def test_after_a_while_of_clear_sight_the_ring_is_who_is_there(
    looks: list[Racks | str | None],
) -> None:
    """Whatever was before; what is held back is the one thing that may differ."""
    life = Life(replace(OPTIONS, allow_mass_leave=True))
    for look in looks:
        if look == "restart":
            life.restart()
        elif not isinstance(look, str):
            life.look(look)
    life.looks(ALL, 6)
    assert life.ring == [1, 2, 3]
    spus = life.assigner.clusters["c"].spus
    assert {spu_id: spus[spu_id].rack for spu_id in (1, 2, 3)} == ALL  # type: ignore[index]  # ids are ints
