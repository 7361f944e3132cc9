"""The placer of Kafka's KRaft controller: `StripedReplicaPlacer` in its jar, through Py4J."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import py4j.java_gateway as py4j
from spu_assigner.stream.jars import ensure
from support.kafka_java import running_java
from support.kafka_placer import Racks


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
        """A placer anew, whose draws are the same in every run."""
        placement = self._jvm.org.apache.kafka.metadata.placement
        self._placer = placement.StripedReplicaPlacer(self._jvm.java.util.Random(seed))

    def assign(self, racks: Racks, *, partitions: int, replicas: int) -> list[list[int]]:
        """The lists of a new topic; no broker is fenced."""
        lists = self.read(self.assign_in_java(racks, partitions, replicas))
        assert len(lists) == partitions
        return lists

    def assign_in_java(self, racks: Racks, partitions: int, replicas: int, /) -> Any:
        """The same as Java's object, left in Java."""
        placement = self._jvm.org.apache.kafka.metadata.placement
        self._answers["usableBrokers"] = self._brokers_of(racks).iterator()
        spec = placement.PlacementSpec(0, partitions, replicas)
        return self._placer.place(spec, self._describer)

    @staticmethod
    def read(assigned: Any) -> list[list[int]]:
        """The lists out of Java's object."""
        text = assigned.toString()  # One call; reading the lists through Py4J takes one a number.
        found = re.findall(r"replicas=\[([\d, ]+)\]", text)
        return [[int(spu_id) for spu_id in ids.split(", ")] for ids in found]

    def _brokers_of(self, racks: Racks) -> Any:
        key = tuple(racks.items())
        if key not in self._brokers:
            java = self._jvm
            brokers = java.java.util.ArrayList()
            for spu_id, rack in sorted(racks.items()):
                name = java.java.util.Optional.ofNullable(rack)
                broker = java.org.apache.kafka.metadata.placement.UsableBroker(spu_id, name, False)
                brokers.add(broker)
            self._brokers[key] = brokers
        return self._brokers[key]

    def _describer_with(self, answers: Any) -> Any:
        """A ClusterDescriber each of whose methods gives what `answers` holds under its name.

        Made of method handles alone: Java asks it for each replica, and calls back into Python
        would take longer than the placing.
        """
        invoke = self._jvm.java.lang.invoke
        handles = invoke.MethodHandles
        anything, method = self._class("java.lang.Object"), self._class("java.lang.reflect.Method")
        look_up = handles.publicLookup()
        name_type = invoke.MethodType.methodType(self._class("java.lang.String"))
        name = look_up.findVirtual(method, "getName", name_type)
        name = handles.explicitCastArguments(name, invoke.MethodType.methodType(anything, method))
        get_type = invoke.MethodType.methodType(anything, anything)
        get = look_up.findVirtual(self._class("java.util.Map"), "get", get_type)
        get = handles.insertArguments(get, 0, self._array("java.lang.Object", answers))
        answer = handles.filterArguments(get, 0, self._array("java.lang.invoke.MethodHandle", name))
        # As an InvocationHandler it is given the proxy, the method and the method's arguments.
        arguments = self._class("[Ljava.lang.Object;")
        answer = handles.dropArguments(answer, 0, self._array("java.lang.Class", anything))
        answer = handles.dropArguments(answer, 2, self._array("java.lang.Class", arguments))
        handler_class = self._class("java.lang.reflect.InvocationHandler")
        handler = invoke.MethodHandleProxies.asInterfaceInstance(handler_class, answer)
        describer = self._class("org.apache.kafka.metadata.placement.ClusterDescriber")
        return self._jvm.java.lang.reflect.Proxy.newProxyInstance(
            describer.getClassLoader(), self._array("java.lang.Class", describer), handler
        )

    def _class(self, name: str) -> Any:
        return self._jvm.java.lang.Class.forName(name)

    def _array(self, kind: str, value: Any) -> Any:
        array = self._gateway.new_array(py4j.JavaClass(kind, self._jvm._gateway_client), 1)
        array[0] = value
        return array


@contextmanager
def running_kraft_placer() -> Iterator[KraftPlacer]:
    """The placer, for as long as the block lasts.

    Raises:
        AssignerError: its jars or a Java cannot be had.
    """
    with running_java(ensure("broker")) as gateway:
        yield KraftPlacer(gateway)
