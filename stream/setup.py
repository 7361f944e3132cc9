"""Bring what a Python package cannot: a Java if the machine has none, the jars, and the archive of
classes that makes Spark start faster.

Run by `make setup`; may be run again at any time, and is quick when nothing is missing. With `--s3`
it brings the jars that a checkpoint on S3 needs as well; else the first start with one does. With
`--no-archive` the first `run --demo` makes the archive when it ends. With `--stamp FILE` it touches
that file when nothing is left to be made: without the archive of Spark's classes the job works, so
that its making failed is no error, but it is tried again next time.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

from spu_assigner.core.base.errors import AssignerError
from spu_assigner.stream.job.run.spark_class_archive import ensure_spark_image
from spu_assigner.stream.local.jvm.build_cache import cache_home
from spu_assigner.stream.local.jvm.jars import Group, ensure_all
from spu_assigner.stream.local.jvm.java import JavaError, ensure_java, install_java

NEEDED: Final[tuple[Group, ...]] = ("spark-kafka", "spark-local", "broker")
FOR_S3: Final[Group] = "spark-s3"


def set_up(
    report: Callable[[str], None], *, with_s3: bool = False, with_archive: bool = True
) -> bool:
    """Find or bring a Java, fetch the jars, and report what was done, a line each.

    Returns whether it is complete; False: what makes Spark start faster could not be made this
    time.
    """
    try:
        java = ensure_java()
    except JavaError:
        install_java(report)
        java = ensure_java()
    report(f"Java {java.version} ({java.source}): {java.home}")
    jars = ensure_all([*NEEDED, *([FOR_S3] if with_s3 else [])], report=report)
    report(f"{sum(map(len, jars.values()))} jars checked, in {cache_home()}")
    return not with_archive or ensure_spark_image(java, jars["spark-local"], report=report)


def main() -> int:
    """The command `python -m spu_assigner.stream.setup`; its exit status."""
    parser = argparse.ArgumentParser(prog="python -m spu_assigner.stream.setup")
    parser.add_argument("--s3", action="store_true", help="bring the jars for a checkpoint on S3")
    parser.add_argument("--stamp", type=Path, help="touch this file when nothing is left to do")
    parser.add_argument("--no-archive", action="store_true", help="leave that to a first `run`")
    asked = parser.parse_args()
    try:
        is_complete = set_up(
            lambda message: print(f"  {message}", flush=True),
            with_s3=asked.s3,
            with_archive=not asked.no_archive,
        )
    except AssignerError as reason:
        print(f"setup: {reason}", file=sys.stderr)
        return 1
    if is_complete and asked.stamp is not None:
        asked.stamp.touch()
    return 0


if __name__ == "__main__":
    sys.exit(main())
