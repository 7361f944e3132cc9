"""The throttle of a wave: which settings, whose they are, and what becomes of them."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st
from spu_assigner.schemas.messages.wire import ThrottleValue
from spu_assigner.stream.clusters.moves import throttle as module
from spu_assigner.stream.clusters.moves.reassigning import Place
from spu_assigner.stream.clusters.moves.throttle import (
    FOLLOWERS,
    LEADERS,
    RATES,
    ForeignThrottleError,
    WaveThrottle,
    place,
    refused_text,
    wave_values,
)
from support.kafka.memory_cluster import MemoryKafka, move

MOVE = move(0, (1, 3), (1, 2))  # it has settings on brokers 1 to 3 and on its topic
TOPIC = {("t", 0): (1, 3)}
VALUES = wave_values([MOVE], 7)


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SEEN_SECONDS_MAX", 0.0)


def throttle(kafka: MemoryKafka, *, force: bool = True) -> WaveThrottle:
    return WaveThrottle(kafka, rate=7, force=force)


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
    assert {place(each) for each in recorded} == VALUES.keys() - {place(left)}


def test_what_somebody_has_changed_since_is_left_alone(capsys: pytest.CaptureFixture[str]) -> None:
    """It is theirs now."""
    kafka = MemoryKafka(TOPIC)
    wave = throttle(kafka)
    recorded = wave.of_wave([MOVE], ())
    assert wave.set(recorded) == {}
    kafka.values[1, RATES[0]] = "8"
    assert wave.remove(recorded) == ((), {})
    assert kafka.is_set == {(1, RATES[0]): "8"}
    assert capsys.readouterr().err == (
        f"apply: broker 1: somebody else has changed {RATES[0]} meanwhile; it is left as it is\n"
    )


@pytest.mark.parametrize(
    ("refusing", "dead", "message", "refused"),
    [
        ((), 2, "broker 2 is not alive any more; start it, or run again", set()),
        ((1,), 3, f"broker 1 refuses {RATES[0]} (CLUSTER_AUTHORIZATION_FAILED); grant", {1}),
    ],
)
def test_a_throttle_that_cannot_be_set_is_named_and_what_may_be_set_stays_recorded(
    refusing: tuple[int, ...], dead: int, message: str, refused: set[int]
) -> None:
    """What was asked of a broker that dies just then got no answer; what is refused is not set."""
    kafka = MemoryKafka(TOPIC, refusing=refusing)
    wave = throttle(kafka)
    recorded = wave.of_wave([MOVE], ())
    kafka.dead = {dead}
    failures = wave.set(recorded)
    assert refused_text(failures).startswith(f"the throttle cannot be set: {message}")
    assert {at[0] for at in failures} == refused | {dead}
    left, _ = wave.remove([each for each in recorded if place(each)[0] not in refused])
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
    assert throttle(kafka).remove(left) == ((), {})
    assert kafka.values == before
