"""The commands of the Makefile: few to begin with, and each that is written of is there."""

from __future__ import annotations

import re
import subprocess
import tomllib
from pathlib import Path
from typing import Final

import yaml
from support.project.make_words import targets, unknown_words
from support.project.set_up import SPARKS

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


def test_what_ci_run_calls_is_there() -> None:
    """A misspelt target would be found last."""
    calls = re.findall(r"\bmake ([a-z][\w =-]*)", (ROOT / ".ci/run").read_text(encoding="utf-8"))
    assert len(calls) >= 4
    words = [word for call in calls for word in call.split()]
    assert unknown_words(words) == []


def test_the_workflow_tests_each_python_at_both_ends_of_the_ranges() -> None:
    """Each Python and Spark that the package says it runs on, with the commands of make."""
    text = (ROOT / ".github/workflows/ci.yml").read_text(encoding="utf-8")
    jobs = yaml.safe_load(text)["jobs"]
    matrix = jobs["test"]["strategy"]["matrix"]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    prefix = "Programming Language :: Python :: 3."
    supported = [each for each in project["classifiers"] if each.startswith(prefix)]
    assert [f"{prefix}{each.removeprefix('3.')}" for each in matrix["python"]] == supported
    assert matrix["versions"] == ["", "LOWEST=1", *(f"SPARK={each}" for each in SPARKS)]
    lines = [step["run"] for job in jobs.values() for step in job["steps"] if "run" in step]
    words = [line.replace("${{ matrix.versions }}", "").split() for line in lines]
    release = (ROOT / ".github/workflows/release.yml").read_text(encoding="utf-8")
    words += [line.split() for line in re.findall(r"- run: (.*)", release)]
    others = [line for line in words if line[0] != "make"]
    assert [line[:3] for line in others] == [["pipx", "run", "pip-audit"]]
    assert all(line in others or not unknown_words(line[1:]) for line in words)


def test_the_workflow_takes_the_work_of_others_by_digest() -> None:
    """A tag can be moved to other code."""
    files = (ROOT / ".github/workflows").glob("*.yml")
    taken = re.findall(r"uses: *(\S+)", "".join(file.read_text("utf-8") for file in files))
    assert taken
    assert all(re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40}", each) for each in taken)
