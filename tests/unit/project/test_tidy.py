"""What the tools do not check: sizes, imports of the core, names of classes, raw files."""

from __future__ import annotations

import ast
import sys
from functools import cache
from pathlib import Path

import pytest

_ROOT = Path(__file__).parents[3]
_PACKAGES = ("core", "schemas", "stream")
_FILES = sorted(path for package in _PACKAGES for path in (_ROOT / package).glob("**/*.py"))
_MODULE_LINES_MAX = 450  # a sitting
_FUNCTION_LINES_MAX = 80  # a screen


def _tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


@cache
def _imported(path: Path) -> frozenset[str]:
    """The modules that a file imports."""
    names: set[str] = set()
    for node in ast.walk(_tree(path)):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names.add("." * node.level + (node.module or ""))
    return frozenset(names)


def _shown(path: Path) -> str:
    return str(path.relative_to(_ROOT))


@pytest.mark.parametrize("path", _FILES, ids=_shown)
def test_a_module_fits_in_a_sitting_and_a_function_on_a_screen(path: Path) -> None:
    """What does not fit is not read whole."""
    lines = path.read_text(encoding="utf-8").count("\n")
    assert lines <= _MODULE_LINES_MAX
    long = {
        node.name: node.end_lineno - node.lineno + 1
        for node in ast.walk(_tree(path))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.end_lineno is not None
        and node.end_lineno - node.lineno >= _FUNCTION_LINES_MAX
    }
    assert long == {}


def test_no_two_classes_of_the_product_have_one_name() -> None:
    """`Report` or `Rule` says nothing in another module, in a traceback or in a search."""
    homes: dict[str, list[str]] = {}
    for path in _FILES:
        for node in ast.walk(_tree(path)):
            if isinstance(node, ast.ClassDef):
                homes.setdefault(node.name, []).append(_shown(path))
    assert {name: paths for name, paths in homes.items() if len(paths) > 1} == {}


@pytest.mark.parametrize("path", sorted((_ROOT / "core").glob("**/*.py")), ids=_shown)
def test_the_core_imports_the_standard_library_numpy_and_msgspec_alone(path: Path) -> None:
    """It is embedded by others, and must start without Spark, Avro or a JVM."""
    foreign = {
        name
        for name in _imported(path)
        if name.split(".")[0] not in {*sys.stdlib_module_names, "numpy", "msgspec"}
        and not name.startswith("spu_assigner.core")
    }
    assert foreign == set()


@pytest.mark.parametrize("path", _FILES, ids=_shown)
def test_no_file_is_written_raw(path: Path) -> None:
    """A raw write writes what there is room for, and returns how much; a buffered one all, or it
    raises."""
    raw = [
        ast.unparse(node)
        for node in ast.walk(_tree(path))
        if isinstance(node, ast.Call)
        and (
            ast.unparse(node.func) in {"os.write", "os.pwrite", "os.writev"}
            or any(
                each.arg == "buffering" and ast.unparse(each.value) == "0" for each in node.keywords
            )
        )
    ]
    assert raw == []
