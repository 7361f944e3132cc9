"""Every block of commands and of JSON in README and docs: what a reader copies is right."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import click
import pytest
import yaml
from click.testing import CliRunner
from spu_assigner.stream.cli import cli
from support.project.make_words import unknown_words

ROOT = Path(__file__).parents[3]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
# Programs of others; their options are theirs to check.
PROGRAMS = {"spu-assigner", "make", "python", "docker", "helm", "kubectl", "export", "spark-submit"}
FOREIGN = {"docker", "helm", "kubectl", "export", "cat", "jq", "spark-submit"}
_FENCE = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def blocks(*languages: str) -> Iterator[tuple[str, str]]:
    """The blocks of these languages, each with the page and line where it begins."""
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        for match in _FENCE.finditer(text):
            if match[1] in languages:
                line = text.count("\n", 0, match.start()) + 1
                yield f"{page.relative_to(ROOT)}:{line}", match[2]


def commands() -> Iterator[tuple[str, list[str]]]:
    """Each command of a block that is typed: all its lines, or those after a prompt `$`."""
    for place, block in blocks(""):
        lines = re.sub(r"\\\n\s*", "", block).splitlines()
        if any(line.startswith("$ ") for line in lines):
            lines = [line[2:] for line in lines if line.startswith("$ ")]
        elif block.split(maxsplit=1)[0].removeprefix(".venv/bin/") not in PROGRAMS:
            continue  # a formula, or lines of JSON
        for line in lines:
            for part in re.sub(r"(^|\s)#.*", "", line).split(" | "):
                if words := shlex.split(part):
                    yield place, words


def _calls(words: list[str]) -> Iterator[list[str]]:
    """The calls of this product in a command, also inside a container."""
    if words[0] == "helm" or words[:2] in (["docker", "tag"], ["docker", "push"]):
        return
    for index, word in enumerate(words):
        if word.removeprefix(".venv/bin/") == "spu-assigner":
            yield words[index + 1 :]


def _parse(group: click.Group, arguments: list[str]) -> None:
    """Read the arguments as the command does, and call nothing."""
    context = group.make_context("spu-assigner", list(arguments), resilient_parsing=False)
    name, command, rest = group.resolve_command(context, [*context.protected_args, *context.args])
    assert command is not None
    if isinstance(command, click.Group):
        _parse(command, rest)
    else:
        command.make_context(name, rest, parent=context)


def test_each_command_of_a_block_exists_with_its_options() -> None:
    """An option that was renamed stays in a page until somebody copies it."""
    count = 0
    for place, words in commands():
        program = words[0].removeprefix(".venv/bin/")
        for arguments in _calls(words):
            count += 1
            if arguments[:1] == ["job"]:  # an entry of the image
                continue
            try:
                _parse(cli, arguments)
            except click.UsageError as error:
                pytest.fail(f"{place}: {shlex.join(words)}: {error.format_message()}")
        if program == "make":
            assert not unknown_words(words[1:]), place
        elif words[:2] == ["python", "-m"]:
            assert find_spec(words[2]) is not None, place
        else:
            assert program in {"spu-assigner", *FOREIGN}, f"{place}: {words}"
    assert count > 40


def test_each_block_of_data_can_be_read() -> None:
    """Also where it is only a part of a file."""
    for _, block in blocks("json"):
        for line in block.splitlines():
            json.loads(line)
    for _, block in blocks("yaml"):
        assert yaml.safe_load(block)


def _event_blocks() -> list[tuple[str, str]]:
    """Blocks of JSON Lines that begin with an SPU: whole files of events."""
    found = [
        (place, "".join(line for line in block.splitlines(keepends=True) if line[0] == "{"))
        for place, block in blocks("json", "")
    ]
    return [(place, lines) for place, lines in found if lines.startswith('{"type":"spu_joined"')]


@pytest.mark.parametrize("lines", [pytest.param(text, id=at) for at, text in _event_blocks()])
def test_each_file_of_events_has_no_fault(lines: str, tmp_path: Path) -> None:
    """The check finds nothing, and each request is granted."""
    file = tmp_path / "events.jsonl"
    file.write_text(lines, encoding="utf-8")
    done = CliRunner().invoke(cli, ["simulate", "--check", str(file)])
    assert (done.exit_code, done.stdout.split(":")[0]) == (0, "nothing found"), done.output
    done = CliRunner().invoke(cli, ["simulate", str(file)])
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert done.exit_code == 0
    assert not [each for each in answers if each.get("status") == "rejected"]
