"""What the tools do not check: sizes, imports, and words that have no place in finished code."""

from __future__ import annotations

import ast
import re
import sys
from functools import cache
from pathlib import Path

import pytest

_ROOT = Path(__file__).parents[3]
_PACKAGES = ("core", "schemas", "stream")
_FILES = sorted(path for package in _PACKAGES for path in (_ROOT / package).glob("**/*.py"))
_TESTS = sorted((_ROOT / "tests").glob("**/*.py"))
_MODULE_LINES_MAX = 450  # a sitting
_FUNCTION_LINES_MAX = 80  # a screen

# Reading what these write can run code: nothing that comes from outside may ever reach them.
_CODE_RUNNERS = {"pickle", "_pickle", "cloudpickle", "dill", "joblib", "marshal", "shelve"}

_UNFINISHED = "|".join((r"\bTO" + r"DO\b", r"\bFIX" + r"ME\b", r"\bXX" + r"X\b"))


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


@pytest.mark.parametrize("path", _FILES, ids=_shown)
def test_a_module_says_what_it_is_for_and_asserts_nothing(path: Path) -> None:
    """`python -O` drops assertions, so an invariant is raised."""
    tree = _tree(path)
    assert ast.get_docstring(tree) or not tree.body, "no docstring"
    asserts = [node.lineno for node in ast.walk(tree) if isinstance(node, ast.Assert)]
    assert asserts == []


def test_no_two_classes_of_the_product_have_one_name() -> None:
    """`Report` or `Rule` says nothing in another module, in a traceback or in a search."""
    homes: dict[str, list[str]] = {}
    for path in _FILES:
        for node in ast.walk(_tree(path)):
            if isinstance(node, ast.ClassDef):
                homes.setdefault(node.name, []).append(_shown(path))
    assert {name: paths for name, paths in homes.items() if len(paths) > 1} == {}


@pytest.mark.parametrize("path", [*_FILES, *_TESTS], ids=_shown)
def test_nothing_is_imported_under_a_bare_name_or_left_to_do(path: Path) -> None:
    """A bare `core` would load each class twice; unfinished work belongs in an issue."""
    assert {name for name in _imported(path) if name.split(".")[0] in _PACKAGES} == set()
    marks = re.findall(_UNFINISHED, path.read_text(encoding="utf-8"))
    assert marks == []


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
def test_nothing_is_pickled_or_unpickled(path: Path) -> None:
    """What comes out of Kafka or the checkpoint is data; a pickle would be a program."""
    assert {name for name in _imported(path) if name.split(".")[0] in _CODE_RUNNERS} == set()
    if not any(name.startswith(("multiprocessing", "pandas")) for name in _imported(path)):
        return
    called = {
        f"{node.func.attr}, line {node.lineno}"
        for node in ast.walk(_tree(path))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        # Connections of `multiprocessing` pickle in these; `send_bytes` and `recv_bytes` do not.
        and node.func.attr in {"send", "recv", "read_pickle", "to_pickle"}
    }
    assert called == set()


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
