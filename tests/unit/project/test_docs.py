"""The documentation against the code: what it names is there, and what is read first is short."""

from __future__ import annotations

import ast
import json
import re
import tomllib
from pathlib import Path

import pytest
from click.testing import CliRunner
from spu_assigner.core.base.events import Policy
from spu_assigner.schemas.messages.meanings import EVENT_TYPES
from spu_assigner.stream.cli import _COMMANDS, cli
from spu_assigner.stream.common.release import RELEASE
from spu_assigner.stream.kafka.acls import GRANTS, Resource, Role
from spu_assigner.stream.kafka.config.settings import FLAGS, SPECS
from spu_assigner.stream.kafka.topics import TOPICS
from support.bench.bench_pages import PAGES, with_tables
from support.bench.figures import read_results

_ROOT = Path(__file__).parents[3]
_BENCH = _ROOT / "tests" / "bench"
_DOCUMENTS = {
    path.relative_to(_ROOT).as_posix(): path.read_text(encoding="utf-8")
    for path in (*_ROOT.glob("*.md"), *(_ROOT / "docs").rglob("*.md"))
}
_README = _DOCUMENTS["README.md"]
_FENCED = re.compile(r"^```.*?^```[^\n]*$", re.DOTALL | re.MULTILINE)


def _between(page: str, name: str) -> str:
    found = re.findall(rf"<!-- {name} -->\n(.*)<!-- /{name} -->", _DOCUMENTS[page], re.DOTALL)
    assert len(found) == 1, f"{page} has no part {name!r}, or several"
    return str(found[0])


def _fences(text: str) -> list[str]:
    return re.findall(r"```\w*\n(.*?)```", text, re.DOTALL)


def _guarantees() -> list[tuple[str, str, str]]:
    """The list of all guarantees: promise, file, test; a promise may have several tests."""
    found: list[tuple[str, str, str]] = []
    text = _between("docs/guarantees.md", "guarantees")
    for item in re.findall(r"^- (.+?)(?=^- |^$|\Z)", text, re.MULTILINE | re.DOTALL):
        promise, *tests = re.split(r"\n  (?=`tests/)", item.rstrip())
        assert tests, f"no test is named that shows: {promise}"
        for test in tests:
            named = re.fullmatch(r"`(tests/[^`:]+)::(test_\w+)`", test)
            assert named is not None, test
            found.append((" ".join(promise.split()), named[1], named[2]))
    return found


def test_architecture_names_the_wing_and_module_of_each_command() -> None:
    """Where a command is, is the first thing that one who changes it asks."""
    page = _DOCUMENTS["ARCHITECTURE.md"]
    rows = re.findall(r"^`([\w-]+)` \| `(\w+)` \| `([\w.]+)`$", page, re.MULTILINE)
    shown = {command: f"{wing}.{module}" for command, wing, module in rows}
    assert shown == {command: module for command, (module, _) in _COMMANDS.items()}
    assert len(rows) == len(shown)


def test_each_guarantee_names_a_test_that_is_there() -> None:
    """A promise whose test is gone is no promise."""
    rows = _guarantees()
    assert len({name for _, _, name in rows}) == len(rows) >= 114
    for _, path, name in rows:
        tree = ast.parse((_ROOT / path).read_text(encoding="utf-8"))
        names = [node.name for node in tree.body if isinstance(node, ast.FunctionDef)]
        assert name in names, f"{path} has no {name}"


def test_readme_has_ten_of_the_guarantees() -> None:
    """In the words of the list of all."""
    table = _between("README.md", "ten-guarantees").splitlines()[2:]
    ten = [re.fullmatch(r"\| (.+) \| `(tests/[^`:]+)::(test_\w+)` \|", line) for line in table]
    rows = {row.groups() for row in ten if row is not None}
    assert len(rows) == len(table) == 10
    assert rows < set(_guarantees())


def test_the_settings_table_is_that_of_the_code() -> None:
    """The page has the reason of each default, and the rest as the code has it."""
    table = _between("docs/settings.md", "settings").strip().splitlines()[2:]
    for spec, line in zip(SPECS, table, strict=True):
        default = f"`{spec.default}`" if spec.default else "empty"
        where = f"`{spec.variable}`"
        if spec.name in FLAGS:
            where = f"`{spec.flag}`, {where}"
        if spec.is_secret:
            where += f", or a file in `{spec.file_variable}`"
        assert line.startswith(f"| {spec.what} | {where} | {default} | ")


def test_the_lists_of_rights_are_those_of_the_code() -> None:
    """The tests on a broker hold those of the code to be the least."""
    _, *parts = re.split(r"^\*\*(\w+)\*\*: .+$", _between("docs/security.md", "rights"), flags=re.M)
    shown = dict(zip(parts[::2], parts[1::2], strict=True))
    assert list(shown) == [role.value for role in Role]
    for role in Role:
        rows = re.findall(r"^- (\S+) (.+): ([A-Z][\w, ]+\w)(?: \(.+\))?$", shown[role], re.M)
        assert [(on, rights) for on, _, rights in rows] == [
            (grant.resource, grant.operations) for grant in GRANTS[role]
        ]
        assert len(rows) == shown[role].count("\n- ")
        for (_, names, _), grant in zip(rows, GRANTS[role], strict=True):
            if grant.resource is Resource.TOPIC and not grant.is_mapped:
                assert names == ", ".join(f"`{name}`" for name in grant.names)


@pytest.mark.parametrize("page", PAGES)
def test_the_tables_of_figures_are_those_of_the_stored_results(page: str) -> None:
    """No figure of theirs is written by hand."""
    text = _DOCUMENTS[page]
    is_so = with_tables(text, page, read_results()) == text
    assert is_so, "the stored results say otherwise: `make bench STORED=1` writes the tables"


def test_each_curve_that_is_shown_is_there() -> None:
    """Drawn of the stored results, and no other is kept."""
    curves = _between("docs/performance.md", "curves")
    shown = set(re.findall(r"\]\(\.\./(tests/bench/curves/\w+\.png)\)", curves))
    there = {f"tests/bench/curves/{path.name}" for path in (_BENCH / "curves").iterdir()}
    assert shown == there


def test_the_life_of_a_small_cluster_is_explained_as_shown() -> None:
    """Who tries it sees what the page shows."""
    page = "docs/cluster-life.md"
    lines = _between(page, "life").replace("```\n", "")
    done = CliRunner().invoke(cli, ["simulate", "--explain"], input=lines)
    assert done.exit_code == 0
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert [answer["status"] for answer in answers if answer["type"] == "topic_status"] == [
        *("assigned", "waiting", "assigned", "assigned")
    ]
    explained = {answer["text"] for answer in answers if answer["type"] == "explanation"}
    assert len(explained & set(_DOCUMENTS[page].splitlines())) == 1


@pytest.mark.parametrize("policy", Policy)
def test_each_policy_s_worked_example_is_what_comes_out(policy: Policy) -> None:
    """A wrong example is worse than none."""
    page, name = "docs/policies.md", f"example-{policy.value}"
    create, shown = _fences(_between(page, name))
    before = rf"^\*\*Example\*\* on `(\w+)`.*\n\n<!-- {name} -->$"
    [cluster] = re.findall(before, _DOCUMENTS[page], re.MULTILINE)
    [joins] = _fences(_between(page, f"cluster-{cluster}"))
    done = CliRunner().invoke(cli, ["simulate"], input=joins + create)
    assert done.exit_code == 0
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    (found,) = [answer for answer in answers if answer["type"] == "replica_map"]
    assert found["policy"] == policy.value
    lines = [f"partition {number}: {row}" for number, row in enumerate(found["replicas"])]
    assert lines == shown.splitlines()


def test_the_examples_of_json_lines_are_events() -> None:
    """They are copied first."""
    part = _DOCUMENTS["docs/events-and-topics.md"].partition("## JSON Lines")[2]
    done = CliRunner().invoke(cli, ["simulate"], input=_fences(part)[0])
    assert done.exit_code == 0, done.stdout


@pytest.mark.parametrize("page", ["README.md", "docs/events-and-topics.md"])
def test_every_topic_is_described(page: str) -> None:
    """Who reads it knows what the job needs."""
    for spec in TOPICS:
        assert f"`{spec.name}`" in _DOCUMENTS[page]


@pytest.mark.parametrize("event", sorted(EVENT_TYPES))
def test_every_event_is_described(event: str) -> None:
    """Producers are written after this page."""
    assert f"`{event}`" in _DOCUMENTS["docs/events-and-topics.md"]


def _anchors(text: str) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", _FENCED.sub("", text), re.MULTILINE)
    plain = (re.sub(r"[^\w\- ]", "", heading.lower()) for heading in headings)
    return {each.replace(" ", "-") for each in plain}


@pytest.mark.parametrize("page", sorted(_DOCUMENTS))
def test_each_relative_link_leads_to_a_file_and_a_heading(page: str) -> None:
    """For readers of the repository; `make docs` holds the same for those of the site."""
    folder = (_ROOT / page).parent
    for target in re.findall(r"\]\(([^)\s]+)\)", _FENCED.sub("", _DOCUMENTS[page])):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        file = (folder / path).resolve() if path else _ROOT / page
        assert file.exists(), f"{page} leads to {target}"
        if anchor:
            name = file.relative_to(_ROOT).as_posix()
            assert anchor in _anchors(_DOCUMENTS[name]), f"{page} leads to {target}"


def test_the_release_is_that_of_the_package() -> None:
    """Markers name it; the changelog begins with it, or with the one that it leads to, dated."""
    project = tomllib.loads((_ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert project["version"] == RELEASE
    changes = (_ROOT / "CHANGELOG.md").read_text("utf-8")
    heading = re.search(r"^## (\S+) - \d{4}-\d\d-\d\d$", changes, re.MULTILINE)
    assert heading is not None
    assert heading[1] == RELEASE.partition(".dev")[0]


def test_a_release_has_addresses() -> None:
    """`.invalid` is what no release may have: whoever makes one fills these in."""
    project = tomllib.loads((_ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    urls = project["urls"]
    assert set(urls) == {"Homepage", "Documentation", "Source", "Issues", "Changelog"}
    assert "dev" in RELEASE or not [url for url in urls.values() if ".invalid" in url]


# Errors of the other commands and of values; those of the job are in the table of docs/errors.md.
_NOT_OF_THE_JOB = {
    name
    for names in {
        "who embeds the core": "InvalidStateError ShortRingError",
        "answered with a rejection": "ManualFault Rejection SelectorError TooMuchWorkError",
        "a dead letter": "DecodeError InvalidEventError LineError",
        "a check of the sources": "SchemaError",
        "reported as another": "EncodeError ShardDamagedError ShardFormatError",
        "run": "DemoError NotThereError",
        "produce, watch, explain": "AssignmentFileError ClientError ClusterUnknownError",
        "schemas": "SchemaRegistryError",
        "inspect, recover": "DamagedOutputError FolderTakenError LostInputError "
        "NothingToRecoverError PublishedError RecoverError SessionError UnsoundError",
        "follow": "DeniedError ElectionError FollowError OvertakenError",
        "plan, apply": "DesiredFileError EventsFileError NotConfirmedError PlanFileError "
        "StalePlanError",
        "moves, drain, rebalance": "DrainError ForeignThrottleError MovesError "
        "RefusedThrottleError SeatTakenError UnhealthyError",
        "whatif": "FailureUnknownError",
        "verify": "VerifyError",
        "ui": "AddressError RenewedError",
    }.values()
    for name in names.split()
}


def _errors() -> set[str]:
    """The names of all classes that derive from AssignerError, found in the sources."""
    bases: dict[str, set[str]] = {}
    for package in ("core", "schemas", "stream"):
        for path in (_ROOT / package).glob("**/*.py"):
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
    rows = [
        line for line in _between("docs/errors.md", "errors").splitlines() if line.startswith("| `")
    ]
    listed = [name for row in rows for name in re.findall(r"`(\w+Error)`", row.split("|")[1])]
    assert len(listed) == len(set(listed))
    assert not set(listed) & _NOT_OF_THE_JOB
    assert set(listed) | _NOT_OF_THE_JOB == _errors()
    assert all(cell.strip() for row in rows for cell in row.strip("|").split("|"))
