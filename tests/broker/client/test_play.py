"""`spu-assigner play` where it cannot play; that it does is shown by `make docker-test`."""

from __future__ import annotations

import subprocess
import sys

import pytest
from support.kafka.shared_broker import SharedBroker


@pytest.mark.smoke
def test_play_without_topics_is_refused_at_once(kafka: SharedBroker, topic_prefix: str) -> None:
    """It would wait three minutes for answers that cannot come."""
    command = [sys.executable, "-m", "spu_assigner.stream.cli", "play"]
    done = subprocess.run(
        [*command, "-b", kafka.bootstrap_servers, "--topic-prefix", topic_prefix],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    [line] = done.stderr.splitlines()
    assert line.startswith("spu-assigner: ")
    assert "spu-assigner topics create" in line
