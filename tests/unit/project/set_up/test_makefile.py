"""The commands of the Makefile: few to begin with, and each that is written of is there."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Final

from support.project.make_words import targets, unknown_words, variables

ROOT: Final = Path(__file__).parents[4]
COMMANDS_MAX: Final = 15  # of `make help`: what one reads at once
_READERS: Final = (".py", ".md", ".toml", ".yaml", ".yml", ".Dockerfile", "run", "Makefile")
_CALL: Final = re.compile(r"`make ([a-z][^`\n]*)`")


def listed(*arguments: str) -> set[str]:
    """The commands that `make help` lists."""
    done = subprocess.run(
        ["make", "--no-print-directory", "help", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return {line.split()[1] for line in done.stdout.splitlines()}


def test_help_lists_at_most_fifteen_commands() -> None:
    """Benches are behind one; single checks, long runs and generated files in the whole list."""
    main = listed()
    assert len(main) <= COMMANDS_MAX
    assert {"help", "run", "test", "test-all", "check", "bench"} <= main
    internal = {name for name in targets() if name.startswith("to-")}
    assert listed("ALL=1") == targets() - internal > main


def test_each_call_of_make_in_a_text_names_what_is_there() -> None:
    """A command that was renamed stays in a message until somebody types it."""
    names = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.split()
    wrong, count = [], 0
    for name in names:
        if not name.endswith(_READERS) or name == "CHANGELOG.md" or name.endswith("what-went.md"):
            continue
        for call in _CALL.findall((ROOT / name).read_text(encoding="utf-8")):
            count += 1
            wrong += [f"{name}: make {call}"] if unknown_words(call.split()) else []
    assert wrong == []
    assert count > 50


def test_what_ci_calls_is_there() -> None:
    """It is run elsewhere, where a misspelt target would be found last."""
    calls = re.findall(r"\bmake ([a-z][\w =-]*)", (ROOT / ".ci/run").read_text(encoding="utf-8"))
    assert len(calls) >= 4
    words = [word for call in calls for word in call.split()]
    assert unknown_words(words) == []
    assert variables() >= {"LOWEST", "SPARK", "BROKER", "WORKERS"}
