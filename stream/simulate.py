"""`spu-assigner simulate`: the core without Kafka, Spark or a JVM.

Events come in as JSON Lines, answers go out as JSON Lines, each as soon as its line is there. A
line that is no event becomes a dead letter in its place and the rest goes on; a blank line is
passed over.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import IO, Final

import click
from spu_assigner.core.assigner import Assigner
from spu_assigner.core.events import Event, Policy
from spu_assigner.core.limits import MANUAL_FILE_SIZE_MAX
from spu_assigner.schemas.errors import DeadLetterCode, DecodeError
from spu_assigner.schemas.jsonl import answer_to_json, dead_letter_json, event_from_json

LINE_SIZE_MAX: Final = MANUAL_FILE_SIZE_MAX  # the longest legal line carries a manual map
CHUNK_SIZE: Final = 64 * 1024  # read at once; answers are flushed after each
DEFAULT_POLICIES: Final = (Policy.FLUVIO, Policy.KAFKA, Policy.REDPANDA)


@click.command()
@click.argument("file", type=click.Path(path_type=Path, allow_dash=True), default="-")
@click.option(
    "--policy",
    type=click.Choice([policy.value for policy in DEFAULT_POLICIES]),
    default=Policy.FLUVIO.value,
    show_default=True,
    help="Policy of creates that name none.",
)
def simulate(file: Path, policy: str) -> int:
    """Answer the events of FILE (or of standard input) without Kafka or Spark.

    FILE holds one event a line, as JSON; each answer is printed as one line of JSON. A line that is
    no event gives a dead letter with its line number.

    Exit status: 0 when every line was an event (a refusal is an answer, not an error), 1 when one
    was not, 2 for wrong usage.
    """
    if str(file) == "-":
        return answer_lines(
            click.get_binary_stream("stdin"), click.get_binary_stream("stdout"), Policy(policy)
        )
    try:
        source = file.open("rb")
    except OSError as error:
        raise click.BadParameter(
            f"cannot read {str(file)!r}: {error.strerror}", param_hint="FILE"
        ) from error
    with source:
        return answer_lines(source, click.get_binary_stream("stdout"), Policy(policy))


def answer_lines(source: IO[bytes], target: IO[bytes], default_policy: Policy) -> int:
    """Answer every line of `source`; returns the exit status."""
    assigner = Assigner(default_policy)
    dead_letters = number = 0
    for lines in chunks_of_lines(source, size_max=LINE_SIZE_MAX):
        for line in lines:
            number += 1
            if not line.strip():
                continue
            try:
                event = _event(line)
            except DecodeError as error:
                dead_letters += 1
                answers = [dead_letter_json(number, error.code, error.message, line.rstrip(b"\r"))]
            else:
                answers = [answer_to_json(answer) for answer in assigner.apply(event)]
            target.writelines(f"{answer}\n".encode("ascii") for answer in answers)
        target.flush()
    return 1 if dead_letters else 0


def _event(line: bytes) -> Event:
    if len(line) > LINE_SIZE_MAX:
        raise DecodeError(
            DeadLetterCode.BAD_EVENT,
            f"the line is longer than {LINE_SIZE_MAX} bytes; expected one event",
        )
    return event_from_json(line)


def chunks_of_lines(source: IO[bytes], *, size_max: int) -> Iterator[list[bytes]]:
    """The lines of `source` as they arrive, in lists.

    A line longer than `size_max` is cut one byte past it, so that the reader sees that it is too
    long; the rest of it is read and dropped. Memory: one line and one chunk.
    """
    read: Final = getattr(source, "read1", source.read)  # does not wait for more than there is
    begun = bytearray()
    while chunk := read(CHUNK_SIZE):
        *ends, rest = chunk.split(b"\n")
        lines: list[bytes] = []
        for end in ends:
            begun += end[: size_max + 1 - len(begun)]
            lines.append(bytes(begun))
            begun.clear()
        begun += rest[: size_max + 1 - len(begun)]
        yield lines
    if begun:
        yield [bytes(begun)]
