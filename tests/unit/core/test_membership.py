"""SPUs that are cordoned, demoted, or join again with less."""

from __future__ import annotations

from collections import Counter
from itertools import product
from typing import Any

import pytest
from spu_assigner.core.base.constraints import Constraints, Taint, TaintEffect
from spu_assigner.core.base.events import LeaveMode, Policy, SpuId
from spu_assigner.core.base.records import RingChange, RingEvent
from spu_assigner.core.explain.decisions import ExplainingAssigner
from spu_assigner.schemas.messages.codec import decode_record, encode_record
from spu_assigner.stream.client.explanation import decision_lines
from support.events.builders import Events
from support.events.one_cluster import OneCluster, ring_changes

AUTOMATIC = [policy for policy in Policy if policy is not Policy.MANUAL]


@pytest.mark.parametrize("policy", AUTOMATIC)
def test_a_cordoned_spu_keeps_what_it_has_and_takes_nothing(policy: Policy) -> None:
    life = OneCluster(*Events().joins(0, 1, 2, 3))
    life.create("t", 4, 2, policy=policy)
    held = life.held(1)
    assert held > 0
    assert ring_changes(life.cordon(1)) == [(1, RingChange.CORDONED, 3)]
    assert life.state.spus[SpuId(1)].online
    life.create("u", 6, 3, policy=policy)
    life.apply(life.build.grow("t", 9))
    life.leave(3, LeaveMode.DECOMMISSION)
    life.rebalance()
    assert life.held(1) == held
    assert life.state.ring.ids.tolist() == [0, 2]


@pytest.mark.parametrize(("spus", "topics", "partitions"), [(2, 1, 6), (4, 3, 8), (5, 4, 10)])
def test_undemoted_it_leads_its_share_again(spus: int, topics: int, partitions: int) -> None:
    """Leaders are even over the cluster, then within each topic, as before; nothing moves."""
    life = OneCluster(*Events().joins(*range(spus)))
    names = [f"t{number}" for number in range(topics)]
    for name in names:
        life.create(name, partitions, 2, policy=Policy.BALANCED)
    life.demote(1)
    assert all(life.leads(name)[1] == 0 for name in names)
    life.undemote(1)
    of_all = sum(map(life.leads, names), Counter[int]())
    assert max(of_all.values()) - min(of_all[spu_id] for spu_id in range(spus)) <= 1
    assert all(max(life.leads(name).values()) <= -(-2 * partitions // spus) for name in names)


@pytest.mark.parametrize(("policy", "replicas", "racks"), [*product(AUTOMATIC, (1, 2, 3), (1, 3))])
def test_no_create_or_grow_lets_it_lead_and_the_others_lead_alike(
    policy: Policy, replicas: int, racks: int
) -> None:
    """With one replica it leads, since nobody else can. Which lists there are, a rule decides."""

    def rows_of(*, demotes: bool) -> list[list[int]]:
        build = Events()
        life = OneCluster(*[build.join(i, rack="abc"[i % racks]) for i in range(6)])
        if demotes:
            life.demote(4)
        for number in range(5):
            life.create(f"t{number}", 12, replicas, policy=policy)
            life.apply(life.build.grow(f"t{number}", 18))
        return [row for number in range(5) for row in life.lists(f"t{number}")]

    rows, plain = rows_of(demotes=True), rows_of(demotes=False)
    leads = Counter(row[0] for row in rows)
    assert leads[4] == 0 or replicas == 1
    if policy is not Policy.BALANCED:
        assert [set(row) for row in rows] == [set(row) for row in plain]
        assert [row for row in rows if 4 not in row] == [row for row in plain if 4 not in row]
    elif replicas > 1:
        assert all(row[-1] == 4 for row in rows if 4 in row)
        assert max(leads.values()) - min(leads[i] for i in range(6) if i != 4) <= 1


def test_explain_names_the_leader_that_was_passed_over() -> None:
    assigner, build = ExplainingAssigner(Policy.FLUVIO), Events()
    for event in [*build.joins(0, 1, 2), build.create("t", 2, 2)]:
        assigner.apply(event)
    [(_, [(partition, decision)]), _] = assigner.apply(build.demote(1))
    assert (partition, decision.before, decision.replicas) == (1, (1, 2), (2, 1))
    said = "SPU 2 leads now instead of SPU 1: no data moves"
    assert said in decision_lines(decision)
    [(_, reasons), _] = assigner.apply(build.create("u", 3, 2))
    assert [[each.why for each in decision.replica_steps[0].passed] for _, decision in reasons] == [
        [],
        [],
        ["demoted"],
    ]
    lines = decision_lines(reasons[-1][1])
    assert "leader   SPU 0: position 0 = (1 + 1 + gap 1) % 3, passed over SPU 1 (demoted)" in lines


@pytest.mark.parametrize(("lists", "spus"), [(30, 3), (24, 3)])
def test_spus_replaced_one_after_the_other_lead_as_many_lists_each(lists: int, spus: int) -> None:
    """Not the first of each list: then the first of the new SPUs would lead them all."""
    life = OneCluster(*Events().joins(*range(2 * spus)))
    for spu_id in range(spus, 2 * spus):
        life.cordon(spu_id)
    life.create("t", lists, 3, policy=Policy.BALANCED)
    for spu_id in range(spus, 2 * spus):
        life.uncordon(spu_id)
    for spu_id in range(spus):
        life.leave(spu_id, LeaveMode.DECOMMISSION)
    assert life.leads("t") == dict.fromkeys(range(spus, 2 * spus), lists // spus)


def test_a_successor_is_one_that_the_topic_wants_to_lead() -> None:
    """`leaders` of its constraints come before who leads how much."""
    life = OneCluster()
    for spu_id, zone in enumerate("abba"):
        life.join(spu_id, labels={"zone": zone})
    life.adopt("load", *[[3]] * 5)
    life.adopt("t", [0, 1, 3], [0, 3, 2], rules=Constraints(leaders=("zone in (a)",)))
    life.leave(0, LeaveMode.DECOMMISSION)
    assert [row[0] for row in life.lists("t")] == [3, 3]


# What a join dropped.


TAINT = Taint("pool", "pay", TaintEffect.EVICT)
DESCRIBED: dict[str, Any] = {
    "rack": "r1",
    "cores": 4,
    "capacity": 50,
    "labels": {"zone": "a", "tier": "ssd"},
    "resources": {"disk_bytes": 9, "net": 1},
    "taints": (TAINT,),
}
WHOLE = ": a join describes its SPU whole"


def messages(life: OneCluster, **described: Any) -> list[tuple[RingChange, str | None]]:
    found = life.join(1, **described)
    return [(each.change, each.message) for each in found if isinstance(each, RingEvent)]


@pytest.mark.parametrize(
    ("again", "dropped"),
    [
        (DESCRIBED, None),
        ({**DESCRIBED, "labels": {"zone": "b", "tier": "hdd", "row": "1"}}, None),
        ({**DESCRIBED, "taints": (Taint("pool", "x", TaintEffect.EVICT),)}, None),
        ({**DESCRIBED, "rack": None}, "rack 'r1'"),
        ({**DESCRIBED, "cores": 1}, "4 cores (1 now)"),
        ({**DESCRIBED, "capacity": None}, "capacity 50 (27998 now)"),
        ({**DESCRIBED, "labels": None}, "label 'tier=ssd', label 'zone=a'"),
        ({**DESCRIBED, "resources": {"net": 2}}, "disk_bytes 9"),
        ({**DESCRIBED, "taints": ()}, "taint 'pool=pay:evict'"),
        (
            {},
            "4 cores (1 now), capacity 50 (6998 now), rack 'r1', label 'tier=ssd', label 'zone=a', "
            "disk_bytes 9, net 1, taint 'pool=pay:evict'",
        ),
    ],
)
def test_the_answer_names_what_a_join_dropped(again: dict[str, Any], dropped: str | None) -> None:
    """A label has gone where its name is given no value; another value is no loss."""
    life = OneCluster()
    assert messages(life, **DESCRIBED)[0] == (RingChange.JOINED, None)
    said = None if dropped is None else f"no longer has {dropped}{WHOLE}"
    first, *others = messages(life, **again)
    assert first == (RingChange.UPDATED, said)
    assert all(message is None for _, message in others)
    assert messages(life, **again) == [(RingChange.UPDATED, None)]


@pytest.mark.parametrize("mode", list(LeaveMode))
def test_a_return_says_it_too(mode: LeaveMode) -> None:
    life = OneCluster()
    life.join(1, labels={"zone": "a"})
    life.create("t", 1, 1)
    life.leave(1, mode)
    expected = (RingChange.JOINED, f"no longer has label 'zone=a'{WHOLE}")
    assert messages(life)[0] == expected


def test_the_message_is_bounded_and_goes_through_kafka() -> None:
    life = OneCluster()
    life.join(1, labels={f"{number}" * 5: "\U0001f980" * 9_000 for number in range(1, 7)})
    life.join(1, labels={f"n{number}": "x" * 900 for number in range(1, 30)})
    (answer,) = life.join(1)
    assert isinstance(answer, RingEvent)
    assert answer.message is not None
    assert answer.message.endswith(f" and 21 more{WHOLE}")
    assert len(answer.message) < 2_000
    assert decode_record(encode_record(answer)) == answer
