"""Replica lists written by hand: both forms, and every fault of shape with partition and value."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from spu_assigner.core.base.errors import Code
from spu_assigner.core.base.limits import PARTITIONS_MAX, REPLICATION_FACTOR_MAX, SPU_ID_MAX
from spu_assigner.core.base.replica_lists import ReplicaLists
from spu_assigner.core.policies.manual_lists import ManualFault, read_lists

DOCUMENTS_LISTS = [{"id": 0, "replicas": [0, 1, 2]}, {"id": 1, "replicas": [1, 2, 0]}]
DEEP: list[Any] = []
for _ in range(50_000):
    DEEP = [DEEP]


def entries(*lists: Any) -> list[dict[str, Any]]:
    """The list form of these replica lists."""
    return [{"id": number, "replicas": replicas} for number, replicas in enumerate(lists)]


def fault_of(raw: object) -> ManualFault:
    found = read_lists(raw)
    assert isinstance(found, ManualFault), found
    return found


@pytest.mark.parametrize(
    "raw",
    [
        pytest.param(DOCUMENTS_LISTS, id="list, document 000"),
        pytest.param({"partitions": DOCUMENTS_LISTS}, id="object, document 002"),
    ],
)
def test_both_forms_of_the_documents_are_read(raw: object) -> None:
    """The documents differ in the form of the file; each has been in use."""
    assert read_lists(raw) == ReplicaLists.of_lists([[0, 1, 2], [1, 2, 0]])


def test_id_0_and_the_largest_id_are_spus() -> None:
    """The documents ask for positive integers, and name SPU 0 in their own example."""
    assert read_lists(entries([0, SPU_ID_MAX])) == ReplicaLists.of_lists([[0, SPU_ID_MAX]])


def test_the_longest_lists_are_read() -> None:
    """The limits themselves are legal."""
    widest = list(range(REPLICATION_FACTOR_MAX))
    assert read_lists(entries(widest)) == ReplicaLists.of_lists([widest])
    assert read_lists(entries(*[[1]] * PARTITIONS_MAX)) == ReplicaLists.of_lists(
        [[1]] * PARTITIONS_MAX
    )


@pytest.mark.parametrize(
    ("raw", "code", "reported"),
    [
        pytest.param(None, Code.MANUAL_MALFORMED, "None", id="nothing"),
        pytest.param("0,1", Code.MANUAL_MALFORMED, "'0,1'", id="text"),
        pytest.param({}, Code.MANUAL_MALFORMED, "[]", id="an empty object"),
        pytest.param({"partitions": 3}, Code.MANUAL_MALFORMED, "3", id="no list inside"),
        pytest.param(
            {"partitions": [], "name": 1}, Code.MANUAL_MALFORMED, "'name'", id="a field too many"
        ),
        pytest.param([], Code.INVALID_PARTITIONS, "0 partitions", id="no partition"),
        pytest.param({"partitions": []}, Code.INVALID_PARTITIONS, "0 partitions", id="none inside"),
        pytest.param(
            entries(*[[1]] * (PARTITIONS_MAX + 1)),
            Code.INVALID_PARTITIONS,
            "100001 partitions",
            id="too many partitions",
        ),
        pytest.param(
            [*entries([0]), [1]], Code.MANUAL_MALFORMED, "entry 1 is [1]", id="entry is a list"
        ),
        pytest.param([{"id": 0}], Code.MANUAL_MALFORMED, "entry 0", id="entry without replicas"),
        pytest.param(
            [{"id": 0, "replicas": [0], "rack": "a"}],
            Code.MANUAL_MALFORMED,
            "'rack'",
            id="entry with more",
        ),
        pytest.param(
            [{"id": 1, "replicas": [0]}], Code.MANUAL_PARTITION_IDS, "id 1", id="not from 0"
        ),
        pytest.param(
            [*entries([0]), {"id": 2, "replicas": [0]}],
            Code.MANUAL_PARTITION_IDS,
            "entry 1 has the id 2",
            id="a gap",
        ),
        pytest.param(
            [*entries([0], [1]), {"id": 1, "replicas": [0]}],
            Code.MANUAL_PARTITION_IDS,
            "entry 2 has the id 1",
            id="out of order",
        ),
        pytest.param(
            [{"id": "0", "replicas": [0]}], Code.MANUAL_PARTITION_IDS, "'0'", id="id as text"
        ),
        pytest.param(
            [{"id": False, "replicas": [0]}], Code.MANUAL_PARTITION_IDS, "False", id="id as bool"
        ),
        pytest.param(
            [{"id": 0.0, "replicas": [0]}], Code.MANUAL_PARTITION_IDS, "0.0", id="id as float"
        ),
        pytest.param(
            entries("01"), Code.MANUAL_MALFORMED, "partition 0 has the replicas '01'", id="no list"
        ),
        pytest.param(entries([0], []), Code.MANUAL_EMPTY_LIST, "partition 1", id="an empty list"),
        pytest.param(
            entries(list(range(33))),
            Code.INVALID_REPLICATION_FACTOR,
            "partition 0 has 33",
            id="too many replicas",
        ),
        pytest.param(
            entries([0, 1], [0]), Code.MANUAL_UNEVEN_LISTS, "partition 1 has 1", id="shorter"
        ),
        pytest.param(
            entries([0], [1], [0, 1]), Code.MANUAL_UNEVEN_LISTS, "partition 2 has 2", id="longer"
        ),
        pytest.param(
            entries([0, 1], [4, 4]),
            Code.MANUAL_DUPLICATE_SPU,
            "partition 1 names SPU 4",
            id="duplicates",
        ),
        pytest.param(
            entries([0, -3]), Code.MANUAL_INVALID_SPU, "partition 0 names the SPU -3", id="negative"
        ),
        pytest.param(
            entries([0], ["1"]),
            Code.MANUAL_INVALID_SPU,
            "partition 1 names the SPU '1'",
            id="SPU as text",
        ),
        pytest.param(entries([1.0]), Code.MANUAL_INVALID_SPU, "1.0", id="SPU as float"),
        pytest.param(entries([1, True]), Code.MANUAL_INVALID_SPU, "True", id="SPU as bool"),
        pytest.param(entries([None]), Code.MANUAL_INVALID_SPU, "None", id="SPU missing"),
        pytest.param(
            entries([SPU_ID_MAX + 1]), Code.MANUAL_INVALID_SPU, "2147483648", id="past the limit"
        ),
    ],
)
def test_each_fault_is_named_with_partition_and_value(
    raw: object, code: Code, reported: str
) -> None:
    """Whoever wrote the file finds the line."""
    fault = fault_of(raw)
    assert fault.code is code
    assert reported in fault.message


@pytest.mark.parametrize(
    ("raw", "code"),
    [
        pytest.param(entries([0, -1], []), Code.MANUAL_INVALID_SPU, id="first partition first"),
        pytest.param([{"id": 7, "replicas": []}], Code.MANUAL_PARTITION_IDS, id="id before list"),
        pytest.param(entries([0, 1], []), Code.MANUAL_EMPTY_LIST, id="empty before uneven"),
        pytest.param(entries([0], [2, 2]), Code.MANUAL_UNEVEN_LISTS, id="uneven before duplicate"),
        pytest.param(entries(["x", 5, 5]), Code.MANUAL_DUPLICATE_SPU, id="duplicate before id"),
        pytest.param(
            entries([0, 1], [*range(33)]), Code.INVALID_REPLICATION_FACTOR, id="limit before uneven"
        ),
    ],
)
def test_the_first_fault_wins(raw: object, code: Code) -> None:
    """One answer, the same each time: in partition order, and within one as the contract lists."""
    assert fault_of(raw).code is code


@pytest.mark.parametrize(
    "raw",
    [
        pytest.param(DEEP, id="too deep to spell out"),
        pytest.param(entries(DEEP), id="too deep inside"),
        pytest.param([{"id": DEEP, "replicas": [0]}], id="too deep an id"),
        pytest.param(entries([10**6_000]), id="more digits than Python spells out"),
        pytest.param(entries(["x" * 1_000_000]), id="a megabyte of text"),
        pytest.param({"x" * 1_000_000: 1}, id="a megabyte of name"),
        pytest.param({f"field {number}": 1 for number in range(10_000)}, id="many names"),
    ],
)
def test_a_message_stays_short_whatever_came_in(raw: object) -> None:
    """It goes into a Kafka message and onto a terminal."""
    assert len(fault_of(raw).message) < 400


JSON_VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=3)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.dictionaries(st.sampled_from(["id", "replicas", "partitions", "x"]), inner, max_size=3),
    ),
    max_leaves=12,
)


@given(
    raw=st.one_of(
        JSON_VALUES,
        st.lists(st.lists(st.integers(-1, 4), max_size=3), max_size=4).map(lambda ls: entries(*ls)),
    )
)
def test_whatever_came_in_is_read_or_named(raw: object) -> None:
    """Nothing crashes, and what is read is a legal map."""
    found = read_lists(raw)
    if isinstance(found, ManualFault):
        assert found.message
        return
    lists = found.tolist()
    assert len({len(ids) for ids in lists}) == 1
    for ids in lists:
        assert len(set(ids)) == len(ids) > 0
        assert all(0 <= spu_id <= SPU_ID_MAX for spu_id in ids)
