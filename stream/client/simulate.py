"""`spu-assigner simulate`: the core without Kafka, Spark or a JVM.

Events come in as JSON Lines, answers go out as JSON Lines, each as soon as its line is there. A
line that is not an event becomes a dead letter in its place and the rest goes on; a blank line is
passed over.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

import click
from spu_assigner.core.assigner import Assigner
from spu_assigner.core.base.events import DEFAULT_POLICY, Event, Policy
from spu_assigner.core.base.records import ReplicaMap
from spu_assigner.schemas.errors import DecodeError
from spu_assigner.schemas.json_lines.lines import answer_to_json, dead_letter_json
from spu_assigner.stream.common.json_line_reading import event_of_line, lines_of
from spu_assigner.stream.kafka.config.command_options import FILE, reading


@click.command()
@click.argument("file", type=FILE, default="-")
@click.option(
    "--policy",
    type=click.Choice([policy.value for policy in Policy if policy is not Policy.MANUAL]),
    default=DEFAULT_POLICY.value,
    show_default=True,
    help="Policy of creates that name none.",
)
@click.option(
    "--explain",
    "is_explained",
    is_flag=True,
    help='Give each map its "reason", and say after it why each list is as it is.',
)
@click.option(
    "--check",
    "is_check",
    is_flag=True,
    help="Print every fault of the file, with a fix, instead of answers.",
)
@click.option(
    "--output",
    "-o",
    type=click.Choice(["table", "json"]),
    default="table",
    show_default=True,
    help="Of --check: text for people, or one JSON object a line.",
)
def simulate(file: Path, *, policy: str, is_explained: bool, is_check: bool, output: str) -> int:
    """Answer the events of FILE (or of standard input) without Kafka or Spark.

    FILE holds one event a line, as JSON; each answer is printed as one line of JSON. A line that is
    no event gives a dead letter with its line number.

    With --explain a line of type "explanation" follows each map for each partition whose list the
    map set: "text" says it in words; "steps" each replica, with the SPUs passed over and why;
    "moves" the SPUs that went and came; "not_in_ring" those that were offline, leaving, saturated
    or cordoned; "recomputed" that the placement was repeated with the same outcome.

    With --check the faults come instead: lines that are no events, what the core would reject, and,
    as warnings, what is probably not intended; each with line, field, code and fix. Of a cluster in
    which no SPU joins, what depends on its SPUs and earlier topics is not checked.

    Exit status: 0 when every line was an event (a rejection is an answer, not an error), 1 when one
    was not or, with --check, would be rejected, 2 for wrong usage.
    """
    with reading(file) as source:
        if is_check:
            from spu_assigner.stream.client.check import check_lines

            name = "<stdin>" if str(file) == "-" else str(file)
            return check_lines(source, name, Policy(policy), is_json=output == "json")
        return answer_lines(source, sys.stdout.buffer, Policy(policy), explain=is_explained)


def answer_lines(
    source: BinaryIO, target: BinaryIO, default_policy: Policy, *, explain: bool = False
) -> int:
    """Answer every line of `source`; returns the exit status."""
    answer = _explained(default_policy) if explain else _plain(default_policy)
    answers: Iterable[str]
    status = 0
    for number, line in enumerate(lines_of(source), start=1):
        try:
            event = event_of_line(line)
        except DecodeError as error:
            status, raw = 1, line.removesuffix(b"\r")
            answers = [dead_letter_json(number, error.code, error.message, raw)]
        else:
            answers = [] if event is None else answer(event)
        target.writelines(f"{each}\n".encode("ascii") for each in answers)
        target.flush()
    return status


def _plain(default_policy: Policy) -> Callable[[Event], Iterable[str]]:
    """Answers an event by the contract's lines, and no more."""
    assigner = Assigner(default_policy)
    return lambda event: [answer_to_json(answer) for answer in assigner.apply(event)]


def _explained(default_policy: Policy) -> Callable[[Event], Iterable[str]]:
    """Answers with reasons, each map followed by its explanations."""
    from spu_assigner.core.explain.decisions import ExplainingAssigner
    from spu_assigner.stream.client.explanation import decision_json

    assigner = ExplainingAssigner(default_policy)

    def answers(event: Event) -> Iterator[str]:
        for answer, reasons in assigner.apply(event):
            yield answer_to_json(answer, explain=True)
            if isinstance(answer, ReplicaMap):
                for partition, decision in reasons:
                    yield decision_json(answer, partition, decision)

    return answers
