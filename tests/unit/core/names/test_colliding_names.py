"""Topics that differ in dots and underscores alone: Kafka has room for one of them."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from spu_assigner.core.base.errors import Code
from spu_assigner.core.base.events import Policy
from spu_assigner.core.base.records import Status
from support.events.builders import Events
from support.events.one_cluster import OneCluster, statuses, the_status


def codes(found: Iterable[object]) -> list[tuple[Status, Code | None]]:
    return [(status, code) for _, status, code, _ in statuses(found)]


COLLIDES = [(Status.REJECTED, Code.TOPIC_COLLIDES)]
GRANTED = [(Status.ASSIGNED, None)]


@pytest.mark.parametrize("policy", [Policy.BALANCED, Policy.FLUVIO, Policy.RENDEZVOUS])
def test_the_second_of_two_is_rejected(policy: Policy) -> None:
    life = OneCluster(*Events().joins(0, 1))
    life.create("a.b_c", 1, 1, policy=policy)
    answers = life.create("a_b.c", 1, 1, policy=policy)
    assert codes(answers) == COLLIDES
    assert the_status(answers).message == (
        "topic 'a_b.c' and 'a.b_c' of cluster 'c1' differ in dots and underscores alone, "
        "so Kafka refuses one of them; choose another name"
    )
    assert codes(life.create("a-b_c", 1, 1, policy=policy)) == GRANTED
    life.apply(life.build.delete("a.b_c"))
    assert codes(life.create("a_b.c", 1, 1, policy=policy)) == GRANTED


def test_manual_lists_and_trials_are_no_way_around() -> None:
    life = OneCluster(*Events().joins(0))
    life.create("a.b", 1, 1)
    assert codes(life.manual("a_b", [0])) == COLLIDES
    assert codes(life.create("a_b", 1, 1, validate_only=True)) == COLLIDES
    assert codes(life.wait("a_b", 1, 2)) == COLLIDES


@given(
    st.lists(
        st.tuples(st.sampled_from(("a.b", "a_b", "a.b.c", "a_b.c", "a_b_c", "x")), st.booleans())
    )
)
def test_no_two_that_collide_are_ever_there(steps: list[tuple[str, bool]]) -> None:
    life = OneCluster(*Events().joins(0))
    for name, waits in steps:
        state = life.state
        if name in state.topics or name in state.waiting:
            life.apply(life.build.delete(name))
            continue
        others = {each.replace(".", "_") for each in (*state.topics, *state.waiting)}
        found = codes(life.wait(name, 1, 2) if waits else life.create(name, 1, 1))
        assert (found == COLLIDES) is (name.replace(".", "_") in others)


def test_adopted_topics_are_as_they_are() -> None:
    """A fact is not rejected; creates beside it are."""
    life = OneCluster(*Events().joins(0))
    life.create("a.b", 1, 1)
    assert codes(life.adopt("a_b", [0])) == [(Status.ADOPTED, None)]
    life.apply(life.build.release("a.b"))
    assert codes(life.create("a.b", 1, 1)) == COLLIDES
