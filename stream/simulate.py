"""`spu-assigner simulate`: the core without Kafka, Spark or a JVM.

Events come in as JSON Lines, answers go out as JSON Lines, each as soon as its line is there. A
line that is no event becomes a dead letter in its place and the rest goes on; a blank line is
passed over.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import BinaryIO, Final

import click
from spu_assigner.core.assigner import Assigner
from spu_assigner.core.events import Policy
from spu_assigner.schemas.errors import DecodeError
from spu_assigner.schemas.jsonl import answer_to_json, dead_letter_json
from spu_assigner.stream.lines import chunks_of_lines, event_of_line
from spu_assigner.stream.options import FILE, reading

DEFAULT_POLICIES: Final = (Policy.FLUVIO, Policy.KAFKA, Policy.REDPANDA)


@click.command()
@click.argument("file", type=FILE, default="-")
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
    with reading(file) as source:
        return answer_lines(source, sys.stdout.buffer, Policy(policy))


def answer_lines(source: BinaryIO, target: BinaryIO, default_policy: Policy) -> int:
    """Answer every line of `source`; returns the exit status."""
    assigner = Assigner(default_policy)
    dead_letters = number = 0
    for lines in chunks_of_lines(source):
        for line in lines:
            number += 1
            try:
                event = event_of_line(line)
            except DecodeError as error:
                dead_letters += 1
                raw = line.removesuffix(b"\r")
                answers = [dead_letter_json(number, error.code, error.message, raw)]
            else:
                found = () if event is None else assigner.apply(event)
                answers = [answer_to_json(answer) for answer in found]
            target.writelines(f"{answer}\n".encode("ascii") for answer in answers)
        target.flush()
    return 1 if dead_letters else 0
