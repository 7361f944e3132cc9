"""`spu-assigner simulate`: the core without Kafka, Spark or a JVM.

Events come in as JSON Lines, answers go out as JSON Lines, each as soon as its line is there. A
line that is no event becomes a dead letter in its place and the rest goes on; a blank line is
passed over. With `--explain` each replica map is followed by a line for each partition that it set
(`explain/rendering.py` has their form) and carries its reason.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import BinaryIO, Final

import click
from spu_assigner.core.assigner import Assigner
from spu_assigner.core.base.events import DEFAULT_POLICY, Event, Policy
from spu_assigner.core.base.records import ReplicaMap
from spu_assigner.schemas.errors import DecodeError
from spu_assigner.schemas.json_lines.lines import answer_to_json, dead_letter_json
from spu_assigner.stream.common.json_line_reading import chunks_of_lines, event_of_line
from spu_assigner.stream.config.command_options import FILE, reading

DEFAULT_POLICIES: Final = (Policy.BALANCED, Policy.FLUVIO, Policy.KAFKA, Policy.REDPANDA)


@click.command()
@click.argument("file", type=FILE, default="-")
@click.option(
    "--policy",
    type=click.Choice([policy.value for policy in DEFAULT_POLICIES]),
    default=DEFAULT_POLICY.value,
    show_default=True,
    help="Policy of creates that name none.",
)
@click.option(
    "--explain",
    "is_explained",
    is_flag=True,
    help='Give each map its "reason", and tell after it why each list is as it is.',
)
def simulate(file: Path, policy: str, is_explained: bool) -> int:
    """Answer the events of FILE (or of standard input) without Kafka or Spark.

    FILE holds one event a line, as JSON; each answer is printed as one line of JSON. A line that is
    no event gives a dead letter with its line number.

    With --explain a line of type "explanation" follows each map for each partition whose list the
    map set: "text" tells it in words; "steps" each replica with its position in the order and who
    was passed over and why (offline, leaving, saturated, filled, same_rack, in_list); "moves" who
    went and came in a repair or rebalance; "not_in_ring" who could not be chosen; "recomputed"
    that the placement was repeated with the same outcome.

    Exit status: 0 when every line was an event (a refusal is an answer, not an error), 1 when one
    was not, 2 for wrong usage.
    """
    with reading(file) as source:
        return answer_lines(source, sys.stdout.buffer, Policy(policy), explain=is_explained)


class Plain:
    """The contract's lines, and no more."""

    def __init__(self, default_policy: Policy) -> None:
        self._assigner = Assigner(default_policy)

    def lines(self, event: Event) -> list[str]:
        """The answers to an event."""
        return [answer_to_json(answer) for answer in self._assigner.apply(event)]


class Explained:
    """The contract's lines with reasons, and explanations behind each map."""

    def __init__(self, default_policy: Policy) -> None:
        from spu_assigner.core.explain.explaining_assigner import ExplainingAssigner

        self._assigner = ExplainingAssigner(default_policy)

    def lines(self, event: Event) -> list[str]:
        """The answers to an event, each map followed by its explanations."""
        from spu_assigner.stream.explain.rendering import decision_json

        lines: list[str] = []
        for answer, reasons in self._assigner.apply(event):
            lines.append(answer_to_json(answer, explain=True))
            if isinstance(answer, ReplicaMap):
                lines += [
                    decision_json(
                        cluster_id=answer.cluster_id,
                        topic=answer.topic,
                        policy=answer.policy,
                        partition=partition,
                        decision=decision,
                    )
                    for partition, decision in reasons
                ]
        return lines


def answer_lines(
    source: BinaryIO, target: BinaryIO, default_policy: Policy, *, explain: bool = False
) -> int:
    """Answer every line of `source`; returns the exit status."""
    answered = Explained(default_policy) if explain else Plain(default_policy)
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
                answers = [] if event is None else answered.lines(event)
            target.writelines(f"{answer}\n".encode("ascii") for answer in answers)
        target.flush()
    return 1 if dead_letters else 0
