"""Kafka's own tool: run as its script does, and what its `--generate` proposes (no broker).

`generateAssignment` asks a broker for the current lists and the racks, and gives both to the
private `calculateAssignment`; that one is called here, with lists and racks of our own.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import py4j.java_gateway as py4j
from spu_assigner.stream.local.jvm.jars import ensure_all
from spu_assigner.stream.local.jvm.java import ensure_java
from support.placers.kafka_java import Racks, java_array, running_java

Maps = Mapping[str, list[list[int]]]  # replica lists by topic

TOOL = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
LOG_DIRS_TOOL = "org.apache.kafka.tools.LogDirsCommand"
PARTITION = re.compile(r"([\w.]+)-(\d+)=\[([\d, ]+)\]")


def run_tool(servers: str, *options: object, tool: str = TOOL) -> str:
    """`kafka-reassign-partitions`, or another tool, with these options; what it prints."""
    jars = ensure_all(["broker", "kafka-tools"])
    path = os.pathsep.join(map(str, [*jars["kafka-tools"], *jars["broker"]]))
    command = [str(ensure_java().executable), "-XX:TieredStopAtLevel=1", "-cp", path, tool]
    command += ["--bootstrap-server", servers, *map(str, options)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


class KafkaReassign:
    """Kafka's tool, in a Java of its own."""

    def __init__(self, gateway: py4j.JavaGateway) -> None:
        self._gateway = gateway
        self._jvm: Any = gateway.jvm
        self._lists: dict[tuple[int, ...], Any] = {}  # a call for each number is slow
        tool = self._jvm.java.lang.Class.forName(TOOL)
        (self._calculate,) = (
            method
            for method in tool.getDeclaredMethods()
            if method.getName() == "calculateAssignment"
        )
        self._calculate.setAccessible(True)

    def generate(self, maps: Maps, racks: Racks, *, draws: int) -> list[dict[str, list[list[int]]]]:
        """New lists for these topics over these brokers, drawn at random so many times."""
        java = self._jvm
        current = java.java.util.HashMap()
        for topic, lists in maps.items():
            for number, replicas in enumerate(lists):
                key = java.org.apache.kafka.common.TopicPartition(topic, number)
                current.put(key, self._list(replicas))
        brokers = java.java.util.ArrayList()
        for spu_id, rack in sorted(racks.items()):
            name = java.java.util.Optional.ofNullable(rack)
            broker = java.org.apache.kafka.metadata.placement.UsableBroker(spu_id, name, False)
            brokers.add(broker)
        given = java_array(self._gateway, "java.lang.Object", current, brokers)
        return [_read(self._calculate.invoke(None, given).toString(), maps) for _ in range(draws)]

    def _list(self, replicas: list[int]) -> Any:
        if tuple(replicas) not in self._lists:
            made = self._jvm.java.util.ArrayList()
            for spu_id in replicas:
                made.add(spu_id)
            self._lists[tuple(replicas)] = made
        return self._lists[tuple(replicas)]


def _read(text: str, maps: Maps) -> dict[str, list[list[int]]]:
    """Java's map of lists as it prints itself; reading it through Py4J takes a call a number."""
    found: dict[str, dict[int, list[int]]] = {topic: {} for topic in maps}
    for topic, number, ids in PARTITION.findall(text):
        found[topic][int(number)] = [int(spu_id) for spu_id in ids.split(", ")]
    for topic, lists in maps.items():
        assert sorted(found[topic]) == list(range(len(lists)))
        assert {len(row) for row in found[topic].values()} == {len(row) for row in lists}
    return {topic: [lists[number] for number in sorted(lists)] for topic, lists in found.items()}


@contextmanager
def running_kafka_reassign() -> Iterator[KafkaReassign]:
    """The tool, for as long as the block lasts."""
    jars = ensure_all(["broker", "kafka-tools"])
    with running_java([*jars["kafka-tools"], *jars["broker"]]) as gateway:
        yield KafkaReassign(gateway)


UNLIMITED = 1e12
RATES = ("producer_byte_rate", "consumer_byte_rate")


def throttle(servers: str, client_id: str | None, rate: float | None) -> None:
    """Give a client so many bytes a second in and out.

    Args:
        client_id: None for each that has no rate of its own.
        rate: None to take the limit away.
    """
    entity = ("--entity-default",) if client_id is None else ("--entity-name", client_id)
    lines = RATES if rate is None else tuple(f"{name}={rate}" for name in RATES)
    change = ("--delete-config" if rate is None else "--add-config", ",".join(lines))
    fixed = ("--alter", "--entity-type", "clients")
    run_tool(servers, *fixed, *entity, *change, tool="kafka.admin.ConfigCommand")
