"""The oracle is a model of its own: one that shared the product's code would agree for nothing."""

from __future__ import annotations

import ast
from pathlib import Path

from support.model import oracle


def test_it_imports_nothing_of_the_product() -> None:
    """Nor do the modules that it is made of."""
    folder = Path(oracle.__file__).parent
    plain = [path for path in folder.glob("plain_*.py") if path.name != "plain_rebalance.py"]
    assert len(plain) > 6
    for path in (Path(oracle.__file__), *plain):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        imports = [node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom)]
        assert "spu_assigner" not in " ".join(ast.unparse(node) for node in imports)
