"""The broker in a container: it goes with the tests, however they end, and says why it fails."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import docker
import pytest
from docker.errors import NotFound
from support.kafka.kafka_container import (
    IMAGES,
    LOOPBACK,
    ContainerError,
    KafkaContainer,
    find_image,
)
from support.kafka.shared_broker import VARIABLE

_TOOLS = Path(__file__).parents[3] / "docker" / "kafka-tool"
_INSIDE = "localhost:9094"  # where the broker listens for itself
_CHILD = """
import sys, time
from support.kafka.kafka_container import KafkaContainer
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
    path = os.pathsep.join([str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")])
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


class Shell:
    """Commands in a container that runs a broker."""

    def __init__(self, container: KafkaContainer) -> None:
        self._container = container

    def __call__(self, script: str) -> str:
        """What a script prints on standard output; it must succeed."""
        command = ["docker", "exec", str(self._container.get_wrapped_container().id)]
        done = subprocess.run(
            [*command, "bash", "-c", script], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def tool(self, name: str, arguments: str) -> str:
        """What a tool prints, called as the official image's documentation does."""
        return self(f"/opt/kafka/bin/{name}.sh --bootstrap-server {_INSIDE} {arguments}")


def test_an_operators_tools_work_in_the_container(image: str) -> None:
    """Topics, settings, records, groups, moves, leaders, folders, controllers: by Kafka's tools."""
    with KafkaContainer(image) as container:
        shell = Shell(container)
        shell.tool("kafka-topics", "--create --topic t --partitions 2")
        assert "PartitionCount: 2" in shell.tool("kafka-topics", "--describe --topic t")
        entity = "--entity-type topics --entity-name t"
        shell.tool("kafka-configs", f"{entity} --alter --add-config retention.ms=1000000")
        assert "retention.ms=1000000" in shell.tool("kafka-configs", f"{entity} --describe")
        shell(
            f"echo sent | /opt/kafka/bin/kafka-console-producer.sh --topic t "
            f"--bootstrap-server {_INSIDE}"
        )
        read = "--topic t --from-beginning --max-messages 1 --group g --timeout-ms 60000"
        assert shell.tool("kafka-console-consumer", read).splitlines() == ["sent"]
        assert shell.tool("kafka-consumer-groups", "--list").splitlines() == ["g"]
        dirs = json.loads(shell.tool("kafka-log-dirs", "--describe").splitlines()[-1])
        [broker] = dirs["brokers"]
        held = {each["partition"] for log in broker["logDirs"] for each in log["partitions"]}
        assert {"t-0", "t-1"} <= held
        moves = {"version": 1, "partitions": [{"topic": "t", "partition": 0, "replicas": [1]}]}
        moves["partitions"][0]["replicas"] = [broker["broker"]]
        shell(f"echo '{json.dumps(moves)}' > /tmp/moves.json")
        moved = shell.tool(
            "kafka-reassign-partitions", "--reassignment-json-file /tmp/moves.json --execute"
        )
        assert "Successfully started partition reassignment for t-0" in moved
        election = "--election-type preferred --all-topic-partitions"
        assert "rror" not in shell.tool("kafka-leader-election", election)
        assert "LeaderId:" in shell.tool("kafka-metadata-quorum", "describe --status")


def test_every_tool_starts_and_is_on_the_path(image: str) -> None:
    """A class that is not in the locked jars would be missed by an operator, and by nobody here."""
    named = re.findall(r"^  \[(kafka-[\w-]+)\]=(\S+)$", _TOOLS.read_text("utf-8"), re.MULTILINE)
    assert len(named) > 25
    if image != IMAGES[0]:
        return  # What another image has on its PATH is not ours to say.
    classes = " ".join(name for name, _ in named)
    script = (
        f"for tool in {classes}; do for name in $tool $tool.sh /opt/kafka/bin/$tool.sh; do "
        "command -v $name >/dev/null || echo $name: not found; done; "
        "$tool --help 2>&1 | grep -E 'NoClassDef|ClassNotFound|Could not find' && echo $tool; done"
        "; kafka-run-class kafka.tools.StorageTool random-uuid"
    )
    command = ["docker", "run", "--rm", image, "bash", "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    [uuid] = done.stdout.splitlines()
    assert len(uuid) == 22
