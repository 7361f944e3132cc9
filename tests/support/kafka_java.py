"""A Java of its own with some of Kafka's jars, spoken to through Py4J."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import py4j.java_gateway as py4j
import pyspark
from spu_assigner.stream.java import ensure_java


@contextmanager
def running_java(jars: Sequence[Path]) -> Iterator[py4j.JavaGateway]:
    """Java with these jars on its class path, for as long as the block lasts.

    Raises:
        AssignerError: no Java can be had.
    """
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
