"""A plan as a file: written whole or not at all, and read back."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import click
import msgspec
from spu_assigner.core.base.errors import AssignerError
from spu_assigner.stream.clusters.plan.model import AppliedPlan, TopicsPlan
from spu_assigner.stream.common.plain_file import FileRefusedError, read_plain_file
from spu_assigner.stream.common.printable import printable

SIZE_MAX: Final = 1024 * 1024 * 1024  # a hundred thousand topics of a hundred partitions


class PlanFileError(AssignerError):
    """A file is no plan, or cannot be written."""


def json_text(plan: TopicsPlan | AppliedPlan) -> str:
    """A plan for programs, and for its file, or what became of it."""
    return msgspec.json.encode(plan).decode()


def reassignment_text(plan: TopicsPlan) -> str:
    """What `kafka-reassign-partitions --reassignment-json-file` takes."""
    moves = [
        {"topic": each.topic, "partition": each.partition, "replicas": each.after}
        for each in plan.moved_partitions()
    ]
    return msgspec.json.encode({"version": 1, "partitions": moves}).decode()


def write_whole(path: Path, text: str) -> None:
    """Write a file whole or not at all."""
    try:
        with click.open_file(str(path), "w", encoding="utf-8", atomic=True) as file:
            file.write(text)
    except (OSError, ValueError) as reason:
        cause = getattr(reason, "strerror", None) or str(reason)
        raise PlanFileError(
            f"{str(path)!r} cannot be written: {cause}; name another file"
        ) from None


def read_plan(path: Path) -> TopicsPlan:
    """A plan that `plan --out` wrote.

    Whether it makes sense is not looked at: `rest_of` holds it against one that is made now.
    """
    try:
        data = read_plain_file(path, size_max=SIZE_MAX)
    except FileRefusedError as reason:
        raise PlanFileError(
            f"the plan {reason}; expected what `spu-assigner plan --out` writes: check its path"
        ) from reason
    try:
        return msgspec.json.decode(data, type=TopicsPlan)
    except (msgspec.MsgspecError, ValueError, RecursionError) as reason:
        raise PlanFileError(
            f"{str(path)!r} is no plan of this release ({printable(str(reason))[:120]}); expected "
            "what `spu-assigner plan --out` writes"
        ) from reason
