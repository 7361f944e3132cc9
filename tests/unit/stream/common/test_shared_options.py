"""Options that are written once on the group, and read wherever they stand."""

from __future__ import annotations

import click
import pytest
from click.testing import CliRunner, Result
from spu_assigner.stream.common.shared_options import SharedOptionsGroup, takes


@click.group()
def inner() -> None:
    """A group of one command."""


@inner.command()
@click.argument("words", nargs=-1)
@click.option("--own")
@takes("bootstrap_servers", "output")
def deep(**given: object) -> None:
    """Take two of them."""
    click.echo(sorted(given.items()))


@click.command()
@click.argument("words", nargs=-1)
def none(words: tuple[str, ...]) -> None:
    """Take none."""
    click.echo(words)


def call(*arguments: str) -> Result:
    group = SharedOptionsGroup("program", commands={"inner": inner, "none": none})
    return CliRunner().invoke(group, arguments)


@pytest.mark.parametrize(
    "arguments",
    [
        "-b k:1 -o json inner deep a",
        "inner -b k:1 deep a -o json",
        "inner deep -bk:1 a -ojson",
        "inner deep a --output=json --bootstrap-servers=k:1",
        "-b other:1 inner deep a --output json --bootstrap-servers k:1",
    ],
)
def test_a_shared_option_may_stand_anywhere(arguments: str) -> None:
    """As kubectl reads its global flags; the last of two counts."""
    expected = [("bootstrap_servers", "k:1"), ("output", "json"), ("own", None), ("words", ("a",))]
    assert call(*arguments.split()).stdout == f"{expected}\n"


def test_one_that_is_not_given_has_its_default() -> None:
    """And what follows -- is no option."""
    expected = [
        *(("bootstrap_servers", None), ("output", "table"), ("own", "x"), ("words", ("-b", "k:1"))),
    ]
    assert call("inner", "deep", "--own", "x", "--", "-b", "k:1").stdout == f"{expected}\n"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("-o", "json", "none"), "none takes no --output"),
        (("none", "-o", "json"), "No such option '-o'"),
        (("inner", "deep", "--config", "x"), "No such option '--config'"),
        (("inner", "deep", "-b"), "Option '-b' requires an argument"),
        (("inner", "deep", "-o", "xml"), "'xml' is not one of 'table', 'json'"),
    ],
)
def test_what_a_command_does_not_take_is_wrong_usage(arguments: tuple[str, ...], said: str) -> None:
    """Before it or after it: an option that does nothing would mislead."""
    done = call(*arguments)
    assert done.exit_code == 2
    assert said in done.stderr


def test_the_help_of_a_command_names_those_that_it_takes() -> None:
    """They are explained once, by the program's own help."""
    assert (
        "Also --bootstrap-servers, --output: see program --help."
        in call("inner", "deep", "--help").stdout
    )
    assert "Also" not in call("none", "--help").stdout
