"""Bring what a Python package cannot: a Java if the machine has none, the jars, and
what makes broker and Spark start faster.

Run by `make setup`; may be run again at any time, and is quick when nothing is missing. With `--s3`
it brings the jars that a checkpoint on S3 needs as well; else the first start with one does.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Final

from spu_assigner.core.base.errors import AssignerError
from spu_assigner.stream.broker.embedded import prepare
from spu_assigner.stream.jvm.build_cache import cache_home
from spu_assigner.stream.jvm.jars import Group, ensure_all
from spu_assigner.stream.jvm.java import Java, JavaError, ensure_java, install_java
from spu_assigner.stream.run.spark_class_archive import ensure_spark_image

NEEDED: Final[tuple[Group, ...]] = ("spark-kafka", "spark-local", "broker")
FOR_S3: Final[Group] = "spark-s3"


def set_up(report: Callable[[str], None], *, with_s3: bool = False) -> Java:
    """Find or bring a Java, fetch the jars, and report what was done, a line each.

    Args:
        with_s3: whether the jars for checkpoints on S3 are wanted.

    Raises:
        AssignerError: something cannot be had; the message says what to do.
    """
    try:
        java = ensure_java()
    except JavaError:
        install_java(report)
        java = ensure_java()
    report(f"Java {java.version} ({java.source}): {java.home}")
    jars = ensure_all([*NEEDED, *([FOR_S3] if with_s3 else [])], report=report)
    report(f"{sum(map(len, jars.values()))} jars checked, in {cache_home()}")
    prepare(report=report)
    ensure_spark_image(java, jars["spark-local"], report=report)
    return java


def main() -> int:
    """The command `python -m spu_assigner.stream.setup [--s3]`; its exit status."""
    if sys.argv[1:] not in ([], ["--s3"]):
        print("usage: python -m spu_assigner.stream.setup [--s3]", file=sys.stderr)
        return 2
    try:
        set_up(lambda message: print(f"  {message}", flush=True), with_s3=bool(sys.argv[1:]))
    except AssignerError as reason:
        print(f"setup: {reason}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
