"""What options of `produce` hold."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
from spu_assigner.core.base.constraints import (
    NO_CONSTRAINTS,
    Constraints,
    SpreadLevel,
    Taint,
    TaintEffect,
)
from spu_assigner.core.base.events import TopicCreate
from spu_assigner.stream.client.produce_options import options_of, taints_of

CONTEXT: Any = None
RULES = '{"require":["tier = ssd"],"spread":[{"label":"zone","max":1}]}'
READ = Constraints(require=("tier = ssd",), spread=(SpreadLevel("zone", 1),))


def test_taints_are_written_as_for_kubectl() -> None:
    """With a value or without; a value may hold what separates."""
    texts = ("pool=pay:evict", "old:no_leaders", "a=b=c:d:no_new_replicas")
    assert taints_of(CONTEXT, CONTEXT, texts) == (
        Taint("pool", "pay", TaintEffect.EVICT),
        Taint("old", "", TaintEffect.NO_LEADERS),
        Taint("a", "b=c:d", TaintEffect.NO_NEW_REPLICAS),
    )
    assert taints_of(CONTEXT, CONTEXT, ()) == ()


def read(*arguments: str) -> Any:
    """What the option gives."""

    def command(constraints: Constraints | None, **_: Any) -> Any:
        return constraints

    for option in options_of(TopicCreate):
        command = option(command)
    made: Any = click.command()(command)
    return made.main(["--topic", "t", *arguments], standalone_mode=False)


def test_constraints_are_given_as_they_are_or_in_a_file(tmp_path: Path) -> None:
    """Short ones fit into a command; others are kept with the code of their service."""
    file = tmp_path / "rules.json"
    file.write_text(f"{RULES}\n", "utf-8")
    assert read("--constraints", RULES) == read("--constraints", str(file)) == READ
    assert read("--constraints", "{}") == NO_CONSTRAINTS
    assert read() is None
