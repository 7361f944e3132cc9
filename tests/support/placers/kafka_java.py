"""A Java of its own with some of Kafka's jars, by Py4J, and Kafka's placers in it."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence, Set
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import py4j.java_gateway as py4j
import pyspark
import pytest
from spu_assigner.core.base.errors import AssignerError
from spu_assigner.stream.local.jvm.jars import ensure
from spu_assigner.stream.local.jvm.java import ensure_java

Placer = TypeVar("Placer")


@contextmanager
def running_java(jars: Sequence[Path]) -> Iterator[py4j.JavaGateway]:
    """Java with these jars on its class path, for as long as the block lasts."""
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
        yield gateway
    finally:
        gateway.shutdown()
        process.stdin.close()
        process.wait(timeout=30)


def java_class(gateway: py4j.JavaGateway, name: str) -> Any:
    return gateway.jvm.java.lang.Class.forName(name)


def java_array(gateway: py4j.JavaGateway, kind: str, *values: Any) -> Any:
    array = gateway.new_array(py4j.JavaClass(kind, gateway._gateway_client), len(values))
    for number, value in enumerate(values):
        array[number] = value
    return array


def bound(gateway: py4j.JavaGateway, handle: Any, *values: Any) -> Any:
    """A method handle with its first arguments given."""
    handles = gateway.jvm.java.lang.invoke.MethodHandles
    return handles.insertArguments(handle, 0, java_array(gateway, "java.lang.Object", *values))


@contextmanager
def or_skip(running: AbstractContextManager[Placer]) -> Iterator[Placer]:
    """A placer of Kafka's; where its jars or Java cannot be had, the test is skipped."""
    with ExitStack() as stack:
        try:
            placer = stack.enter_context(running)
        except AssignerError as reason:
            if os.environ.get("CI"):
                raise  # Where all must be tested, a missing jar is a failure.
            pytest.skip(f"the placer cannot be had: {reason}")
        yield placer


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


class KraftPlacer:
    """One placer, as a controller has it: its random draws go on from topic to topic."""

    def __init__(self, gateway: py4j.JavaGateway) -> None:
        self._gateway = gateway
        self._jvm: Any = gateway.jvm
        self._answers = self._jvm.java.util.HashMap()  # of the describer, by name of method
        self._answers["defaultDir"] = self._jvm.org.apache.kafka.common.DirectoryId.UNASSIGNED
        self._describer = self._describer_with(self._answers)
        self._brokers: dict[tuple[Any, ...], Any] = {}
        self.seed(0)

    def seed(self, seed: int) -> None:
        placement = self._jvm.org.apache.kafka.metadata.placement
        self._placer = placement.StripedReplicaPlacer(self._jvm.java.util.Random(seed))

    def assign(
        self, racks: Racks, *, partitions: int, replicas: int, fenced: Set[int] = frozenset()
    ) -> list[list[int]]:
        lists = self.read(self.assign_in_java(racks, partitions, replicas, fenced))
        assert len(lists) == partitions
        return lists

    def assign_in_java(
        self, racks: Racks, partitions: int, replicas: int, fenced: Set[int] = frozenset(), /
    ) -> Any:
        """The same as Java's object, left in Java."""
        placement = self._jvm.org.apache.kafka.metadata.placement
        self._answers["usableBrokers"] = self._brokers_of(racks, fenced).iterator()
        spec = placement.PlacementSpec(0, partitions, replicas)
        return self._placer.place(spec, self._describer)

    @staticmethod
    def read(assigned: Any) -> list[list[int]]:
        text = assigned.toString()  # One call; reading the lists through Py4J takes one a number.
        found = re.findall(r"replicas=\[([\d, ]+)\]", text)
        return [[int(spu_id) for spu_id in ids.split(", ")] for ids in found]

    def _brokers_of(self, racks: Racks, fenced: Set[int] = frozenset()) -> Any:
        key = (*racks.items(), *sorted(fenced))
        if key not in self._brokers:
            java = self._jvm
            brokers = java.java.util.ArrayList()
            for spu_id, rack in sorted(racks.items()):
                name = java.java.util.Optional.ofNullable(rack)
                placement = java.org.apache.kafka.metadata.placement
                brokers.add(placement.UsableBroker(spu_id, name, spu_id in fenced))
            self._brokers[key] = brokers
        return self._brokers[key]

    def _describer_with(self, answers: Any) -> Any:
        """A ClusterDescriber each of whose methods gives what `answers` holds under its name.

        Made of method handles alone: Java asks it for each replica, and calls back into Python
        would take longer than the placing.
        """
        invoke = self._jvm.java.lang.invoke
        handles = invoke.MethodHandles
        array, class_ = partial(java_array, self._gateway), partial(java_class, self._gateway)
        anything, method = class_("java.lang.Object"), class_("java.lang.reflect.Method")
        look_up = handles.publicLookup()
        name_type = invoke.MethodType.methodType(class_("java.lang.String"))
        name = look_up.findVirtual(method, "getName", name_type)
        name = handles.explicitCastArguments(name, invoke.MethodType.methodType(anything, method))
        get_type = invoke.MethodType.methodType(anything, anything)
        get = look_up.findVirtual(class_("java.util.Map"), "get", get_type)
        get = bound(self._gateway, get, answers)
        answer = handles.filterArguments(get, 0, array("java.lang.invoke.MethodHandle", name))
        # As an InvocationHandler it is given the proxy, the method and the method's arguments.
        arguments = class_("[Ljava.lang.Object;")
        answer = handles.dropArguments(answer, 0, array("java.lang.Class", anything))
        answer = handles.dropArguments(answer, 2, array("java.lang.Class", arguments))
        handler_class = class_("java.lang.reflect.InvocationHandler")
        handler = invoke.MethodHandleProxies.asInterfaceInstance(handler_class, answer)
        describer = class_("org.apache.kafka.metadata.placement.ClusterDescriber")
        return self._jvm.java.lang.reflect.Proxy.newProxyInstance(
            describer.getClassLoader(), array("java.lang.Class", describer), handler
        )


@contextmanager
def running_kraft_placer() -> Iterator[KraftPlacer]:
    """The placer, for as long as the block lasts."""
    with running_java(ensure("broker")) as gateway:
        yield KraftPlacer(gateway)
