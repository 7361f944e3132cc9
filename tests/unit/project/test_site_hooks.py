"""Links of the built documentation: what leads out of docs/ leads somewhere, or is plain text."""

from __future__ import annotations

from importlib import util
from pathlib import Path
from types import ModuleType

import pytest

_ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def hooks() -> ModuleType:
    spec = util.spec_from_file_location("site_hooks", _ROOT / "tests/support/project/site_hooks.py")
    assert spec is not None
    assert spec.loader is not None
    module = util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("place", "written", "built"),
    [
        ("concepts.md", "[a](policies.md#kafka)", "[a](policies.md#kafka)"),
        (
            "concepts.md",
            "[a](../ARCHITECTURE.md#glossary)",
            "[a](project/architecture.md#glossary)",
        ),
        ("decisions/core.md", "[a](../../README.md)", "[a](../index.md)"),
        ("index.md", "[a](docs/policies.md)", "[a](policies.md)"),
        ("index.md", "![a](docs/ui-cluster.png)", "![a](ui-cluster.png)"),
        ("project/architecture.md", "[a](docs/policies.md)", "[a](../policies.md)"),
        ("performance.md", "![a](../tests/bench/curves/b.png)", "![a](curves/b.png)"),
        ("concepts.md", "[the `tests`](../tests)", "the `tests`"),
        (
            "concepts.md",
            "[a](#ring) [b](https://example.org)",
            "[a](#ring) [b](https://example.org)",
        ),
    ],
)
def test_a_link_of_the_repository_becomes_one_of_the_site(
    hooks: ModuleType, place: str, written: str, built: str
) -> None:
    """Pages are written for readers of the repository; the site has another order of folders."""
    assert hooks.with_site_links(written, place) == built


def test_a_link_to_nothing_is_a_warning(
    hooks: ModuleType, caplog: pytest.LogCaptureFixture
) -> None:
    """Which ends `mkdocs build --strict`."""
    assert hooks.with_site_links("[a](../nothing.md)", "concepts.md") == "a"
    assert "there is no file nothing.md" in caplog.text


def test_what_is_in_a_fence_stays(hooks: ModuleType) -> None:
    """It is shown as it is written."""
    text = "[a](x)\n```\n[a](x)\n```\n[a](x)\n"
    changed = hooks.outside_fences(text, lambda part: part.replace("x", "y"))
    assert changed == "[a](y)\n```\n[a](x)\n```\n[a](y)\n"
