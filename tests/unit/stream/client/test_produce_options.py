"""What options of `produce` hold."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import click
import pytest
from spu_assigner.core.base.constraints import (
    NO_CONSTRAINTS,
    Constraints,
    SpreadLevel,
    Taint,
    TaintEffect,
)
from spu_assigner.core.base.events import TopicCreate
from spu_assigner.stream.client.produce_options import changes_of, options_of, taints_of

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


NO_LEADERS, EVICT = TaintEffect.NO_LEADERS, TaintEffect.EVICT


def changes(command: str, words: str) -> Any:
    return changes_of(click.Context(click.Command(command)), CONTEXT, tuple(words.split()))


@pytest.mark.parametrize(
    ("command", "words", "expected"),
    [
        ("spu-label", "tier=ssd zone=a-", {"tier": "ssd", "zone": "a-"}),
        ("spu-label", "tier- a-b=c a=", {"tier": None, "a-b": "c", "a": ""}),
        ("spu-label", "a--", {"a-": None}),
        ("spu-taint", "k=v:no_leaders old:EVICT", {("k", NO_LEADERS): "v", ("old", EVICT): ""}),
        ("spu-taint", "k:evict- k=:no_leaders", {("k", EVICT): None, ("k", NO_LEADERS): ""}),
        ("spu-taint", "k=v:evict-", {("k", EVICT): None}),
        ("spu-taint", "k-", {("k", effect): None for effect in TaintEffect}),
    ],
)
def test_labels_and_taints_are_set_and_removed_as_by_kubectl(
    command: str, words: str, expected: Any
) -> None:
    """A removal ends with -; a taint is removed by its effect, or all of its key."""
    assert changes(command, words) == expected


@pytest.mark.parametrize(
    ("command", "words", "fault"),
    [
        ("spu-label", "tier", "'tier' is not NAME=VALUE"),
        ("spu-label", "-", "'-' is not NAME=VALUE"),
        ("spu-label", "=a", "'=a' is not NAME=VALUE"),
        ("spu-label", "a=b a-", "'a' is both set and removed; expected one"),
        ("spu-taint", "k", "'k' is no taint; expected KEY=VALUE:EFFECT"),
        ("spu-taint", "k=v-", "'k=v' is no taint"),
        ("spu-taint", ":evict-", "':evict' is no taint"),
        ("spu-taint", "k:NoSchedule", "the effect one of no_new_replicas, no_leaders, evict"),
        ("spu-taint", "k- k=v:evict", "is both set and removed"),
    ],
)
def test_a_word_that_changes_nothing_known_is_wrong_usage(
    command: str, words: str, fault: str
) -> None:
    """It says what is expected."""
    with pytest.raises(click.BadParameter, match=re.escape(fault)):
        changes(command, words)


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
