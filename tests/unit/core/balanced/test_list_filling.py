"""How many lists are filled at once: held to rules that look at one cell after the other.

The lists must stay as they are from release to release: a job that repeats a batch, and `verify`,
place them again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from spu_assigner.core.balanced import list_filling, policy, swap_repair, weighted_interleave
from spu_assigner.core.balanced.list_filling import Task, fill_rows
from spu_assigner.core.balanced.policy import place_balanced
from spu_assigner.core.state.loads import Loads
from support.model import plain_dealing as plain
from support.project.case_share import share_of

SEEDS = st.integers(0, 2**32 - 1)


@pytest.fixture(
    autouse=True,
    scope="module",
    params=[weighted_interleave.RUN_CELLS, 0, 2**31],
    ids=["as is", "runs", "one"],
)
def way(request: pytest.FixtureRequest) -> Iterator[None]:
    """Laid out in runs or sorted all at once: sizes decide, and both must give the same."""
    with mock.patch.object(weighted_interleave, "RUN_CELLS", request.param):
        yield


def test_cards_of_one_place_are_dealt_by_tie_whatever_their_counts() -> None:
    """Of 20,000 and 20,001 cards hundreds lie at the same place: 20 digits are too few."""
    counts = [20_000, 20_001, 19_999, 20_000]
    found = weighted_interleave.dealt(np.array(counts), np.zeros(4, dtype=np.int64), 7).tolist()
    assert found == plain.dealt(counts, [0] * 4, 7)


@st.composite
def tasks(draw: st.DrawFn) -> Task:
    """Numbers that can be met: those of lists that keep the rule about racks, drawn at random."""
    random = np.random.default_rng(draw(st.integers(0, 2**20)))
    sizes = draw(st.lists(st.integers(1, 8), min_size=1, max_size=8))
    if draw(st.booleans()):
        sizes = [1] * sum(sizes)
    racks = np.repeat(np.arange(len(sizes)), sizes)
    replicas = draw(st.integers(1, min(5, len(racks))))
    at_most = 1
    while sum(min(size, at_most) for size in sizes) < replicas:
        at_most += 1
    lower, upper = np.minimum(sizes, at_most - 1), np.minimum(sizes, at_most)
    lists = []
    for _ in range(draw(st.integers(1, 60))):
        more = random.permutation(np.flatnonzero(upper > lower))[: replicas - lower.sum()]
        counts = lower.copy()
        counts[more] += 1
        row = [
            spu
            for rack, count in enumerate(counts)
            for spu in random.permutation(np.flatnonzero(racks == rack))[:count]
        ]
        lists.append(random.permutation(row))
    table = np.array(lists)
    return Task(
        ids=np.arange(len(racks)) * 3,
        racks=racks,
        starts=np.searchsorted(racks, np.arange(len(sizes))),
        lower=lower,
        upper=upper,
        quotas=np.bincount(table.ravel(), minlength=len(racks)),
        leaders=np.bincount(table[:, 0], minlength=len(racks)),
        positions=random.permutation(len(racks)),
        replicas=replicas,
        seed=draw(SEEDS),
    )


def plain_rows(task: Task, tries: int) -> list[list[int]] | None:
    """The lists of a task; None: so many swaps do not repair them."""
    leading = plain.interleaved(task.leaders.tolist(), task.positions.tolist())
    rack_of, starts = task.racks.tolist(), task.starts
    to_follow = task.quotas - task.leaders
    leading_racks = [rack_of[spu] for spu in leading]
    followers = task.replicas - 1
    if task.upper.max() > 1:
        totals = np.add.reduceat(task.quotas, starts).tolist()
        racks = plain.racks_shared(totals, task.lower.tolist(), leading_racks, task.seed)
    elif len(starts) == task.replicas:
        racks = plain.all_racks(leading_racks, followers, task.seed)
    else:
        wanted = np.add.reduceat(to_follow, starts).tolist()
        apart = plain.racks_apart(wanted, leading_racks, followers, task.seed, tries)
        if apart is None:
            return None
        racks = apart
    if len(starts) == len(rack_of):
        cells = racks
    else:
        sequence = plain.dealt(to_follow.tolist(), rack_of, task.seed)
        cells = plain.in_cells(racks, sequence, rack_of)
    lists = [[leader, *others] for leader, others in zip(leading, cells, strict=True)]
    if task.upper.max() > 1 and plain.repaired(lists, racks, task.seed, tries):
        return None
    return lists


@given(tasks(), st.sampled_from([1, 2, swap_repair.SWAPS_TRIED_MAX]))
@settings(max_examples=share_of(300), deadline=None)
def test_lists_are_filled_as_cell_after_cell_does_it(task: Task, tries: int) -> None:
    """Where swaps do not repair them they are filled one by one: the numbers hold all the same."""
    with (
        mock.patch.object(list_filling, "DEALT_CELLS_MIN", 0),
        mock.patch.object(swap_repair, "SWAPS_TRIED_MAX", tries),
    ):
        found = fill_rows(task)
    lists = plain_rows(task, tries)
    if lists is not None:
        assert found.tolist() == lists
    assert np.bincount(found.ravel(), minlength=len(task.ids)).tolist() == task.quotas.tolist()
    assert np.bincount(found[:, 0], minlength=len(task.ids)).tolist() == task.leaders.tolist()


@dataclass(frozen=True, kw_only=True)
class Shape:
    """A ring and a request, all numbers by rule."""

    name: str
    spus: int = 1_000
    racks: tuple[int, ...] = (1,)  # turn by turn an SPU goes to the next of these
    capacities: tuple[int, ...] = (2**31 - 1,)
    partitions: int = 100_000
    replicas: int = 3
    held: int = 1  # SPUs hold 0 … held - 1, and lead half of that
    digest: str  # of the lists, by release 0.3.0

    def place(self) -> np.ndarray:
        """The lists."""
        numbers = np.arange(self.spus)
        held = numbers * 7 % self.held
        return place_balanced(
            Loads(
                ids=(numbers * 3).astype(np.int32),
                racks=np.resize(self.racks, self.spus).astype(np.int32),
                capacities=np.resize(self.capacities, self.spus).astype(np.int64),
                replicas=held,
                leaders=held // 2,
            ),
            partitions=self.partitions,
            replicas=self.replicas,
            start=self.spus // 3,
        )


SHAPES = (
    Shape(name="no racks", digest="bab315b5e7c7f64f"),
    Shape(name="no racks, an odd number", partitions=99_991, held=40, digest="747f511198890a4b"),
    Shape(name="3 racks", racks=(0, 1, 2), digest="a800b2f0e92a5a18"),
    Shape(name="4 racks", racks=(0, 1, 2, 3), held=9, digest="1ecd7362c1b92505"),
    Shape(name="10 racks", racks=tuple(range(10)), digest="7066c3b83f8abc0d"),
    Shape(
        name="10 racks, an odd number",
        racks=tuple(range(10)),
        partitions=99_991,
        digest="e5ed18e2750bb442",
    ),
    Shape(name="100 racks", racks=tuple(range(100)), held=100, digest="61543f8c27275bc8"),
    Shape(name="uneven racks", racks=(0, 0, 0, 0, 1, 1, 1, 2, 2, 3), digest="7ee88bb96e44f2fd"),
    Shape(name="2 racks", racks=(0, 0, 1), partitions=5_000, digest="4085f021d1b7a07e"),
    Shape(
        name="mixed capacities", capacities=(1_000, 2_000, 4_000), held=9, digest="8264e4041df6f96c"
    ),
    Shape(
        name="mixed capacities on racks",
        racks=(0, 1, 2, 3, 4),
        capacities=(1_000, 2_000, 4_000),
        digest="0ef09348dcef96bb",
    ),
    Shape(
        name="all different",
        spus=200,
        capacities=tuple(range(3_000, 7_000, 20)),
        partitions=20_000,
        replicas=5,
        digest="2131e6062b4067a1",
    ),
    Shape(
        name="a ring that fills",
        spus=64,
        racks=(0, 1, 2, 3, 3),
        capacities=(90, 120, 200),
        partitions=2_000,
        digest="f08a2a34e0f8a8d7",
    ),
)


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.name)
def test_large_topics_get_the_lists_of_release_0_3_0(shape: Shape) -> None:
    """Digests made by that release: however fast they are placed, the lists stay. Where nobody
    fills, large topics are dealt leader by leader, which is left out here."""
    with mock.patch.object(policy, "rows_by_leader", return_value=None):
        lists = shape.place()
    assert hashlib.sha256(lists.astype("<i4").tobytes()).hexdigest()[:16] == shape.digest
