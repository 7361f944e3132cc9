"""The scenario's program where it cannot play; that it does is shown by `make docker-test`."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from support.kafka.shared_broker import SharedBroker


@pytest.mark.smoke
def test_a_scenario_without_topics_is_refused(kafka: SharedBroker, topic_prefix: str) -> None:
    """It would wait three minutes for answers that cannot come."""
    place = {
        "KAFKA_BOOTSTRAP_SERVERS": kafka.bootstrap_servers,
        "SPU_ASSIGNER_TOPIC_PREFIX": topic_prefix,
    }
    done = subprocess.run(
        [sys.executable, "-m", "spu_assigner.stream.job.run.demo"],
        env={**os.environ, **place},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    [line] = done.stderr.splitlines()
    assert line.startswith("spu-assigner: ")
    assert "spu-assigner topics create" in line
