"""The oracle itself, where no test of the product pins what both answer.

A model that shares a mistake with the product proves nothing. Most answers are pinned by hand on
the product, which has to equal the oracle.
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from support.model import oracle as oracle_module
from support.model import (
    plain_changes,
    plain_cluster,
    plain_leaders,
    plain_placement,
    plain_rendezvous,
    plain_repair,
    plain_requests,
)
from support.model.conversation import Conversation, changes
from support.model.oracle import Index


def test_it_imports_nothing_of_the_product() -> None:
    """Else it would agree with the product for the wrong reason."""
    parts = (plain_changes, plain_cluster, plain_leaders, plain_placement, plain_rendezvous)
    for module in (oracle_module, *parts, plain_repair, plain_requests):
        assert module.__file__ is not None
        tree = ast.parse(Path(module.__file__).read_text(encoding="utf-8"))
        imports = [node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom)]
        assert "spu_assigner" not in " ".join(ast.unparse(node) for node in imports)


def test_redpanda_spares_core_0_and_goes_round() -> None:
    """Document 003: one pointer, registration order, least loaded core."""
    talk = Conversation("redpanda")
    talk.join(5, 3, cores=2)
    found = talk.create("t", 3, 2)
    assert found["replicas"] == [[5, 3], [5, 3], [5, 3]]
    assert found["cores"] == [[1, 1], [1, 1], [0, 0]]
    assert found["chain_index"] == 6


def test_redpanda_rolls_back_what_cannot_be_met() -> None:
    """Document 003: partial assignments are undone."""
    talk = Conversation("redpanda")
    talk.join(1, 2, capacity=2)
    assert talk.refuse(partitions=3, replication_factor=2) == "INSUFFICIENT_CAPACITY"
    found = talk.create("t", 2, 2)
    assert found["replicas"] == [[1, 2], [1, 2]]
    assert talk.refuse("u") == "INSUFFICIENT_CAPACITY"


def test_redpanda_takes_a_freed_spu_at_the_tail() -> None:
    """Nodes saturate one by one, and come back behind the others."""
    talk = Conversation("redpanda")
    talk.join(1, 2, capacity=1)
    talk.join(3, capacity=9)
    talk.create("a")
    talk.create("b")
    lines = talk.say("topic_delete", topic="a")
    assert changes(lines) == [(1, "restored", 2)]
    assert talk.create("c", 2, 1)["replicas"] == [[3], [1]]


@pytest.mark.parametrize(
    ("value", "old", "new", "expected"),
    [
        pytest.param(7, [1, 2, 3], [0, 1, 2, 3], 10, id="join: same SPU, same cycle"),
        pytest.param(7, [1, 2, 3], [1, 3], 5, id="the lead leaves: the next one leads"),
        pytest.param(8, [1, 2, 3], [1, 2], 6, id="past the end: a cycle more"),
        pytest.param(7, [1, 2, 3], [2], 2, id="the others leave"),
        pytest.param(7, [1, 2, 3], [], 0, id="emptied"),
    ],
)
def test_an_index_is_rebased(value: int, old: list[int], new: list[int], expected: int) -> None:
    """s' = cycle * N' + position."""
    index = Index(value=value, moved=True)
    index.rebase(old, new)
    assert index.value == expected


def test_weights_of_a_core_that_is_gone_are_found_again() -> None:
    """Cores go, replicas stay: what is deleted later is taken off the most loaded."""
    talk = Conversation("redpanda")
    talk.join(1, cores=3)
    talk.create("t", 4)  # cores 1, 2, 1, 2: weights 2, 2, 2
    talk.join(1, cores=2)  # core 2 hands its weight to core 0: weights 4, 2
    talk.say("topic_delete", topic="t")
    assert talk.oracle.clusters["c1"].spus[1].weights == [2, 0]
