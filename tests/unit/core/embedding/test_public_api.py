"""What `spu_assigner.core` promises to those who embed it."""

from __future__ import annotations

import doctest
import inspect
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import is_dataclass
from typing import Any, Final, get_args, get_type_hints

import pytest
import spu_assigner.core as api
from spu_assigner.core import assigner

# What the rest of the core alone uses of a class.
INTERNAL: Final = {"ClusterState": ("ring", "takeovers", "loads", "ring_loads")}
EXPORTED: Final = {name: getattr(api, name) for name in api.__all__}


def annotations_of(value: Any) -> Iterator[Any]:
    """The types of what a caller reads of a public name, and of what it gives to it."""
    if not isinstance(value, type) and not inspect.isfunction(value):
        yield value  # an alias
    elif inspect.isfunction(value):
        yield from get_type_hints(value, localns=EXPORTED).values()
    else:
        if is_dataclass(value):
            yield from get_type_hints(value, localns=EXPORTED).values()
        for name, member in vars(value).items():
            if name in INTERNAL.get(value.__name__, ()) or (
                name.startswith("_") and name != "__init__"
            ):
                continue
            function = member.fget if isinstance(member, property) else member
            function = getattr(function, "__func__", function)
            if inspect.isfunction(function) and function.__module__.startswith("spu_assigner"):
                yield from get_type_hints(function, localns=EXPORTED).values()


def own_types(hint: Any) -> Iterator[Any]:
    """The product's own types in a type."""
    for inner in get_args(hint):
        yield from own_types(inner)
    module = getattr(hint, "__module__", "")
    if module.startswith("spu_assigner") and hasattr(hint, "__name__"):
        yield hint


def test_every_type_that_can_be_reached_is_exported() -> None:
    """Who holds an answer can name the type of each part of it."""
    reached: dict[str, str] = {}
    for name, value in EXPORTED.items():
        for hint in annotations_of(value):
            reached |= {each.__name__: name for each in own_types(hint)}
    assert len(reached) > 60
    assert {each: name for each, name in reached.items() if each not in EXPORTED} == {}


def test_every_public_name_is_there() -> None:
    """Names are loaded late, so a wrong home would show only at its first use."""
    for name in api.__all__:
        assert getattr(api, name) is not None
    assert set(api.__all__) <= set(dir(api))


def test_an_unknown_name_is_an_attribute_error() -> None:
    """`hasattr` and `from … import` rely on it."""
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        api.nothing  # noqa: B018 - the access is what is tested


def test_the_docstring_example_is_true() -> None:
    """It is the first thing that is copied."""
    result = doctest.testmod(assigner)
    assert result.attempted >= 6
    assert result.failed == 0


def test_an_event_alone_loads_no_numpy() -> None:
    """Producers build events; they place nothing, and start within milliseconds."""
    code = (
        "import sys; from spu_assigner.core import SpuJoined, Constraints; "
        "SpuJoined(event_id='e', cluster_id='c', spu_id=0); sys.exit('numpy' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_its_import_loads_no_other_package_and_takes_less_than_a_fifth_of_a_second() -> None:
    """An application that embeds it starts at once. CPU time, twenty times what it takes: a busy
    machine fails nothing."""
    code = (
        "import sys, time; before, begun = set(sys.modules), time.process_time(); "
        "import spu_assigner.core; print(time.process_time() - begun, "
        "*{name.partition('.')[0] for name in set(sys.modules) - before} "
        "- set(sys.stdlib_module_names))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True)
    seconds, *packages = done.stdout.split()
    assert packages == ["spu_assigner"]
    assert float(seconds) < 0.2


def test_clusters_do_not_influence_each_other() -> None:
    """A chain index that leaked into another cluster would move its leaders."""
    both, alone = api.Assigner(), api.Assigner()
    for cluster in ("c1", "c2"):
        for spu_id in range(3):
            both.apply(
                api.SpuJoined(event_id=f"{cluster}-{spu_id}", cluster_id=cluster, spu_id=spu_id)
            )
            if cluster == "c2":
                alone.apply(api.SpuJoined(event_id=f"c2-{spu_id}", cluster_id="c2", spu_id=spu_id))
    both.apply(api.TopicCreate(event_id="e1", cluster_id="c1", topic="t"))
    create = api.TopicCreate(event_id="e2", cluster_id="c2", topic="t", partitions=4)
    assert both.apply(create) == alone.apply(create)
