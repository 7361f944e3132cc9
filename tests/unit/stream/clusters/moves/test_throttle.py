"""The throttle: which settings, whose they are, and what becomes of them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from spu_assigner.schemas.messages.wire import MovedPartition, ThrottleValue
from spu_assigner.stream.clusters.moves.throttle import (
    FOLLOWERS,
    LEADERS,
    RATES,
    ForeignThrottleError,
    Place,
    clearing,
    owed_lines,
    place,
    to_record,
    wave_values,
)

LEADER_RATE, FOLLOWER_RATE = RATES
PLACES: list[Place] = [(1, LEADER_RATE), (1, FOLLOWER_RATE), (2, LEADER_RATE), ("t", LEADERS)]


def move(partition: int, before: tuple[int, ...], after: tuple[int, ...]) -> MovedPartition:
    return MovedPartition(
        topic="t", topic_id="id", partition=partition, before=before, after=after, size_bytes=1
    )


def test_a_wave_throttles_what_it_copies_and_nothing_else() -> None:
    """As Kafka's own tool: sources and targets, on all brokers that are concerned."""
    assert wave_values([move(0, (1, 2), (3, 2)), move(1, (4, 1), (1, 4))], 7_000) == {
        (1, LEADER_RATE): "7000",
        (1, FOLLOWER_RATE): "7000",
        (2, LEADER_RATE): "7000",
        (2, FOLLOWER_RATE): "7000",
        (3, LEADER_RATE): "7000",
        (3, FOLLOWER_RATE): "7000",
        ("t", LEADERS): "0:1,0:2",
        ("t", FOLLOWERS): "0:3",
    }


def test_a_throttle_of_somebody_else_is_not_touched() -> None:
    """It is named, with what to do."""
    with pytest.raises(ForeignThrottleError) as raised:
        to_record({PLACES[0]: "7"}, {PLACES[0]: "5"}, (), force=False)
    assert str(raised.value).startswith(
        "broker 1 has leader.replication.throttled.rate=5, which no run of `apply --moves` has "
        "set; "
    )


def test_with_force_it_is_replaced_and_given_back() -> None:
    """Not removed: it is not ours."""
    (record,) = to_record({PLACES[0]: "7"}, {PLACES[0]: "5"}, (), force=True)
    assert (record.value, record.before) == ("7", "5")
    assert clearing([record], {PLACES[0]: "7"}).changes == {PLACES[0]: "5"}


def test_what_a_killed_run_has_set_is_no_foreign_throttle() -> None:
    """It is recorded: it stays as it is until the wave is over."""
    (left,) = to_record({PLACES[0]: "7"}, {}, (), force=False)
    both = to_record({PLACES[0]: "9", PLACES[2]: "9"}, {PLACES[0]: "7"}, [left], force=False)
    assert [(place(each), each.value) for each in both] == [(PLACES[0], "7"), (PLACES[2], "9")]


def test_what_somebody_has_changed_since_is_left_alone() -> None:
    """It is theirs now."""
    record = ThrottleValue(broker=1, topic=None, setting=LEADER_RATE, value="7", before=None)
    found = clearing([record], {PLACES[0]: "8"})
    assert (found.changes, found.changed) == ({}, (PLACES[0],))


def test_what_a_dead_broker_has_is_owed_and_not_changed_by_others() -> None:
    """Nobody knows what it is set to: it stays recorded, and the rest is given back."""
    values = {PLACES[0]: "7", PLACES[1]: "7", PLACES[2]: "7"}
    recorded = to_record(values, {PLACES[0]: "5", PLACES[2]: "6"}, (), force=True)
    found = clearing(recorded, {PLACES[2]: "7"})
    assert (found.changes, found.changed) == ({PLACES[2]: "6"}, ())
    assert found.owed == (PLACES[0], PLACES[1])
    assert owed_lines(found.owed, recorded) == [
        "broker 1 is not alive and may still have leader.replication.throttled.rate=7 (before: 5) "
        "and follower.replication.throttled.rate=7 (before: not set); start it and run again, "
        "which sets them as before, or give --forget-throttle 1 if it never comes back"
    ]


VALUES = st.none() | st.sampled_from(["5", "7", "9"])


@given(
    st.dictionaries(st.sampled_from(PLACES), st.sampled_from(["7", "9"])),
    st.fixed_dictionaries(dict.fromkeys(PLACES, VALUES)),
    st.sets(st.sampled_from(PLACES)),
    st.sets(st.sampled_from([1, 2])),
)
def test_killed_anywhere_all_is_as_before_in_the_end(
    values: dict[Place, str],
    before: dict[Place, str | None],
    reached: set[Place],
    dead: set[int | str],
) -> None:
    """Any part of what is recorded may be set when the run is killed, and some brokers dead."""
    recorded = to_record(values, before, (), force=True)
    now = dict(before)
    for each in recorded:
        if place(each) in reached:
            now[place(each)] = each.value
    first = clearing(recorded, {at: value for at, value in now.items() if at[0] not in dead})
    now |= first.changes
    left = [each for each in recorded if place(each) in first.owed]
    now |= clearing(left, now).changes  # They are alive again.
    assert now == before
