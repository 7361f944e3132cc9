"""The throttle of a wave where a broker is not alive, or dies just then."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pytest
from spu_assigner.schemas.messages.wire import MovedPartition, ThrottleValue
from spu_assigner.stream.clusters.moves.progress import MovesOutput
from spu_assigner.stream.clusters.moves.reassigning import NOT_ALIVE, Reassigner
from spu_assigner.stream.clusters.moves.throttle import RATES, Place, Values, place
from spu_assigner.stream.clusters.moves.wave_guards import RefusedThrottleError, WaveThrottle

MOVE = MovedPartition(
    topic="t", topic_id="id", partition=0, before=(1, 3), after=(1, 2), size_bytes=1
)
OWED = tuple(
    ThrottleValue(broker=3, topic=None, setting=name, value="1000", before="5") for name in RATES
)


class Brokers(Reassigner):
    """Settings of brokers, some of which are dead; some refuse."""

    def __init__(self, *, dead: set[int], refusing: set[int] | None = None) -> None:
        self.dead = dead
        self.refusing = refusing or set()
        self.values: dict[Place, str | None] = {}

    def settings(self, places: Iterable[Place], *, with_defaults: bool = False) -> Values:
        return {at: self.values.get(at) for at in places if at[0] not in self.dead}

    def change(self, values: Values) -> dict[Place, str]:
        failures = {}
        for at, value in values.items():
            if at[0] in self.dead:
                failures[at] = NOT_ALIVE
            elif at[0] in self.refusing:
                failures[at] = "CLUSTER_AUTHORIZATION_FAILED"
            else:
                self.values[at] = value
        return failures


def throttle(kafka: Reassigner, *forgotten: int) -> WaveThrottle:
    output = MovesOutput(is_quiet=True)
    return WaveThrottle(kafka, output, rate=7, force=True, forgotten=forgotten)


def test_nothing_is_recorded_of_a_dead_broker_whose_setting_is_not_known() -> None:
    """It would be removed later, though somebody else may have set one there."""
    recorded = throttle(Brokers(dead={3})).of_wave([MOVE], ())
    assert {each.broker for each in recorded} == {1, 2, None}


def test_what_a_dead_broker_owes_is_kept_and_not_set_again() -> None:
    """A later wave goes on without it."""
    kafka = Brokers(dead={3})
    wave = throttle(kafka)
    recorded = wave.of_wave([MOVE], OWED)
    assert recorded[:2] == OWED
    wave.set(recorded, OWED)
    assert {at[0] for at in kafka.values} == {1, 2, "t"}
    left, lines = wave.remove(recorded)
    assert (left, len(lines)) == (OWED, 1)
    assert set(kafka.values.values()) == {None}


def test_what_a_dead_broker_owes_is_forgotten_on_demand(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A broker that never returns would prevent every status 0. What it still has is reported."""
    kafka = Brokers(dead={3, 4})
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
    kafka = Brokers(dead=set())
    kafka.values = {place(each): each.value for each in OWED}
    assert throttle(kafka, 3).remove(OWED) == ((), [])
    assert kafka.values == {place(each): each.before for each in OWED}


def test_a_broker_that_dies_as_the_throttle_is_set_is_named_and_stays_recorded() -> None:
    """It may have it: what was asked of it got no answer. Rights have nothing to do with it."""
    kafka = Brokers(dead=set())
    wave = throttle(kafka)
    recorded = wave.of_wave([MOVE], ())
    kafka.dead = {2}
    with pytest.raises(RefusedThrottleError) as raised:
        wave.set(recorded, ())
    assert str(raised.value) == (
        "the throttle cannot be set: broker 2 is not alive any more; start it, or run again to go "
        "on without it; nothing more was begun"
    )
    assert raised.value.places == ()
    assert {each.broker for each in wave.remove(recorded)[0]} == {2}


def test_what_kafka_refuses_is_not_recorded_though_a_broker_dies_too() -> None:
    """The message is about rights; the dead broker's setting stays recorded."""
    kafka = Brokers(dead=set(), refusing={1})
    wave = throttle(kafka)
    recorded = wave.of_wave([MOVE], ())
    kafka.dead = {3}
    with pytest.raises(RefusedThrottleError, match=r"broker 1 refuses .* --role mover") as raised:
        wave.set(recorded, ())
    assert raised.value.places == {place(each) for each in recorded if each.broker == 1}
