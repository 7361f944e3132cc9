"""The placer of Kafka's KRaft controller: `StripedReplicaPlacer` in its jar, through Py4J."""

from __future__ import annotations

import re
from collections.abc import Iterator, Set
from contextlib import contextmanager
from functools import partial
from typing import Any

import py4j.java_gateway as py4j
from spu_assigner.stream.local.jvm.jars import ensure
from support.placers.kafka_java import bound, java_array, java_class, running_java
from support.placers.kafka_placer import Racks


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
