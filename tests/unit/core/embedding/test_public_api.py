"""What `spu_assigner.core` promises to those who embed it."""

from __future__ import annotations

import doctest
import subprocess
import sys

import pytest
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
