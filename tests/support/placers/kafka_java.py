"""A Java of its own with some of Kafka's jars, spoken to through Py4J."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Any, TypeVar

import py4j.java_gateway as py4j
import pyspark
import pytest
from spu_assigner.core.base.errors import AssignerError
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
