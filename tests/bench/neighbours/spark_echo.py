"""What Spark's micro-batches cost by themselves: Kafka in, the same out, no state, no Python."""

from __future__ import annotations

from typing import Any

from spark_session import run, source
from spu_assigner.stream.kafka.config.settings import Settings


def echo(spark: Any, settings: Settings) -> Any:
    """The events as they are."""
    return source(spark, settings).select("key", "value")


if __name__ == "__main__":
    run(echo)
