"""What `spu_assigner.core` promises to those who embed it."""

from __future__ import annotations

import doctest
import subprocess
import sys

import pytest
import spu_assigner.core as api
from spu_assigner.core import assigner


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
