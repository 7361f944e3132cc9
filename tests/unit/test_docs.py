"""README against the code: what it names must be there."""

from __future__ import annotations

import ast
import json
import re
import tomllib
from pathlib import Path

from click.testing import CliRunner
from spu_assigner.stream import acls
from spu_assigner.stream.cli import cli
from spu_assigner.stream.release import RELEASE
from spu_assigner.stream.settings import Settings
from spu_assigner.stream.topics import TOPICS
from support.bench_readme import with_tables
from support.figures import STORED
from support.targets import read_results

_ROOT = Path(__file__).parents[2]
_BENCH = _ROOT / "tests" / "bench"
_README = (_ROOT / "README.md").read_text(encoding="utf-8")


def _between(name: str) -> str:
    found = re.search(rf"<!-- {name} -->\n(.*)<!-- /{name} -->", _README, re.DOTALL)
    assert found, f"README has no part {name!r}"
    return found[1]


def test_each_guarantee_names_a_test_that_is_there() -> None:
    """A promise whose test is gone is no promise."""
    rows = re.findall(r"\| `(tests/[^`:]+)::(test_\w+)` \|", _between("guarantees"))
    assert len(rows) == len(_between("guarantees").strip().splitlines()) - 2
    for path, name in rows:
        tree = ast.parse((_ROOT / path).read_text(encoding="utf-8"))
        names = [node.name for node in tree.body if isinstance(node, ast.FunctionDef)]
        assert name in names, f"{path} has no {name}"


def test_the_settings_table_is_that_of_the_code() -> None:
    """Settings are documented in one place, the code; README shows it."""
    assert _between("settings").strip() == Settings.describe().strip()


def test_the_table_of_rights_is_that_of_the_code() -> None:
    """Rights are documented in one place, which the tests on a broker hold to be the least."""
    assert _between("rights").strip() == acls.describe().strip()


def test_the_tables_of_figures_are_those_of_the_stored_results() -> None:
    """No figure of theirs is written by hand."""
    is_so = with_tables(_README, read_results(STORED)) == _README
    assert is_so, "the stored results say otherwise: `make figures` writes the tables"


def test_each_curve_that_readme_shows_is_there() -> None:
    """Drawn of the stored results, and no other is kept."""
    shown = set(re.findall(r"\]\((tests/bench/curves/\w+\.png)\)", _between("curves")))
    there = {f"tests/bench/curves/{path.name}" for path in (_BENCH / "curves").iterdir()}
    assert shown == there


def test_the_life_of_a_small_cluster_is_explained_as_shown() -> None:
    """Who tries it sees what README shows."""
    lines = _between("life").replace("```\n", "")
    done = CliRunner().invoke(cli, ["simulate", "--explain"], input=lines)
    assert done.exit_code == 0
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert [answer["status"] for answer in answers if answer["type"] == "topic_status"] == [
        *("assigned", "waiting", "assigned", "assigned")
    ]
    told = {answer["text"] for answer in answers if answer["type"] == "explanation"}
    assert len(told & set(_README.splitlines())) == 2


def test_every_topic_is_told_of() -> None:
    """Who reads README knows what the job needs."""
    for spec in TOPICS:
        assert f"`{spec.name}`" in _README


def test_the_release_is_that_of_the_package() -> None:
    """Markers name it, and the first heading of the changelog that is of a release."""
    project = tomllib.loads((_ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert project["version"] == RELEASE
    headings = re.findall(r"^## (\S+)", (_ROOT / "CHANGELOG.md").read_text("utf-8"), re.MULTILINE)
    assert next(each for each in headings if each != "Unreleased") == RELEASE


# Errors of the other commands and of values; those of the job are in README's table.
_NOT_OF_THE_JOB = {
    "FollowError",
    "OvertakenError",
    "SizesError",
    "AssignmentFileError",  # produce
    "BatchNotKeptError",
    "BrokerEndedError",  # of the process that watches the embedded broker
    "ClientError",  # produce, watch, explain
    "ClusterUnknownError",
    "DecodeError",  # a dead letter
    "DemoError",
    "EncodeError",
    "InputError",  # its kinds are
    "InspectError",
    "InvalidEventError",  # a dead letter
    "LineError",  # a dead letter
    "NoAssignmentError",  # produce
    "NoCheckpointError",
    "NotThereError",
    "OtherProgramError",
    "PartitionUnknownError",
    "SchemaError",  # a check of the sources
    "SchemaRegistryError",  # schemas
    "SessionError",  # inspect, recover
    "ShardDamagedError",  # told as CheckpointDamagedError
    "ShardFormatError",  # told as CheckpointFormatError
    "ShortRingError",  # for who embeds the core
    "TopicUnknownError",
    # plan, apply
    "MapsError",
    "PlanFileError",
    "StalePlanError",
    "TargetError",
    "ReplayError",  # verify
    "VerifyError",
    # ui
    "AddressError",
    "ClusterDamagedError",
    "NotFoundError",
    "RenewedError",
    # recover
    "DamagedOutputError",
    "FolderTakenError",
    "LostInputError",
    "NoPositionsError",
    "NothingToRecoverError",
    "PublishedError",
    "RecoverError",
    "UnsoundError",
}


def _errors() -> set[str]:
    """The names of all classes that derive from AssignerError, found in the sources."""
    bases: dict[str, set[str]] = {}
    for package in ("core", "schemas", "stream"):
        for path in (_ROOT / package).glob("*.py"):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.ClassDef):
                    bases[node.name] = {
                        base.id for base in node.bases if isinstance(base, ast.Name)
                    }
    found = {"AssignerError"}
    while more := {name for name, of in bases.items() if of & found} - found:
        found |= more
    return found - {"AssignerError"}


def test_every_error_that_ends_the_job_is_in_the_table() -> None:
    """Who meets one at night looks it up: what it means, and what to do."""
    rows = [line for line in _between("errors").splitlines() if line.startswith("| `")]
    listed = [name for row in rows for name in re.findall(r"`(\w+Error)`", row.split("|")[1])]
    assert len(listed) == len(set(listed))
    assert not set(listed) & _NOT_OF_THE_JOB
    assert set(listed) | _NOT_OF_THE_JOB == _errors()
    assert all(cell.strip() for row in rows for cell in row.strip("|").split("|"))
