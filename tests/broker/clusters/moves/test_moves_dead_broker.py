"""`apply --moves` on three real brokers, one of which dies: what becomes of the throttle on it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from spu_assigner.schemas.messages.wire import MovesState
from spu_assigner.stream.clusters.moves.reassigning import Place
from spu_assigner.stream.clusters.moves.throttle import FOLLOWERS, LEADERS, RATES
from support.kafka.moving import Mover, until

THEIRS = "77000000"
LEAVES = 3  # the broker that dies: the moves take its replicas to broker 2


@pytest.fixture
def mover(mover: Mover) -> Iterator[Mover]:
    """A test that failed leaves no broker dead either."""
    yield mover
    cluster = mover.operator.cluster
    if LEAVES not in cluster.running:
        cluster.start(LEAVES)


def rates(value: str, *brokers: int) -> dict[Place, str]:
    return {(broker, name): value for broker in brokers for name in RATES}


def move_while_it_dies(mover: Mover, *options: object) -> str:
    """A wave under 1 kB/s in which broker 3 is killed; what the command says on standard error.

    Then the topic is taken out of the throttle: else the copy would take hours.
    """
    operator = mover.operator
    topic = operator.name("orders")
    operator.make("orders", [[1, LEAVES]])
    mover.fill("orders", partitions=1, values=8)
    mover.map({"orders": [[1, 2]]})
    with mover.running("--throttle", "1kB/s", *options) as process, mover.kafka() as kafka:
        operator.cluster.kill(LEAVES)
        assert kafka.change({(topic, LEADERS): None, (topic, FOLLOWERS): None}) == {}
        _, output = process.communicate(timeout=240)
    assert process.returncode == 1, output
    operator.until("orders", [[1, 2]])
    return output


@pytest.mark.long("a broker is killed, and started again")
def test_a_throttle_of_others_is_restored_though_a_broker_dies_in_the_wave(mover: Mover) -> None:
    """At once where the broker lives; on the dead one by the first run after its start."""
    operator = mover.operator
    with mover.kafka() as kafka:
        assert kafka.change(rates(THEIRS, 1, 2, 3)) == {}
        output = move_while_it_dies(mover, "--force")
        assert "somebody else has changed" not in output
        owed = " and ".join(f"{name}=1000 (before: {THEIRS})" for name in RATES)
        assert output.splitlines()[-1] == (
            f"apply: broker {LEAVES} is not alive and may still have {owed}; the next run after "
            "its start sets them as before"
        )
        assert mover.throttles("orders") == rates(THEIRS, 1, 2)
        record = mover.record()
        assert record is not None
        assert (record.state, record.moves) == (MovesState.STOPPED, ())
        assert [
            (each.broker, each.setting, each.value, each.before) for each in record.throttles
        ] == [(LEAVES, name, "1000", THEIRS) for name in RATES]
        operator.cluster.start(LEAVES)
        found = {**rates(THEIRS, 1, 2), **rates("1000", LEAVES)}
        until(lambda: mover.throttles() == found)
        status, _, errors = mover.move()
        assert (status, len(errors)) == (0, 1), errors
        assert errors[0].startswith("apply: removes the throttle that process "), errors
        assert mover.throttles("orders") == rates(THEIRS, 1, 2, 3)
