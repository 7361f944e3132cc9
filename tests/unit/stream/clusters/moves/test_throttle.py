"""The throttle of a wave: which settings, whose they are, and what becomes of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from spu_assigner.schemas.messages.wire import ThrottleValue
from spu_assigner.stream.clusters.moves import throttle as module
from spu_assigner.stream.clusters.moves.progress import MovesOutput
from spu_assigner.stream.clusters.moves.reassigning import Place
from spu_assigner.stream.clusters.moves.throttle import (
    FOLLOWERS,
    LEADERS,
    RATES,
    ForeignThrottleError,
    RefusedThrottleError,
    WaveThrottle,
    place,
    wave_values,
)
from support.kafka.memory_cluster import MemoryKafka, move

MOVE = move(0, (1, 3), (1, 2))  # it has settings on brokers 1 to 3 and on its topic
TOPIC = {("t", 0): (1, 3)}
OWED = tuple(
    ThrottleValue(broker=3, topic=None, setting=name, value="1000", before="5") for name in RATES
)
VALUES = wave_values([MOVE], 7)


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SEEN_SECONDS_MAX", 0.0)


def throttle(kafka: MemoryKafka, *forgotten: int, force: bool = True) -> WaveThrottle:
    output = MovesOutput(is_quiet=True)
    return WaveThrottle(kafka, output, rate=7, force=force, forgotten=forgotten)


def test_a_wave_throttles_what_it_copies_and_nothing_else() -> None:
    """As Kafka's own tool: sources and targets, on all brokers that are concerned."""
    assert wave_values([move(0, (1, 2), (3, 2)), move(1, (4, 1), (1, 4))], 7_000) == {
        **{(broker, name): "7000" for broker in (1, 2, 3) for name in RATES},
        ("t", LEADERS): "0:1,0:2",
        ("t", FOLLOWERS): "0:3",
    }


def test_a_throttle_of_somebody_else_is_not_touched() -> None:
    """It is named, with what to do; what a killed run has recorded is not somebody else's."""
    kafka = MemoryKafka(TOPIC)
    kafka.values = {(1, RATES[0]): "5"}
    with pytest.raises(ForeignThrottleError) as raised:
        throttle(kafka, force=False).of_wave([MOVE], ())
    assert str(raised.value).startswith(
        f"broker 1 has {RATES[0]}=5, which no run of `apply --moves` has set; "
    )
    left = ThrottleValue(broker=1, topic=None, setting=RATES[0], value="5", before=None)
    recorded = throttle(kafka, force=False).of_wave([MOVE], (left,))
    assert {place(each): each.value for each in recorded} == {**VALUES, (1, RATES[0]): "5"}


def test_what_somebody_has_changed_since_is_left_alone(capsys: pytest.CaptureFixture[str]) -> None:
    """It is theirs now."""
    kafka = MemoryKafka(TOPIC)
    wave = throttle(kafka)
    recorded = wave.of_wave([MOVE], ())
    wave.set(recorded, ())
    kafka.values[1, RATES[0]] = "8"
    assert wave.remove(recorded) == ((), [])
    assert kafka.is_set == {(1, RATES[0]): "8"}
    assert capsys.readouterr().err == (
        f"apply: broker 1: somebody else has changed {RATES[0]} meanwhile; it is left as it is\n"
    )


def test_what_a_dead_broker_owes_is_kept_and_not_set_again() -> None:
    """A later wave goes on without it, and records nothing else of it: who knows what it has."""
    kafka = MemoryKafka(TOPIC, dead={3})
    wave = throttle(kafka)
    assert {each.broker for each in wave.of_wave([MOVE], ())} == {1, 2, None}
    recorded = wave.of_wave([MOVE], OWED)
    assert recorded[:2] == OWED
    wave.set(recorded, OWED)
    assert {at[0] for at in kafka.values} == {1, 2, "t"}
    left, lines = wave.remove(recorded)
    assert (left, len(lines)) == (OWED, 1)
    assert kafka.is_set == {}


def test_what_a_dead_broker_owes_is_forgotten_on_demand(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A broker that never returns would prevent every status 0. What it still has is reported."""
    kafka = MemoryKafka(dead={3, 4})
    other = replace(OWED[0], broker=4)
    assert throttle(kafka, 3).remove((*OWED, other)) == (
        (other,),
        [
            f"broker 4 is not alive and may still have {RATES[0]}=1000 (before: 5); start it and "
            "run again, which sets them as before, or give --forget-throttle 4 if it never comes "
            "back"
        ],
    )
    had = " and ".join(f"{name}=1000 (before: 5)" for name in RATES)
    assert capsys.readouterr().err == (
        f"apply: forgets that broker 3 may still have {had}; should it come back, set them as "
        "before with `kafka-configs`\n"
    )


def test_what_a_living_broker_owes_is_removed_though_it_is_to_be_forgotten() -> None:
    """A wrong id does no harm, nor a broker that is back by then."""
    kafka = MemoryKafka()
    kafka.values = {place(each): each.value for each in OWED}
    assert throttle(kafka, 3).remove(OWED) == ((), [])
    assert kafka.values == {place(each): each.before for each in OWED}


@pytest.mark.parametrize(
    ("refusing", "dead", "message", "brokers"),
    [
        ((), 2, "broker 2 is not alive any more; start it, or run again", set()),
        ((1,), 3, f"broker 1 refuses {RATES[0]} (CLUSTER_AUTHORIZATION_FAILED); grant", {1}),
    ],
)
def test_a_throttle_that_cannot_be_set_is_named_and_what_may_be_set_stays_recorded(
    refusing: tuple[int, ...], dead: int, message: str, brokers: set[int]
) -> None:
    """What was asked of a broker that dies just then got no answer; what is refused is not set."""
    kafka = MemoryKafka(TOPIC, refusing=refusing)
    wave = throttle(kafka)
    recorded = wave.of_wave([MOVE], ())
    kafka.dead = {dead}
    with pytest.raises(RefusedThrottleError) as raised:
        wave.set(recorded, ())
    assert str(raised.value).startswith(f"the throttle cannot be set: {message}")
    assert {at[0] for at in raised.value.places} == brokers
    left, _ = wave.remove([each for each in recorded if place(each) not in raised.value.places])
    assert {each.broker for each in left} == {dead}


@given(
    st.fixed_dictionaries(dict.fromkeys(VALUES, st.none() | st.sampled_from(["5", "7", "9"]))),
    st.sets(st.sampled_from([*VALUES])),
    st.sets(st.sampled_from([1, 2])),
)
def test_killed_anywhere_all_is_as_before_in_the_end(
    before: Mapping[Place, str | None], reached: set[Place], dead: set[int]
) -> None:
    """Any part of what is recorded may be set when the run is killed, and some brokers dead."""
    kafka = MemoryKafka(TOPIC)
    kafka.values = dict(before)
    recorded = throttle(kafka).of_wave([MOVE], ())
    kafka.values |= {place(each): each.value for each in recorded if place(each) in reached}
    kafka.dead = {*dead}
    left, lines = throttle(kafka).remove(recorded)
    assert ({each.broker for each in left}, len(lines)) == (dead, len(dead))
    kafka.dead = set()
    assert throttle(kafka).remove(left) == ((), [])
    assert kafka.values == before
