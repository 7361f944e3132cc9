"""What all tests share: marks by folder, a real Kafka broker, a topic prefix of each test's own."""

from __future__ import annotations

import itertools
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from spu_assigner.core.errors import AssignerError
from spu_assigner.stream.broker import EmbeddedBroker
from spu_assigner.stream.java import Java, ensure_java

_ROOT = Path(__file__).parent
_MARKED_FOLDERS = ("bench", "broker", "fuzz", "spark")
_numbers = itertools.count(1)

# No test depends on how fast the machine is. The rest is as Hypothesis has it, in CI its own.
settings.register_profile(
    "any-speed", settings(), deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("any-speed")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark a test by its folder, so that no test of a heavy folder slips into the quick run."""
    for item in items:
        folder = item.path.relative_to(_ROOT).parts[0]
        if folder in _MARKED_FOLDERS:
            item.add_marker(folder)


@pytest.fixture(scope="session")
def kafka() -> Iterator[EmbeddedBroker]:
    """A running broker, one for the whole run; a test must leave it up."""
    broker = EmbeddedBroker()
    try:
        broker.start()
    except AssignerError as reason:
        if os.environ.get("CI"):
            raise  # Where all must be tested, a missing broker is a failure.
        pytest.skip(f"no broker can be had: {reason}")
    with broker:
        yield broker


@pytest.fixture(scope="session")
def java() -> Iterator[Java]:
    """The Java to run Spark on, also said to Spark: its Python workers are this interpreter."""
    try:
        found = ensure_java()
    except AssignerError as reason:
        if os.environ.get("CI"):
            raise
        pytest.skip(str(reason))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JAVA_HOME", str(found.home))
        patch.setenv("PYSPARK_PYTHON", sys.executable)
        yield found


@pytest.fixture
def topic_prefix() -> str:
    """A prefix that no other test of this run uses."""
    return f"test-{next(_numbers)}."
