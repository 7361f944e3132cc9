"""What the tests of moves share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from spu_assigner.stream.clusters.moves.throttle import RATES
from support.job.kafka_operator import Operator
from support.kafka.moving import Mover


@pytest.fixture
def mover(operator: Operator, tmp_path: Path) -> Iterator[Mover]:
    """A test that failed leaves no throttle to the next one."""
    mover = Mover(operator, tmp_path)
    yield mover
    with mover.kafka() as kafka:
        kafka.change({(broker, name): None for broker in operator.cluster.ids for name in RATES})
