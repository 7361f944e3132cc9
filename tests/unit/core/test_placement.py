"""The placement functions: every table of the source documents, then what holds for any input."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from spu_assigner.core.base.replica_lists import IdArray
from spu_assigner.core.rules import fluvio, kafka, redpanda
from spu_assigner.core.rules.fluvio import diagonal
from spu_assigner.core.rules.kafka import alternation
from support.model import plain_placement as plain


def rows(digits: str) -> list[list[int]]:
    """Lists of ids of one digit each."""
    return [[*map(int, row)] for row in digits.split()]


# documents 000 to 002: the table for partitions 0 to 15
FIVE_SPUS_THREE_REPLICAS = rows("012 123 234 340 401 023 134 240 301 412 034 140 201 312 423 012")
FOUR_RACKS = {"a": [0, 1, 2], "b": [3, 4, 5], "c": [6, 7, 8], "d": [9, 10, 11]}
FOUR_RACKS_WALK = [0, 4, 8, 9, 1, 5, 6, 10, 2, 3, 7, 11]
UNEVEN_RACKS = {"a": [0], "b": [1, 2], "c": [3, 4, 5]}
UNEVEN_RACKS_MAP = rows("320 204 041 415 153 532")  # documents 000 to 002: example 2
KAFKA_RACKS = {"rack1": [0, 5], "rack2": [3, 4], "rack3": [1, 2]}  # Kafka's AdminRackAwareTest
KAFKA_RACKS_MAP = rows("031 315 154 542 420 203 042")  # its expected assignment, start 0

INDEXES = st.one_of(st.integers(0, 400), st.integers(0, 10**40))  # an index may grow for ever


@dataclass(frozen=True, kw_only=True)
class Case:
    """A ring with its racks, and a request to place on it."""

    ids: list[int]
    racks: list[str]
    start: int
    shift: int
    partitions: int
    replicas: int

    @property
    def ring(self) -> IdArray:
        return ids_of(self.ids)

    @property
    def rack_numbers(self) -> IdArray:
        names = sorted(set(self.racks))
        return ids_of([names.index(rack) for rack in self.racks])


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Small rings in any order, racks from one to as many as SPUs, requests of many turns."""
    ids = draw(st.lists(st.integers(0, 2**31 - 1), min_size=1, max_size=12, unique=True))
    size = len(ids)
    names = st.sampled_from("abcdefghijkl"[: draw(st.integers(1, size))])
    return Case(
        ids=ids,
        racks=draw(st.lists(names, min_size=size, max_size=size)),
        start=draw(INDEXES),
        shift=draw(INDEXES),
        partitions=draw(st.integers(1, 200)),
        replicas=draw(st.integers(1, size)),
    )


def ids_of(ids: list[int]) -> IdArray:
    return np.array(ids, dtype=np.int32)


RULES: dict[str, Any] = {
    "round_robin": fluvio.round_robin,
    "walk": fluvio.walk,
    "shifted": kafka.shifted,
    "shifted_over_racks": kafka.shifted_over_racks,
}
each_rule = pytest.mark.parametrize("rule", RULES)


def place(rule: str, case: Case, start: int, partitions: int) -> list[list[int]]:
    given: dict[str, Any] = {"start": start, "partitions": partitions, "replicas": case.replicas}
    given |= {"shift": case.shift} if rule.startswith("shifted") else {}
    given |= {"racks": case.rack_numbers} if rule == "shifted_over_racks" else {}
    placed = RULES[rule](case.ring, **given)
    assert placed.dtype == np.int32
    found: list[list[int]] = placed.tolist()
    return found


def place_one(rule: str, case: Case, index: int) -> list[int]:
    ids, replicas = case.ids, case.replicas
    turn, first = divmod(index, len(ids))
    shift = case.shift + turn
    match rule:
        case "round_robin":
            return plain.fluvio_list(ids, index=index, replicas=replicas)
        case "walk":
            return plain.fluvio_rack_list(ids, index=index, replicas=replicas)
        case "shifted":
            return plain.kafka_list(ids, first=first, shift=shift, replicas=replicas)
    racks = dict(zip(ids, case.racks, strict=True))
    return plain.kafka_rack_list(ids, racks, first=first, shift=shift, replicas=replicas)


def orders_of(rows: dict[str, list[int]]) -> tuple[list[int], list[int]]:
    pairs = [(spu_id, rack) for rack, ids in rows.items() for spu_id in ids]
    ids, racks = [spu_id for spu_id, _ in pairs], [rack for _, rack in pairs]
    return diagonal(ids, racks), alternation(ids, racks)


def test_round_robin_gives_the_documents_table_of_16_rows() -> None:
    """5 SPUs (the documents' text says 4, their tables 5), 3 replicas."""
    placed = fluvio.round_robin(ids_of([0, 1, 2, 3, 4]), start=0, partitions=16, replicas=3)
    assert placed.tolist() == FIVE_SPUS_THREE_REPLICAS


def test_four_even_racks_give_the_documents_sequence_and_map() -> None:
    """Example 1: 12 SPUs (document 002 says 11), 4 racks."""
    sequence, _ = orders_of(FOUR_RACKS)
    assert sequence == FOUR_RACKS_WALK  # and each list is the next four of it
    placed = fluvio.walk(ids_of(sequence), start=0, partitions=12, replicas=4)
    assert placed.tolist() == [(FOUR_RACKS_WALK * 2)[at : at + 4] for at in range(12)]


def test_three_uneven_racks_give_the_documents_sequence_and_map() -> None:
    """Example 2: the longest rack comes first, and shorter ones are read round and round."""
    sequence, _ = orders_of(UNEVEN_RACKS)
    assert sequence == [3, 2, 0, 4, 1, 5]
    placed = fluvio.walk(ids_of(sequence), start=0, partitions=6, replicas=3)
    assert placed.tolist() == UNEVEN_RACKS_MAP


@pytest.mark.parametrize(
    ("replicas", "expected"),
    [pytest.param(1, [[3], [1]], id="case1"), pytest.param(2, [[3, 1], [1, 2]], id="case2")],
)
def test_kafkas_cases_of_document_004_hold(replicas: int, expected: list[list[int]]) -> None:
    """Brokers 1, 2, 3, start 2, shift 2. The document raises the shift too early in case 2.

    After one partition instead of after three; modulo N - 1 it comes to the same.
    """
    rotated = ids_of([3, 1, 2])  # from the broker at index 2 on
    placed = kafka.shifted(rotated, start=0, shift=2, partitions=2, replicas=replicas)
    assert placed.tolist() == expected


def test_kafkas_published_table_without_racks_holds() -> None:
    """5 brokers, 10 partitions, 3 replicas; it is the head of Fluvio's, which goes another way."""
    ring = ids_of([0, 1, 2, 3, 4])
    placed = kafka.shifted(ring, start=0, shift=0, partitions=10, replicas=3)
    assert placed.tolist() == FIVE_SPUS_THREE_REPLICAS[:10]


def test_kafkas_published_alternated_lists_hold() -> None:
    """From AdminRackAwareTest, and the comment of getRackAlternatedBrokerList."""
    assert orders_of(KAFKA_RACKS)[1] == [0, 3, 1, 5, 4, 2]
    assert orders_of({**KAFKA_RACKS, "rack1": [0]})[1] == [0, 3, 1, 4, 2]
    three = {"rack1": [0, 1, 2], "rack2": [3, 4, 5], "rack3": [6, 7, 8]}
    assert orders_of(three)[1] == [0, 3, 6, 1, 4, 7, 2, 5, 8]


def test_kafkas_published_assignment_over_racks_holds() -> None:
    """From AdminRackAwareTest: the seventh partition is the first whose followers are shifted."""
    ring, racks = ids_of([0, 3, 1, 5, 4, 2]), ids_of([0, 1, 2, 0, 1, 2])
    placed = kafka.shifted_over_racks(ring, racks=racks, start=0, shift=0, partitions=7, replicas=3)
    assert placed.tolist() == KAFKA_RACKS_MAP


@each_rule
@given(case=cases())
def test_every_row_equals_the_plain_rule(rule: str, case: Case) -> None:
    """Turn by turn and all at once give what one list at a time gives, however large the index."""
    indexes = range(case.start, case.start + case.partitions)
    expected = [place_one(rule, case, index) for index in indexes]
    assert place(rule, case, case.start, case.partitions) == expected


@given(case=cases())
def test_orders_over_racks_equal_the_plain_rules(case: Case) -> None:
    """They are sorted into place instead of being read cell by cell."""
    racks = dict(zip(case.ids, case.racks, strict=True))
    assert diagonal(case.ids, case.racks) == plain.diagonal_order(racks)
    assert alternation(case.ids, case.racks) == plain.alternation_order(racks)


def test_core_0_is_spared_two_replicas() -> None:
    """Document 003: core 0 already works for the controller."""
    assert redpanda.initial_weights(3) == [2, 0, 0]
    assert redpanda.take_cores([2, 0, 0], 8) == [1, 2, 1, 2, 0, 1, 2, 0]
