"""Error messages say what was found, and what was expected or what to do.

Read from the sources: every `raise` of an `AssignerError` whose text stands there. A message has
its parts divided by a semicolon (`found; what to do`) or says what was `expected`. A class that
puts its message together itself is looked at once, where it does.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

_ROOT = Path(__file__).parents[3]
_FILES = sorted(
    path for top in ("core", "schemas", "stream") for path in (_ROOT / top).rglob("*.py")
)
_TREES = {path: ast.parse(path.read_text(encoding="utf-8")) for path in _FILES}
_CLASSES = {
    node.name: node
    for tree in _TREES.values()
    for node in ast.walk(tree)
    if isinstance(node, ast.ClassDef)
}
_WORDS_MIN = 3  # fewer in a `raise` are no message: it was put together elsewhere

# What a user never meets as it is, with the reason.
_PARTS = {
    "FileRefusedError": "its reason stands in the message of whoever reads the file",
    "SchemaError": "what is wrong with an .avsc, for whoever edits it, beside its place",
    "InvariantError": "a fault of the product: only the state's fingerprint helps",
}


def _is_a(name: str, wanted: str) -> bool:
    if name == wanted:
        return True
    bases = _CLASSES[name].bases if name in _CLASSES else []
    return any(_is_a(ast.unparse(base).rpartition(".")[2], wanted) for base in bases)


def _literal(expression: ast.expr) -> str:
    """The text of an expression, with {} for what is filled in."""
    match expression:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr(values=values):
            return "".join(_literal(value) for value in values)
        case ast.BinOp(left=left, right=right):
            return _literal(left) + _literal(right)
        case _:
            return "{}"


def _texts(node: ast.AST) -> str:
    return " ".join(
        each.value
        for each in ast.walk(node)
        if isinstance(each, ast.Constant) and isinstance(each.value, str)
    )


def _is_whole(text: str) -> bool:
    return "; " in text or "expected" in text


def _raised() -> Iterator[tuple[str, str, str]]:
    """Each `raise` with a text of its own: place, class, text with the names of keywords."""
    for path, tree in _TREES.items():
        for node in ast.walk(tree):
            if not (isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call)):
                continue
            name = ast.unparse(node.exc.func).rpartition(".")[2]
            if not _is_a(name, "AssignerError"):
                continue
            parts = [_literal(each) for each in node.exc.args]
            parts += [f"{each.arg} {_literal(each.value)}" for each in node.exc.keywords]
            text = " | ".join(parts)
            if len(re.findall(r"[a-z]{2,}", text)) >= _WORDS_MIN:
                place = f"{path.relative_to(_ROOT).as_posix()}:{node.lineno}"
                yield place, name, text


def test_an_error_says_what_was_found_and_what_to_do() -> None:
    """The first thing that an operator reads of a fault is often the only one."""
    raised = list(_raised())
    assert len(raised) > 100, "the sources are not read as they are written"
    silent = {
        place: text
        for place, name, text in raised
        if not _is_whole(text)
        and not any(_is_a(name, part) for part in _PARTS)
        and not _is_whole(_texts(_CLASSES[name]))
    }
    assert silent == {}
