"""The broker in a container: an operator's tools, by their names."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path

import pytest
from support.kafka.kafka_container import (
    IMAGES,
    ContainerError,
    KafkaContainer,
    find_image,
)
from support.kafka.shared_broker import VARIABLE

_TOOLS = Path(__file__).parents[3] / "docker" / "kafka-tool"
_INSIDE = "localhost:9094"  # where the broker listens for itself


@pytest.fixture(scope="module")
def image() -> str:
    try:
        return find_image()
    except ContainerError as reason:
        if os.environ.get(VARIABLE) == "container":
            raise
        pytest.skip(str(reason))


def test_an_operators_tools_work_in_the_container(image: str) -> None:
    """Topics, settings, records, groups, moves, leaders, folders, controllers: by Kafka's tools."""
    with KafkaContainer(image) as container:
        container_id = str(container.get_wrapped_container().id)

        def shell(script: str) -> str:
            command = ["docker", "exec", container_id, "bash", "-c", script]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            assert done.returncode == 0, done.stdout + done.stderr
            return done.stdout

        def tool(name: str, arguments: str) -> str:
            return shell(f"/opt/kafka/bin/{name}.sh --bootstrap-server {_INSIDE} {arguments}")

        tool("kafka-topics", "--create --topic t --partitions 2")
        assert "PartitionCount: 2" in tool("kafka-topics", "--describe --topic t")
        entity = "--entity-type topics --entity-name t"
        tool("kafka-configs", f"{entity} --alter --add-config retention.ms=1000000")
        assert "retention.ms=1000000" in tool("kafka-configs", f"{entity} --describe")
        producer = f"/opt/kafka/bin/kafka-console-producer.sh --bootstrap-server {_INSIDE}"
        shell(f"echo sent | {producer} --topic t")
        read = "--topic t --from-beginning --max-messages 1 --group g --timeout-ms 60000"
        assert tool("kafka-console-consumer", read).splitlines() == ["sent"]
        assert tool("kafka-consumer-groups", "--list").splitlines() == ["g"]
        dirs = json.loads(tool("kafka-log-dirs", "--describe").splitlines()[-1])
        [broker] = dirs["brokers"]
        held = {each["partition"] for log in broker["logDirs"] for each in log["partitions"]}
        assert {"t-0", "t-1"} <= held
        move = {"topic": "t", "partition": 0, "replicas": [broker["broker"]]}
        shell(f"echo '{json.dumps({'version': 1, 'partitions': [move]})}' > /tmp/moves.json")
        moved = tool(
            "kafka-reassign-partitions", "--reassignment-json-file /tmp/moves.json --execute"
        )
        assert "Successfully started partition reassignment for t-0" in moved
        election = "--election-type preferred --all-topic-partitions"
        assert "rror" not in tool("kafka-leader-election", election)
        assert "LeaderId:" in tool("kafka-metadata-quorum", "describe --status")


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
