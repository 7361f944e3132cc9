"""The oracle itself, held to the source documents and to the contract's own words.

A model that shares a mistake with the product proves nothing, so its answers are pinned by hand.
"""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

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
from support.model.conversation import Conversation, by_hand, changes
from support.model.oracle import Index, Oracle


def test_it_imports_nothing_of_the_product() -> None:
    """Else it would agree with the product for the wrong reason."""
    parts = (plain_changes, plain_cluster, plain_leaders, plain_placement, plain_rendezvous)
    for module in (oracle_module, *parts, plain_repair, plain_requests):
        assert module.__file__ is not None
        tree = ast.parse(Path(module.__file__).read_text(encoding="utf-8"))
        imports = [node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom)]
        assert "spu_assigner" not in " ".join(ast.unparse(node) for node in imports)


def test_the_documents_table_and_the_chained_topic() -> None:
    """Documents 000 to 002, round robin."""
    talk = Conversation()
    talk.join(0, 1, 2, 3, 4)
    first = talk.create("first", 9, 3)
    assert first["replicas"] == [
        [0, 1, 2],
        [1, 2, 3],
        [2, 3, 4],
        [3, 4, 0],
        [4, 0, 1],
        [0, 2, 3],
        [1, 3, 4],
        [2, 4, 0],
        [3, 0, 1],
    ]
    assert first["chain_index"] == 9
    second = talk.create("second", 7, 3)
    assert second["replicas"] == [
        [4, 1, 2],
        [0, 3, 4],
        [1, 4, 0],
        [2, 0, 1],
        [3, 1, 2],
        [4, 2, 3],
        [0, 1, 2],
    ]
    assert second["chain_index"] == 16


def test_the_documents_even_racks() -> None:
    """Documents 000 to 002, example 1."""
    talk = Conversation()
    for number in range(12):
        talk.join(number, rack="abcd"[number // 3])
    assert talk.create("t", 12, 4)["replicas"] == [
        [0, 4, 8, 9],
        [4, 8, 9, 1],
        [8, 9, 1, 5],
        [9, 1, 5, 6],
        [1, 5, 6, 10],
        [5, 6, 10, 2],
        [6, 10, 2, 3],
        [10, 2, 3, 7],
        [2, 3, 7, 11],
        [3, 7, 11, 0],
        [7, 11, 0, 4],
        [11, 0, 4, 8],
    ]


def test_the_documents_uneven_racks() -> None:
    """Documents 000 to 002, example 2; with ignore_rack the round robin takes over."""
    talk = Conversation()
    for number, rack in enumerate("abbccc"):
        talk.join(number, rack=rack)
    assert talk.create("t", 6, 3)["replicas"] == [
        [3, 2, 0],
        [2, 0, 4],
        [0, 4, 1],
        [4, 1, 5],
        [1, 5, 3],
        [5, 3, 2],
    ]
    assert talk.create("u", 2, 3, ignore_rack=True)["replicas"] == [[0, 1, 2], [1, 2, 3]]


def test_kafkas_cases_of_document_004() -> None:
    """Brokers 1, 2, 3, start 2, shift 2; the request does not move the chain."""
    talk = Conversation("kafka")
    talk.join(1, 2, 3)
    case1 = talk.create("case1", 2, 1, start_index=2, shift=2)
    assert (case1["replicas"], case1["chain_index"]) == ([[3], [1]], 0)
    assert talk.create("case2", 2, 2, start_index=2)["replicas"] == [[3, 1], [1, 2]]


def test_kafkas_own_rack_aware_expectation() -> None:
    """AdminRackAwareTest, chained over two topics."""
    talk = Conversation("kafka")
    for number, rack in enumerate(["rack1", "rack3", "rack3", "rack2", "rack2", "rack1"]):
        talk.join(number, rack=rack)
    first, second = talk.create("first", 4, 3), talk.create("second", 3, 3)
    assert first["replicas"] == [[0, 3, 1], [3, 1, 5], [1, 5, 4], [5, 4, 2]]
    assert second["replicas"] == [[4, 2, 0], [2, 0, 3], [0, 4, 2]]
    assert second["chain_index"] == 7


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


def test_a_saturated_spu_is_skipped_by_the_next_partition() -> None:
    """The ring shrinks between two partitions; the one to lead next still leads next."""
    talk = Conversation()
    talk.join(0, 2, 3)
    talk.join(1, capacity=1)
    lines = talk.say("topic_create", topic="t", partitions=4, replication_factor=2)
    # [0, 1] fills SPU 1, so SPU 2 leads next: index 1 of [0, 2, 3]. At index 3 the gap is 1.
    assert lines[0]["replicas"] == [[0, 1], [2, 3], [3, 0], [0, 3]]
    assert lines[0]["chain_index"] == 4
    assert changes(lines) == [(1, "saturated", 3)]


def test_a_topic_takes_all_or_nothing() -> None:
    """A refusal leaves counts and chain as they were."""
    talk = Conversation()
    talk.join(0, 1, capacity=2)
    assert talk.refuse(partitions=5) == "INSUFFICIENT_CAPACITY"
    assert talk.create("t", 4)["replicas"] == [[0], [1], [0], [1]]


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


def test_an_emptied_ring_keeps_its_cycle() -> None:
    """The first to join it is position 0 of that cycle; an index that never moved stays 0."""
    moved, unmoved = Index(value=7, moved=True), Index()
    for index in (moved, unmoved):
        index.rebase([1, 2, 3], [])
        index.rebase([], [4, 5])
    assert (moved.value, unmoved.value) == (4, 0)


def test_a_repeated_event_says_nothing() -> None:
    """Also when it was refused, and a topic's own create for as long as the topic lives."""
    talk = Conversation()
    join = {"type": "spu_joined", "event_id": "j", "cluster_id": "c1", "spu_id": 1}
    create = {"type": "topic_create", "event_id": "c", "cluster_id": "c1", "topic": "t"}
    refused = {"type": "topic_delete", "event_id": "d", "cluster_id": "c1", "topic": "u"}
    for event in (join, create, refused):
        assert talk.oracle.apply(event) != []
        assert talk.oracle.apply(event) == []
    for _ in range(256):
        talk.say("topic_delete", topic="u")
    assert talk.oracle.apply(create) == []
    assert talk.oracle.apply(refused) != []


def test_validate_only_answers_and_changes_nothing() -> None:
    """The map that would have been given, and the next request is given the same."""
    talk = Conversation()
    talk.join(0, 1)
    lines = talk.say("topic_create", topic="t", partitions=2, validate_only=True)
    assert [(line["status"], line["replicas"]) for line in lines] == [("validated", [[0], [1]])]
    assert talk.create("t", 2)["replicas"] == [[0], [1]]


def test_a_deleted_topic_gives_its_slots_back() -> None:
    """Tombstone, status, restored SPUs, in this order."""
    talk = Conversation()
    talk.join(0, 1, capacity=1)
    talk.create("t", 2)
    deleted, status, *ring = talk.say("topic_delete", topic="t")
    assert (deleted["revision"], deleted["replicas"], deleted["chain_index"]) == (2, None, 2)
    assert (status["status"], status["code"]) == ("deleted", None)
    assert changes(ring) == [(0, "restored", 2), (1, "restored", 2)]


def test_manual_lists_count_and_move_no_index() -> None:
    """Offline SPUs may be named; a full one may not."""
    talk = Conversation()
    talk.join(0, 1, capacity=2)
    talk.say("spu_left", spu_id=1)
    lines = talk.say("topic_create", topic="t", replicas=by_hand([0, 1], [1, 0]))
    assert (lines[0]["policy"], lines[0]["chain_index"]) == ("manual", None)
    assert changes(lines) == [(0, "saturated", 0)]  # SPU 1 is full too, but not online
    assert changes(talk.join(1, capacity=2)) == [(1, "joined", 0), (1, "saturated", 0)]
    assert talk.refuse("u", replicas=by_hand([1])) == "MANUAL_SPU_FULL"


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"partitions": 0}, "INVALID_PARTITIONS"),
        ({"partitions": 100_001}, "INVALID_PARTITIONS"),
        ({"replication_factor": 0}, "INVALID_REPLICATION_FACTOR"),
        ({"replication_factor": 33}, "INVALID_REPLICATION_FACTOR"),
        ({"start_index": -1}, "INVALID_START_INDEX"),
        ({"start_index": 2**31}, "INVALID_START_INDEX"),
        ({"policy": "redpanda", "start_index": 0}, "INVALID_START_INDEX"),
        ({"shift": 0}, "INVALID_SHIFT"),
        ({"policy": "kafka", "shift": 0}, "INVALID_SHIFT"),
        ({"policy": "kafka", "start_index": 0, "shift": -1}, "INVALID_SHIFT"),
        ({"policy": "manual"}, "INVALID_REPLICAS"),
        ({"policy": "kafka", "replicas": by_hand([1])}, "INVALID_REPLICAS"),
        ({"replicas": 5}, "MANUAL_MALFORMED"),
        ({"replicas": by_hand([1], [77])}, "MANUAL_UNKNOWN_SPU"),
        ({"policy": "balanced", "start_index": 0}, "INVALID_START_INDEX"),
        (
            {"replication_factor": 4, "on_shortage": "wait", "validate_only": True},
            "INSUFFICIENT_SPUS",
        ),
        ({"topic": "living"}, "TOPIC_EXISTS"),
        ({"replication_factor": 4}, "INSUFFICIENT_SPUS"),
        ({"replication_factor": 3}, "INSUFFICIENT_CAPACITY"),
    ],
)
def test_what_cannot_be_met_is_refused_with_a_code(fields: dict[str, Any], code: str) -> None:
    """One status, nothing else."""
    talk = Conversation()
    talk.join(1, 2)
    talk.join(3, capacity=0)
    talk.create("living")
    assert talk.refuse(**fields) == code


def test_partly_labelled_racks_are_refused_unless_they_are_ignored() -> None:
    """Saturated SPUs count among the online ones, offline ones do not."""
    talk = Conversation()
    talk.join(1, 2, rack="a")
    talk.join(3, capacity=0)
    assert talk.refuse() == "RACKS_INCOMPLETE"
    assert talk.create("ignoring", ignore_rack=True)["replicas"] == [[1]]
    talk.say("spu_left", spu_id=3)
    assert talk.create("complete")["replicas"] == [[1]]


@pytest.mark.parametrize(
    ("kind", "fields", "code"),
    [
        ("spu_joined", {"spu_id": -1}, "INVALID_SPU_ID"),
        ("spu_joined", {"spu_id": 1, "cores": 0}, "INVALID_CORES"),
        ("spu_joined", {"spu_id": 1, "capacity": -1}, "INVALID_CAPACITY"),
        ("spu_joined", {"spu_id": 1, "rack": "r" * 129}, "INVALID_RACK"),
        ("spu_left", {"spu_id": 1}, "SPU_UNKNOWN"),
        ("spu_left", {"spu_id": 1, "mode": "decommission"}, "SPU_UNKNOWN"),
    ],
)
def test_a_bad_spu_event_is_ignored_with_a_code(
    kind: str, fields: dict[str, Any], code: str
) -> None:
    """The ring stays as it is."""
    (line,) = Conversation().say(kind, **fields)
    assert (line["change"], line["code"], line["ring_size"]) == ("ignored", code, 0)


def test_clusters_do_not_know_each_other() -> None:
    """Same SPU ids, same topic names, same event ids."""
    oracle = Oracle()
    for cluster in ("c1", "c2"):
        event = {"type": "spu_joined", "event_id": "e1", "cluster_id": cluster, "spu_id": 1}
        assert changes(oracle.apply(event)) == [(1, "joined", 1)]


def test_weights_of_a_core_that_is_gone_are_found_again() -> None:
    """Cores go, replicas stay: what is deleted later is taken off the most loaded."""
    talk = Conversation("redpanda")
    talk.join(1, cores=3)
    talk.create("t", 4)  # cores 1, 2, 1, 2: weights 2, 2, 2
    talk.join(1, cores=2)  # core 2 hands its weight to core 0: weights 4, 2
    talk.say("topic_delete", topic="t")
    assert talk.oracle.clusters["c1"].spus[1].weights == [2, 0]
