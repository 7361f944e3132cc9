"""Which tests of Spark, Kafka and the fuzzer `make test` runs, and which `make test-all` alone.

    python tests/support/project/tiers.py     # writes the table of CONTRIBUTING.md

Read from the sources, without importing a test.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "CONTRIBUTING.md"
HEAVY_FOLDERS = ("broker", "fuzz", "installed", "spark")
_TABLE = re.compile(r"(<!-- tiers -->\n).*?(<!-- /tiers -->)", re.DOTALL)


@dataclass(frozen=True, kw_only=True)
class TestFunction:
    """One test as it is written."""

    __test__ = False  # no class of tests, for pytest

    place: str  # file::name
    is_smoke: bool  # or one of its cases is


def heavy_tests() -> Iterator[TestFunction]:
    """The tests of Spark, Kafka and the fuzzer, in the order of files and lines."""
    for folder in HEAVY_FOLDERS:
        for path in sorted((ROOT / "tests" / folder).rglob("test_*.py")):
            tree = ast.parse(path.read_text(encoding="utf-8"))
            whole = _marks(_module_marks(tree))
            for node in tree.body:
                if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                    marks = whole | _marks(node.decorator_list)
                    decorators = " ".join(map(ast.unparse, node.decorator_list))
                    yield TestFunction(
                        place=f"{path.relative_to(ROOT).as_posix()}::{node.name}",
                        is_smoke="smoke" in marks or "pytest.mark.smoke" in decorators,
                    )


def _module_marks(tree: ast.Module) -> list[ast.expr]:
    for node in tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "pytestmark":
            return node.value.elts if isinstance(node.value, ast.List) else [node.value]
    return []


def _marks(expressions: list[ast.expr]) -> set[str]:
    found = set()
    for each in expressions:
        name = ast.unparse(each.func if isinstance(each, ast.Call) else each)
        if name.startswith("pytest.mark."):
            found.add(name.removeprefix("pytest.mark."))
    return found


def table() -> str:
    """A row for each file: what of it `make test` runs, and how many tests `make test-all` adds."""
    files: dict[str, list[TestFunction]] = {}
    for each in heavy_tests():
        files.setdefault(each.place.partition("::")[0], []).append(each)
    lines = ["| file | in `make test` | in `make test-all` alone |", "| --- | --- | --- |"]
    for file, functions in files.items():
        smoke = [each.place.partition("::")[2] for each in functions if each.is_smoke]
        shown = "all" if len(smoke) == len(functions) else ", ".join(f"`{name}`" for name in smoke)
        left = len(functions) - len(smoke)
        lines.append(f"| `{file}` | {shown or 'none'} | {left or ''} |")
    return "".join(f"{line}\n" for line in lines)


def written(page: str) -> str:
    """The page with the table as it is to be."""
    return _TABLE.sub(lambda found: found[1] + table() + found[2], page)


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
