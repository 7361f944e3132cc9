"""Kafka's own placer: `AdminUtils` called in its jar, through Py4J, in a Java of its own."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import py4j.java_gateway as py4j
import pyspark
from spu_assigner.stream.jars import ensure
from spu_assigner.stream.java import ensure_java

Racks = Mapping[int, str | None]  # broker: its rack


class KafkaPlacer:
    """Kafka's AdminUtils, in a Java of its own."""

    def __init__(self, gateway: py4j.JavaGateway) -> None:
        self._jvm = gateway.jvm
        self._brokers: dict[tuple[Any, ...], Any] = {}

    def assign(
        self,
        racks: Racks,
        *,
        partitions: int,
        replicas: int,
        start: int,
        start_partition: int = 0,
    ) -> list[list[int]]:
        """The lists of partitions start_partition, start_partition + 1, …"""
        assigned = self.assign_in_java(racks, partitions, replicas, start, start_partition)
        text = assigned.toString()  # One call; reading the map through Py4J takes one a number.
        lists = {
            int(partition): [int(spu_id) for spu_id in ids.split(", ")]
            for partition, ids in re.findall(r"(\d+)=\[([\d, ]+)\]", text)
        }
        assert sorted(lists) == list(range(start_partition, start_partition + partitions))
        return [lists[partition] for partition in sorted(lists)]

    def assign_in_java(
        self, racks: Racks, partitions: int, replicas: int, start: int, start_partition: int, /
    ) -> Any:
        """The same as Java's map, left in Java."""
        return self._jvm.org.apache.kafka.admin.AdminUtils.assignReplicasToBrokers(
            self._brokers_of(racks), partitions, replicas, start, start_partition
        )

    def alternated(self, racks: Racks) -> list[int]:
        """Kafka's rack-alternated list of brokers."""
        by_id = self._jvm.java.util.HashMap()
        for spu_id, rack in racks.items():
            by_id.put(spu_id, rack)
        return list(self._jvm.org.apache.kafka.admin.AdminUtils.getRackAlternatedBrokerList(by_id))

    def _brokers_of(self, racks: Racks) -> Any:
        key = tuple(racks.items())
        if key not in self._brokers:
            java = self._jvm
            brokers = java.java.util.ArrayList()
            for spu_id, rack in sorted(racks.items()):
                name = java.java.util.Optional.ofNullable(rack)
                brokers.add(java.org.apache.kafka.admin.BrokerMetadata(spu_id, name))
            self._brokers[key] = brokers
        return self._brokers[key]


@contextmanager
def running_kafka_placer() -> Iterator[KafkaPlacer]:
    """The placer, for as long as the block lasts.

    Raises:
        AssignerError: its jars or a Java cannot be had.
    """
    jars = ensure("kafka-placer")
    java = ensure_java().executable
    (py4j_jar,) = (Path(pyspark.__file__).parent / "jars").glob("py4j-*.jar")
    port, token, process = py4j.launch_gateway(
        jarpath=str(py4j_jar),
        classpath=os.pathsep.join(map(str, jars)),
        java_path=str(java),
        die_on_exit=True,  # also when this process is killed
        enable_auth=True,
        return_proc=True,
    )
    gateway = py4j.JavaGateway(
        gateway_parameters=py4j.GatewayParameters(port=port, auth_token=token)
    )
    try:
        yield KafkaPlacer(gateway)
    finally:
        gateway.shutdown()
        process.stdin.close()
        process.wait(timeout=30)
