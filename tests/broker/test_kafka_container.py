"""The broker in a container: it goes with the tests, however they end, and says what ails it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import docker
import pytest
from docker.errors import NotFound
from support.kafka_container import LOOPBACK, ContainerError, KafkaContainer, find_image
from support.shared_broker import VARIABLE

_CHILD = """
import sys, time
from support.kafka_container import KafkaContainer
container = KafkaContainer(sys.argv[1]).start()
print(container.get_container_id(), flush=True)
time.sleep(600)
"""


@pytest.fixture(scope="module")
def image() -> str:
    try:
        return find_image()
    except ContainerError as reason:
        if os.environ.get(VARIABLE) == "container":
            raise
        pytest.skip(str(reason))


def test_it_is_gone_when_the_tests_are_killed(image: str) -> None:
    """A machine must not fill up with brokers; no reaper is needed for that."""
    path = os.pathsep.join([str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, "-c", _CHILD, image]
    environ = {**os.environ, "PYTHONPATH": path}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environ) as child:
        assert child.stdout is not None
        try:
            container_id = child.stdout.readline().strip()
        finally:
            child.send_signal(signal.SIGKILL)
    client = docker.from_env()
    deadline = time.monotonic() + 60
    while True:
        try:
            client.containers.get(container_id)
        except NotFound:
            break
        assert time.monotonic() < deadline, f"container {container_id} is still there"
        time.sleep(0.1)
    client.close()


def test_it_is_published_on_the_loopback_only(image: str) -> None:
    """A broker without a password must not be reached from the network."""
    with KafkaContainer(image) as container:
        bound = container.get_wrapped_container().ports["9092/tcp"]
        assert [each["HostIp"] for each in bound] == [LOOPBACK]
        assert container.bootstrap_servers == f"{LOOPBACK}:{bound[0]['HostPort']}"


def test_one_that_does_not_come_up_says_why(image: str) -> None:
    """Kafka's own reason; the container that held it is gone by then."""
    container = KafkaContainer(image, settings={"num.io.threads": "none"})
    with pytest.raises(ContainerError, match=r"ended at once: .*num\.io\.threads"):
        container.start()
