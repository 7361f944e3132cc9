"""Who is announced to join and leave: lists of looks in, events out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from spu_assigner.core.assigner import Assigner
from spu_assigner.core.base.constraints import Taint, TaintEffect
from spu_assigner.core.base.events import LeaveMode, SpuCordon, SpuJoined, SpuLeft, SpuUncordon
from spu_assigner.stream.client.announced import AnnouncedOfCluster, EventPosition
from spu_assigner.stream.client.spu_description import LABEL, MARK, Announcement
from spu_assigner.stream.clusters.follow.decision import (
    FollowOptions,
    MembershipDecision,
    Sightings,
    Size,
    crowded,
    decide,
    followed_clusters,
)

GRACE, GAP = 3.0, 10.0
OPTIONS = FollowOptions(cluster_id="c", kafka_cluster="k", grace_seconds=GRACE)
Racks = Mapping[int, str | None]
ALL: Racks = {1: "a", 2: "b", 3: "c"}


class Life:
    """A follower and the input it writes to, a look a second."""

    def __init__(self, options: FollowOptions = OPTIONS) -> None:
        self.options = options
        self.now = 0
        self.sent: list[Announcement] = []
        self.log: list[SpuJoined | SpuLeft] = []
        self.assigner = Assigner()
        self.restart()

    def restart(self) -> None:
        """All is forgotten but what lies in the input."""
        self.sight = Sightings()
        self.reader = AnnouncedOfCluster("c", origin="t.begin-0")
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
        return decide(known, self.sight, self.options, origin="t.begin-0", occurred_at=0)

    def looks(self, racks: Racks | None, count: int) -> None:
        for _ in range(count):
            self.look(racks)

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


def joins(ids: Iterable[int]) -> list[tuple[str, int]]:
    return [("SpuJoined", broker) for broker in ids]


def leaves(ids: Iterable[int]) -> list[tuple[str, int]]:
    return [("SpuLeft", broker) for broker in ids]


def test_brokers_join_with_their_racks_and_once() -> None:
    """The first look announces all; the next ones nothing."""
    life = Life()
    life.looks(ALL, 3)
    assert life.announced() == joins([1, 2, 3])
    first = life.sent[0]
    assert isinstance(first, SpuJoined)
    assert (first.rack, first.cores, first.capacity) == ("a", 1, 6_998)
    assert first.labels == {LABEL: "k"}
    assert life.ring == [1, 2, 3]


BACK = [("SpuLeft", 2), ("SpuJoined", 2)]


@pytest.mark.parametrize(
    ("looks", "events"),
    [
        ([(without(3), 3)], []),  # the first of the looks may be the moment it went
        ([(without(3), 4)], leaves([3])),
        ([(without(2), 3), (ALL, 1)] * 5, []),  # only a time without any sight of it counts
        ([(without(2), 4), (ALL, 1)] * 2, BACK * 2),
        ([(without(1, 2), 10)], []),  # more than half: so it looks through a hole in the network
        ([(without(1), 2), (without(1, 2), 10)], []),  # a rack goes dark within seconds
        ([(without(1), 5), (without(1, 2), 5)], leaves([1, 2])),  # is taken down slowly
    ],
)
def test_a_broker_leaves_once_it_was_missing_for_the_grace_time(
    looks: list[tuple[Racks, int]], events: list[tuple[str, int]]
) -> None:
    """After the joins of all three."""
    life = Life()
    life.look(ALL)
    for racks, count in looks:
        life.looks(racks, count)
    assert life.announced()[3:] == events
    assert len({event.event_id for event in life.sent}) == len(life.sent)
    assert all(isinstance(each, SpuJoined) or each.mode is LeaveMode.OFFLINE for each in life.sent)
    gone = {broker for kind, broker in events if kind == "SpuLeft"} - set(looks[-1][0])
    assert life.ring == sorted(set(ALL) - gone)


def test_a_decision_says_what_it_waits_for_and_holds_back() -> None:
    """For who reads along; `--allow-mass-leave` is the word that lets them go."""
    life = Life()
    life.look(ALL)
    life.looks(without(3), 3)
    assert life.decide().awaited == {3: 1.0}
    life.looks(without(1, 3), 4)
    assert life.decide().held == (1, 3)
    life.options = replace(OPTIONS, allow_mass_leave=True)
    life.look(without(1, 3))
    assert life.announced()[3:] == leaves([1, 3])


def test_what_cannot_be_seen_does_not_leave() -> None:
    """The time that nothing is seen does not count for those who were missing before, either."""
    life = Life()
    life.look(ALL)
    life.looks(without(3), 2)
    life.looks(None, 100)
    life.looks({}, 100)  # A cluster that says it has no brokers was not seen.
    life.look(without(3))
    assert life.announced() == joins([1, 2, 3])
    life.looks(without(3), 2)
    assert life.announced()[3:] == leaves([3])


def test_a_process_that_was_stopped_did_not_see_what_went_on() -> None:
    """Looks far apart say nothing of the time between them."""
    life = Life()
    life.look(ALL)
    life.look(without(3))
    life.now += 1_000
    assert life.look(without(3)).events == ()


def test_a_broker_in_another_rack_or_of_another_size_joins_again() -> None:
    """A join of a known id updates it."""
    life = Life()
    life.look(ALL)
    life.look({**ALL, 2: "z"})
    life.options = replace(OPTIONS, sizes={3: Size(capacity=7, cores=2)})
    life.looks({**ALL, 2: "z"}, 2)
    assert life.announced()[3:] == [("SpuJoined", 2), ("SpuJoined", 3)]
    moved, grown = life.sent[3:]
    assert isinstance(moved, SpuJoined)
    assert isinstance(grown, SpuJoined)
    assert moved.rack == "z"
    assert (grown.cores, grown.capacity) == (2, 7)


def test_resources_that_are_set_join_again_and_stay_when_they_are_not_set() -> None:
    """Each by itself: what somebody gave an SPU besides is kept."""
    life = Life()
    life.look(ALL)
    given = {"labels": {LABEL: "k"}, "resources": {"net": 9, "disk_bytes": 1}}
    life.by_hand(replace(life.sent[1], event_id="by-hand", **given))
    life.options = replace(OPTIONS, size=Size(resources={"disk_bytes": 7}))
    life.look(ALL)
    of_each = {event.spu_id: event.resources for event in life.sent[3:]}  # type: ignore[union-attr]  # joins
    assert of_each == {
        1: {"disk_bytes": 7},
        2: {"net": 9, "disk_bytes": 7},
        3: {"disk_bytes": 7},
    }
    life.options = OPTIONS
    life.looks(ALL, 2)
    assert len(life.sent) == 6


def test_what_nobody_sets_stays_as_it_was() -> None:
    """A start without --capacity does not resize a cluster, nor take its racks away."""
    life = Life(replace(OPTIONS, size=Size(capacity=10)))
    life.look(ALL)
    life.options = OPTIONS
    life.looks(dict.fromkeys(ALL), 2)
    assert life.announced() == joins([1, 2, 3])


def test_a_size_of_its_own_goes_before_that_of_all() -> None:
    """Field by field: a broker may have more cores and the capacity of all."""
    assert Size(cores=4).over(Size(cores=2, capacity=5)) == Size(cores=4, capacity=5)
    assert Size().over(Size(cores=2)) == Size(cores=2)


def by_hand(spu_id: int, event_id: str = "hand") -> SpuJoined:
    return SpuJoined(event_id=event_id, cluster_id="c", spu_id=spu_id, rack="x", capacity=9)


def test_what_others_joined_is_left_alone() -> None:
    """It may stand for something else; it neither changes nor leaves."""
    life = Life()
    life.by_hand(by_hand(2))
    life.look(ALL)
    life.looks(without(2), 10)
    assert life.announced() == joins([1, 3])
    life.look(ALL)
    assert "--adopt" in life.decide().left_alone[2]


def test_what_is_adopted_keeps_its_size_and_leaves_like_others() -> None:
    """Kafka knows the rack, and nothing of the size."""
    life = Life(replace(OPTIONS, adopt=True))
    life.by_hand(replace(by_hand(2), labels={"row": "7"}))
    life.looks(ALL, 2)
    assert life.announced() == joins([1, 2, 3])
    adopted = life.sent[1]
    assert isinstance(adopted, SpuJoined)
    assert (adopted.rack, adopted.capacity) == ("b", 9)
    assert adopted.labels == {"row": "7", LABEL: "k"}
    life.looks(without(2), 4)
    assert life.announced()[3:] == [("SpuLeft", 2)]


def test_what_somebody_gave_an_spu_by_hand_outlives_what_follow_says_of_it() -> None:
    """A taint that went with a change of the rack would let replicas in."""
    life = Life()
    life.looks(ALL, 1)
    taints = (Taint("pool", "pay", TaintEffect.EVICT), Taint("a", "", TaintEffect.NO_LEADERS))
    given = {"labels": {LABEL: "k", "tier": "ssd"}, "resources": {"disk": 9}, "taints": taints}
    life.by_hand(replace(life.sent[1], event_id="by-hand", **given))
    life.looks({**ALL, 2: "z"}, 2)
    assert life.announced() == joins([1, 2, 3, 2])
    again = life.sent[3]
    assert isinstance(again, SpuJoined)
    assert again.rack == "z"
    assert {name: getattr(again, name) for name in given} == given
    life.restart()
    life.looks({**ALL, 2: "y"}, 2)
    kept = life.sent[4]
    assert isinstance(kept, SpuJoined)
    assert (kept.rack, sorted(kept.taints)) == ("y", sorted(taints))


LABELLED = SpuJoined(event_id="h", cluster_id="c", spu_id=2, labels={"zone": "z"}, capacity=7)


@pytest.mark.parametrize("restarts", [False, True])
def test_a_broker_that_others_labelled_is_still_watched(restarts: bool) -> None:
    """The join that named the label dropped the follower's own; what else it says stands."""
    life = Life()
    life.look(ALL)
    life.by_hand(LABELLED)
    if restarts:
        life.restart()
    life.looks(ALL, 2)
    assert life.announced() == joins([1, 2, 3, 2])
    again = life.sent[3]
    assert isinstance(again, SpuJoined)
    assert again.labels == {"zone": "z", LABEL: "k"}
    assert (again.rack, again.capacity) == ("b", 7)
    life.looks(without(2), 4)
    assert life.announced()[4:] == [("SpuLeft", 2)]


def test_a_broker_that_goes_after_others_labelled_it_leaves() -> None:
    """Also before the follower saw it again, and the cluster it is of is still known."""
    life = Life()
    life.look(ALL)
    life.by_hand(LABELLED)
    assert life.reader.by_spu()[2].is_own
    assert followed_clusters({2: life.reader.by_spu()[2]}) == ["k"]
    life.looks(without(2), 4)
    assert life.announced()[3:] == [("SpuLeft", 2)]


@pytest.mark.parametrize("mode", list(LeaveMode))
def test_who_joins_it_after_a_leave_owns_it(mode: LeaveMode) -> None:
    """Whoever made it leave."""
    life = Life()
    life.look(ALL)
    life.by_hand(SpuLeft(event_id="d", cluster_id="c", spu_id=2, mode=mode))
    life.by_hand(LABELLED)
    life.looks(without(3), 4)  # The follower makes 3 leave.
    life.by_hand(replace(LABELLED, event_id="i", spu_id=3))
    life.looks({1: "a"}, 6)
    assert life.announced() == [*joins([1, 2, 3]), ("SpuLeft", 3)]
    assert [known.is_own for known in life.reader.by_spu().values()] == [True, False, False]


@pytest.mark.parametrize("adopts", [False, True])
def test_whom_others_made_leave_stays_away(adopts: bool) -> None:
    """A drain must not be undone because the broker still runs."""
    life = Life(replace(OPTIONS, adopt=adopts))
    life.look(ALL)
    drained = SpuLeft(event_id="d", cluster_id="c", spu_id=2, mode=LeaveMode.DECOMMISSION)
    life.by_hand(drained)
    life.looks(ALL, 3)
    life.restart()
    life.looks(ALL, 3)
    assert life.announced() == joins([1, 2, 3])
    assert "made it leave" in life.decide().left_alone[2]


def test_no_join_ends_a_cordon() -> None:
    """Neither when the broker changes nor when it comes back: who ordered it ends it."""
    life = Life()
    life.look(ALL)
    life.assigner.apply(SpuCordon(event_id="k", cluster_id="c", spu_id=2))
    life.look({**ALL, 2: "d"})
    life.looks(without(2), 4)
    life.looks(ALL, 2)
    assert life.announced()[3:] == [("SpuJoined", 2), *BACK]
    assert life.ring == [1, 3]
    life.assigner.apply(SpuUncordon(event_id="n", cluster_id="c", spu_id=2))
    assert life.ring == [1, 2, 3]


def test_excluded_brokers_neither_join_nor_leave() -> None:
    """Nothing is announced of them, whatever was."""
    life = Life(replace(OPTIONS, excluded=frozenset({1})))
    life.look(ALL)
    life.options = replace(OPTIONS, excluded=frozenset({1, 2}))
    life.looks(without(2), 10)
    assert life.announced() == joins([2, 3])


def test_a_rack_that_the_job_would_refuse_is_not_sent() -> None:
    """It would be refused at each look; the others join."""
    life = Life()
    decision = life.look({1: "a", 2: "b" * 129})
    assert life.announced() == joins([1])
    assert "129 characters" in decision.left_alone[2]


def test_a_restart_announces_nothing_again_and_waits_again() -> None:
    """What was announced lies in the input; for how long somebody is missing does not."""
    life = Life()
    life.look(ALL)
    life.looks(without(3), 3)
    life.restart()
    life.looks(without(3), 3)
    assert life.announced() == joins([1, 2, 3])
    life.look(without(3))
    assert life.announced()[3:] == [("SpuLeft", 3)]
    life.restart()
    life.looks(without(3), 10)
    assert len(life.sent) == 4


def test_whoever_decides_the_same_sends_the_same_ids() -> None:
    """If a message came twice after all, the job takes the second for a copy."""
    life, twin = Life(), Life()
    for racks in (ALL, without(3), without(3), without(3), without(3), ALL):
        life.look(racks)
        twin.look(racks)
    assert [event.event_id for event in life.sent] == [event.event_id for event in twin.sent]
    assert all(event.event_id.startswith(f"{MARK}/t.") for event in life.sent)


@pytest.mark.parametrize(
    ("capacity", "held", "is_crowded"),
    [
        (6_998, 3_499, False),  # half of the default: as many topics again can come
        (6_998, 3_500, True),
        (10, 0, False),
        (10, 11, True),  # more than it may ever have
        (0, 5, False),  # it is to take nothing
    ],
)
def test_a_capacity_of_which_kafka_has_used_more_than_half_is_crowded(
    capacity: int, held: int, is_crowded: bool
) -> None:
    """Slots that are gone too soon are noticed when a create is refused."""
    life = Life(replace(OPTIONS, size=Size(capacity=capacity)))
    events = life.look({1: None, 2: None}).events
    expected = {1: (held, capacity)} if is_crowded else {}
    assert crowded(events, {1: held, 3: 10_000}) == expected


def test_the_clusters_of_spus_that_are_ours_are_known() -> None:
    """Another address for the same cluster would make all of them leave."""
    life = Life()
    life.look(ALL)
    life.by_hand(replace(by_hand(3), labels={"row": "7"}))
    assert followed_clusters(life.reader.by_spu()) == ["k"]
    life.options = replace(OPTIONS, kafka_cluster="k2")
    life.look(without(2))
    assert followed_clusters(life.reader.by_spu()) == ["k", "k2"]


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
                else SpuLeft(event_id=f"h{number}", cluster_id="c", spu_id=spu_id)
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
