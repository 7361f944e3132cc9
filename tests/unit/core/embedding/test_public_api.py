"""What `spu_assigner.core` promises to those who embed it."""

from __future__ import annotations

import doctest
import os
import re
import runpy
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
import spu_assigner.core
import spu_assigner.core as api
from spu_assigner.core import assigner
from support.events.builders import Events


def test_every_public_name_is_there() -> None:
    """Names are loaded late, so a wrong home would show only at its first use."""
    for name in api.__all__:
        assert getattr(api, name) is not None
    assert set(api.__all__) <= set(dir(api))


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        api.nothing  # noqa: B018 - the access is what is tested


def test_the_docstring_example_is_true() -> None:
    result = doctest.testmod(assigner)
    assert result.attempted >= 6
    assert result.failed == 0


@pytest.mark.parametrize(
    ("program", "packages"),
    [
        ("import spu_assigner.core", {"spu_assigner"}),
        (
            "import spu_assigner.schemas.json_lines.lines",
            {"spu_assigner", "numpy", "msgspec", "typing_extensions"},
        ),
        (
            "from spu_assigner.core import SpuJoined, Constraints; "
            "SpuJoined(event_id='e', cluster_id='c', spu_id=0)",
            {"spu_assigner", "msgspec", "typing_extensions"},
        ),
    ],
)
def test_an_import_loads_no_package_that_is_not_needed(program: str, packages: set[str]) -> None:
    """An application that embeds it starts at once; producers build events without numpy."""
    code = (
        f"import sys; before = set(sys.modules); {program}; "
        "print(*{name.partition('.')[0] for name in set(sys.modules) - before} "
        "- set(sys.stdlib_module_names))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True)
    assert set(done.stdout.split()) <= packages


def test_clusters_do_not_influence_each_other() -> None:
    """A chain index that leaked into another cluster would move its leaders."""
    both, alone = api.Assigner(), api.Assigner()
    first, second = Events("c1"), Events("c2", first=100)
    for event in (*first.joins(0, 1, 2), first.create("t", 4)):
        both.apply(event)
    for event in (*second.joins(0, 1, 2), second.create("t", 4)):
        assert both.apply(event) == alone.apply(event)


# The examples of the documentation.


ROOT: Final = Path(__file__).parents[4]
PAGES: Final = ("README.md", "docs/getting-started.md", "docs/python-api.md")


def examples() -> Iterator[tuple[str, str]]:
    """Each block of Python, named by its page and the heading that it is under."""
    for page in PAGES:
        heading, number = "", 0
        text = (ROOT / page).read_text(encoding="utf-8")
        for title, block in re.findall(r"^#+ ([^\n]+)$|^```python\n(.*?)^```$", text, re.M | re.S):
            if title:
                heading, number = title, 0
            else:
                number += 1
                yield f"{page}: {heading} {number}", block


EXAMPLES: Final = dict(examples())


def type_checked(folder: Path, files: list[str]) -> str:
    path = Path(spu_assigner.core.__file__).parents[2]
    environment = {**os.environ, "MYPYPATH": str(path)}
    if path.name == "site-packages":  # mypy finds it there, and refuses to be told.
        del environment["MYPYPATH"]
    command = [sys.executable, "-m", "mypy", "--strict", "--namespace-packages"]
    command += ["--explicit-package-bases", "--config-file=", "--cache-dir", str(folder / "cache")]
    return subprocess.run(
        [*command, *files], cwd=folder, env=environment, capture_output=True, text=True, check=False
    ).stdout


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_runs(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """By itself, as it is copied; what it asserts holds, and lists that it shows are printed."""
    file = tmp_path / "example.py"
    file.write_text(EXAMPLES[name], encoding="utf-8")
    runpy.run_path(str(file))
    printed = capsys.readouterr().out
    for shown in re.findall(r"# .*?(\[\[.*?\]\])", EXAMPLES[name]):
        assert shown in printed


@pytest.mark.thorough
def test_examples_pass_a_strict_type_checker_and_an_unknown_name_does_not(tmp_path: Path) -> None:
    """One run, since most of it is reading numpy's types."""
    for number, block in enumerate(EXAMPLES.values()):
        (tmp_path / f"example_{number}.py").write_text(block, encoding="utf-8")
    (tmp_path / "unknown.py").write_text(
        "from spu_assigner.core import Assigner, Bogus\n", encoding="utf-8"
    )
    (tmp_path / "wrong.py").write_text(
        "from spu_assigner.core import SpuLeft\n"
        'SpuLeft(event_id="e", cluster_id="c", spu_id="7")\n',
        encoding="utf-8",
    )
    said = type_checked(tmp_path, sorted(file.name for file in tmp_path.glob("*.py")))
    *faults, _ = said.splitlines()
    assert sorted(faults) == [
        'unknown.py:1: error: Module "spu_assigner.core" has no attribute "Bogus"  [attr-defined]',
        'wrong.py:2: error: Argument "spu_id" to "SpuLeft" has incompatible type "str"; '
        'expected "int"  [arg-type]',
    ]
