"""The way back from Spark's JVM to this process, made to ask for a token.

PySpark gives each JVM a token, without which its port answers nothing. The other way, by which the
JVM hands batches to the sink, is a port of this process that every user of the machine can connect
to, and so call the sink. Py4J can ask for a token there as well, but PySpark does not let
it, and on the JVM's side the token is a field without a setter.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from spu_assigner.core.base.errors import InvariantError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def require_token(spark: SparkSession) -> None:
    """Have this process listen, and to its own JVM alone.

    Raises:
        InvariantError: this PySpark has no token, or keeps it elsewhere.
    """
    from py4j.java_gateway import JavaObject
    from py4j.protocol import Py4JJavaError
    from pyspark.java_gateway import ensure_callback_server_started

    gateway = spark.sparkContext._gateway
    if gateway is None:
        raise InvariantError("Spark's session has no gateway to a JVM")
    token = gateway.gateway_parameters.auth_token
    if not token:
        raise InvariantError("Spark's JVM was started without a token: any process could drive it")
    gateway.callback_server_parameters.auth_token = token
    ensure_callback_server_started(gateway)
    client = JavaObject("GATEWAY_SERVER", gateway._gateway_client).getCallbackClient()
    try:
        field = client.getClass().getSuperclass().getDeclaredField("authToken")
        field.setAccessible(True)
        field.set(client, token)
    except Py4JJavaError as reason:
        raise InvariantError(
            f"Py4J keeps its token elsewhere than version 0.10.9.9 does: {reason.java_exception}"
        ) from reason
