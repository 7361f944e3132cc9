"""What options of `produce` hold, and what is said of one that holds something else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner
from spu_assigner.core.base.constraints import (
    NO_CONSTRAINTS,
    Constraints,
    SpreadLevel,
    Taint,
    TaintEffect,
)
from spu_assigner.stream.cli import cli
from spu_assigner.stream.client.produce_options import constraints, taints_of

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

    @click.command()
    @constraints()
    def command(constraints: Constraints | None) -> Any:
        return constraints

    return command.main(list(arguments), standalone_mode=False)


def test_constraints_are_given_as_they_are_or_in_a_file(tmp_path: Path) -> None:
    """Short ones fit into a command; others are kept with the code of their service."""
    file = tmp_path / "rules.json"
    file.write_text(f"{RULES}\n", "utf-8")
    assert read("--constraints", RULES) == read("--constraints", str(file)) == READ
    assert read("--constraints", "{}") == NO_CONSTRAINTS
    assert read() is None


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (
            ["spu-joined", "--spu-id", "0", "--taint", "pool=pay"],
            "'pool=pay' is no taint; exp",
        ),
        (
            ["spu-joined", "--spu-id", "0", "--taint", "a:NoSchedule"],
            "the effect one of no_new",
        ),
        (["spu-joined", "--spu-id", "0", "--taint", "=v:evict"], "'=v:evict' is no taint"),
        (["topic-create", "--topic", "t", "--constraints", "{"], "no JSON at character 1"),
        (["topic-create", "--topic", "t", "--constraints", "/no"], "'/no' cannot be read: No such"),
        (["topic-create", "--topic", "t", "--constraints", '{"a":1}'], 'an unknown field "a"'),
        (["topic-constraints", "--topic", "t"], "Missing option '--constraints'"),
    ],
)
def test_what_an_option_does_not_hold_is_wrong_usage(arguments: list[str], says: str) -> None:
    """Nothing is sent."""
    done = CliRunner().invoke(cli, ["produce", *arguments, "--cluster", "c"])
    assert done.exit_code == 2
    assert says in " ".join(done.stderr.split())
