"""Kafka's own placer: `AdminUtils` called in its jar, through Py4J, in a Java of its own."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import py4j.java_gateway as py4j
from spu_assigner.stream.local.jvm.jars import ensure
from support.placers.kafka_java import running_java

Racks = Mapping[int, str | None]  # broker: its rack


class KafkaPlacer:
    """Kafka's AdminUtils, in a Java of its own."""

    def __init__(self, gateway: py4j.JavaGateway) -> None:
        self._gateway = gateway
        self._jvm = gateway.jvm
        self._brokers: dict[tuple[Any, ...], Any] = {}
        self._last: tuple[Racks, Any] | None = None  # so that a bench measures Java alone

    def assign(
        self, racks: Racks, *, partitions: int, replicas: int, start: int
    ) -> list[list[int]]:
        """The lists of partitions 0, 1, …"""
        admin_utils = self._jvm.org.apache.kafka.admin.AdminUtils
        brokers = self._brokers_of(racks)
        lists = self.read(
            admin_utils.assignReplicasToBrokers(brokers, partitions, replicas, start, 0)
        )
        return [lists[partition] for partition in range(partitions)]

    @staticmethod
    def read(assigned: Any) -> dict[int, list[int]]:
        text = assigned.toString()  # One call; reading the map through Py4J takes one a number.
        return {
            int(partition): [int(spu_id) for spu_id in ids.split(", ")]
            for partition, ids in re.findall(r"(\d+)=\[([\d, ]+)\]", text)
        }

    def seed(self, seed: int) -> None:
        """Make what is drawn at random from here on the same in every run."""
        cls = self._jvm.java.lang.Class.forName("org.apache.kafka.admin.AdminUtils")
        drawn_from = cls.getDeclaredField("RAND")
        drawn_from.setAccessible(True)
        drawn_from.get(None).setSeed(seed)

    def assign_at_random_in_java(self, racks: Racks, partitions: int, replicas: int, /) -> Any:
        """As Kafka places a new topic: from a start and a shift drawn at random."""
        return self._jvm.org.apache.kafka.admin.AdminUtils.assignReplicasToBrokers(
            self._brokers_of(racks), partitions, replicas
        )

    def alternated(self, racks: Racks) -> list[int]:
        """Kafka's rack-alternated list of brokers."""
        by_id = self._jvm.java.util.HashMap()
        for spu_id, rack in racks.items():
            by_id.put(spu_id, rack)
        brokers = self._jvm.org.apache.kafka.admin.AdminUtils.getRackAlternatedBrokerList(by_id)
        # Py4J takes an error for a list's end, and PySpark, in one process with it, makes another
        # error of that when a number of this Java is that of such an object in Spark's.
        return [int(spu_id) for spu_id in re.findall(r"\d+", brokers.toString())]

    def _brokers_of(self, racks: Racks) -> Any:
        if self._last is not None and self._last[0] is racks:
            return self._last[1]
        key = tuple(racks.items())
        if key not in self._brokers:
            java = self._jvm
            brokers = java.java.util.ArrayList()
            for spu_id, rack in sorted(racks.items()):
                name = java.java.util.Optional.ofNullable(rack)
                brokers.add(java.org.apache.kafka.admin.BrokerMetadata(spu_id, name))
            self._brokers[key] = brokers
        self._last = (racks, self._brokers[key])
        return self._brokers[key]


@contextmanager
def running_kafka_placer() -> Iterator[KafkaPlacer]:
    """The placer, for as long as the block lasts."""
    with running_java(ensure("kafka-placer")) as gateway:
        yield KafkaPlacer(gateway)
