"""The cheapest steps found that bring all SPUs under their ceilings.

Rules:
- The SPU furthest over its goal that can give does so first: of what helps, what comes to the
  fewest bytes with all that has to follow, to the SPU of the least share that may take it. A taker
  may come to be over its own ceiling, but not over its capacity; then it gives in turn.
- Beside that each gives the replicas of the fewest bytes that relieve it (`covering`), if SPUs have
  room for them under their ceilings: the better of the two is done.
- In the end, once for each SPU, the steps by which it gives, then those by which it gives or takes,
  are undone and chosen again: what comes out better is kept.
- A plan is better if less is left over the goals, first of the SPU furthest beyond, then in all;
  then if it moves fewer bytes, then if it has fewer steps. Ties go to the lowest ids.
- What is looked at is counted, and limited.

Source: P. Shaw, "Using constraint programming and local search methods to solve vehicle routing
problems", CP 1998 (large neighbourhood search).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from heapq import merge
from typing import Final

from spu_assigner.core.base.replica_lists import IdMatrix
from spu_assigner.core.rebalance.covering import least_cover
from spu_assigner.core.rebalance.relief_state import Kind, ReliefState, Rest, Step
from spu_assigner.core.rebalance.resource_loads import (
    Amounts,
    MovableLists,
    ResourceGoal,
    ShareChange,
    fair_level,
    largest_share,
    movable_use,
)

TOGETHER: Final = 4  # SPUs that are relieved in one search
STEPS_MAX: Final = 300  # of one search
LOOKS_OF_STEP: Final = 8  # what it takes to undo a step and to make it again
SUMS_EACH: Final = 2_000  # of sizes of replicas that one SPU may give, kept at once,
SUMS_MAX: Final = 200_000  # and of all SPUs that are over; some ten seconds
LOOKS_MAX: Final = 2_000_000  # for better plans; some 3 s
LOOKS_OF_SUMS: Final = 64  # sums of sizes that take as long as a look
KINDS: Final = 24  # of replicas that an SPU may give next
TAKERS: Final = 6  # for each of them

Key = tuple[int, int, int, int]  # largest share over a goal, sum of these, bytes, steps
Option = tuple[int, int, int, Step]  # bytes in all, share beyond the taker's ceiling, less relief


@dataclass(frozen=True, slots=True, kw_only=True)
class Relief:
    """What was found."""

    steps: list[Step]
    fair: Fraction  # dominant share
    lists: MovableLists
    goal: ResourceGoal
    fixed: list[Amounts]  # what SPUs hold for good
    is_cut: bool  # the search ended at its limit

    def shares(self, places: IdMatrix) -> ShareChange:
        """What comes of it, once the members of the lists are these."""
        goal = self.goal
        use = movable_use(self.lists.topics, places, goal.needs, goal.loads)
        after = [
            [held + moving for held, moving in zip(*pair, strict=True)]
            for pair in zip(self.fixed, use, strict=True)
        ]
        return ShareChange(
            before=largest_share(goal.loads.capacities, goal.loads.used),
            after=largest_share(goal.loads.capacities, after),
            fair=self.fair,
        )


def find_relief(lists: MovableLists, goal: ResourceGoal, *, demoted: Collection[int]) -> Relief:
    """Steps of few bytes that bring the SPUs into the band above the fair dominant share.

    `demoted`: positions of SPUs that take no lead. Any prefix of the steps keeps all rules.
    """
    loads = goal.loads
    use = movable_use(lists.topics, lists.places, goal.needs, loads)
    fixed = [
        [used - moving for used, moving in zip(*pair, strict=True)]
        for pair in zip(loads.used, use, strict=True)
    ]
    fair = fair_level(loads, fixed, lists, goal.needs)
    bound = fair * (100 + goal.band_percent) / 100
    state = ReliefState(loads, fixed, lists, goal.needs, bound=bound, demoted=demoted)
    search = _Search(state)
    search.relieve()
    search.improve()
    return Relief(
        steps=state.steps,
        fair=fair,
        lists=lists,
        goal=goal,
        fixed=fixed,
        is_cut=state.looks > LOOKS_MAX,
    )


class _Search:
    def __init__(self, state: ReliefState) -> None:
        self._state = state
        self._begin = 0  # the first step of what is looked for
        self._best_key: Key = (0, 0, 0, 0)
        self._best: list[Step] | None = None
        self._order: list[int] = []  # SPUs, the least share first
        self._covers: dict[object, list[Kind]] = {}
        self._sums_max = min(SUMS_EACH, SUMS_MAX // max(1, len(state.over())))
        self._in_rack: dict[int, list[int]] = {}  # of each rack where they stand in that order

    @property
    def _is_over(self) -> bool:
        """Whether not even first choices are looked at any more."""
        return self._state.looks > 2 * LOOKS_MAX

    def relieve(self) -> None:
        """Bring the SPUs under their goals, the one furthest beyond first, some together."""
        state, given_up = self._state, set[int]()
        while targets := [spu for spu in state.over() if spu not in given_up][:TOGETHER]:
            if self._is_over:
                return
            if self._relieve(targets) < STEPS_MAX:
                left = [spu for spu in targets if state.excess(spu)]
                for spu in left if len(targets) > 1 else ():
                    self._relieve([spu])
                given_up.update(left)

    def _relieve(self, targets: Sequence[int]) -> int:
        """Make the best steps found that relieve these; how many they are."""
        state = self._state
        self._begin = len(state.steps)
        self._look(targets, self._key(targets))
        for step in self._best or ():
            state.make(step)
        return len(self._best or ())

    def improve(self) -> None:
        """Take the steps of each SPU back, and choose again."""
        state, self._begin = self._state, 0
        near = {spu for step in state.steps for spu in (step.giver, step.taker)}
        for spu in sorted({*near, *state.over()}):
            for is_wide in (False, True):
                if state.looks > LOOKS_MAX:
                    return
                self._replace(spu, is_wide=is_wide)

    def _replace(self, spu: int, *, is_wide: bool) -> None:
        """Choose again the steps by which an SPU gives, or, if wide, takes as well."""
        state, before = self._state, list(self._state.steps)
        kept = [
            step for step in before if spu != step.giver and not (is_wide and spu == step.taker)
        ]
        if len(kept) == len(before):
            return
        key = self._key(range(state.spus))
        state.undo(0)
        self._make_fitting(kept)
        state.looks += len(before) * LOOKS_OF_STEP
        self._look(state.over(), key)
        state.undo(0)
        self._make_fitting(before if self._best is None else self._best)

    def _make_fitting(self, steps: Iterable[Step]) -> None:
        for step in steps:
            if self._state.fits(step):
                self._state.make(step)

    def _key(self, spus: Iterable[int]) -> Key:
        found = [self._state.excess(spu) for spu in spus]
        self._state.looks += len(found)
        return max(found, default=0), sum(found), self._state.size, len(self._state.steps)

    def _look(self, spus: Sequence[int], key: Key) -> None:
        """Look for steps that relieve these SPUs, better than `key`."""
        state = self._state
        self._order = sorted(range(state.spus), key=lambda spu: (state.share(spu), spu))
        self._in_rack = {}
        for rank, spu in enumerate(self._order):
            self._in_rack.setdefault(state.rack_of[spu], []).append(rank)
        self._best_key, self._best = key, None
        self._give_least(spus)
        self._choose(spus)

    def _give_least(self, spus: Sequence[int]) -> None:
        """Let each give the replicas of the fewest bytes that relieve it, if others have room."""
        state, begin = self._state, len(self._state.steps)
        for spu in spus:
            out_of_place: set[Kind] = set()
            while state.excess(spu) and len(out_of_place) < KINDS and not self._is_over:
                kinds = self._least_kinds(spu, out_of_place)
                first = len(state.steps)
                stuck = next((kind for kind in kinds if not self._give(spu, kind)), None)
                if stuck is None:
                    break
                state.undo(first)
                out_of_place.add(stuck)
        key = self._key(spus)
        if key < self._best_key:
            self._best_key, self._best = key, state.steps[self._begin :]
        state.undo(begin)

    def _least_kinds(self, spu: int, others: Collection[Kind]) -> list[Kind]:
        """Of what to give, the largest first; nothing of these others."""
        resource = self._state.rest(spu).resource
        over, portions = self._state.portions(spu, resource)
        portions = [each for each in portions if each[0] not in others]
        key = spu, resource, over, tuple(portions)
        if key not in self._covers:
            items = [item for _, item in portions]
            self._state.looks += len(items) * self._sums_max // LOOKS_OF_SUMS
            counts = least_cover(items, over, sums_max=self._sums_max) or [0] * len(items)
            found = [
                (-item.size, *kind)
                for (kind, item), count in zip(portions, counts, strict=True)
                for _ in range(count)
            ]
            self._covers[key] = [Kind(topic, is_leader) for _, topic, is_leader in sorted(found)]
        return self._covers[key]

    def _give(self, spu: int, kind: Kind) -> bool:
        """Let an SPU give such a replica to one that is not over its ceiling then."""
        for taker in self._takers(spu, kind):
            way = self._state.way(spu, taker, kind, is_lead=False)
            if way is not None and not way[0]:
                self._state.make(way[1])
                return True
        return False

    def _choose(self, spus: Sequence[int]) -> None:
        """Make the best step of the SPU furthest over its goal that can give, and so on."""
        state, begin, those = self._state, len(self._state.steps), {*spus}
        while True:
            over = sorted((-excess, spu) for spu in those if (excess := state.excess(spu)))
            key = self._key(those)
            if key < self._best_key:
                self._best_key, self._best = key, state.steps[self._begin :]
            if not over or len(state.steps) >= begin + STEPS_MAX or self._is_over:
                break
            rests = {spu: state.rest(spu) for _, spu in over}
            if self._is_no_better(sum(rest.size for rest in rests.values()), len(over)):
                break
            ways = (self._options(spu, rests) for _, spu in over)
            best = min(next((options for options in ways if options), []), default=None)
            if best is None or self._is_no_better(best[0], 1):
                break
            state.make(best[-1])
            those.add(best[-1].taker)
        state.undo(begin)

    def _is_no_better(self, size: int, steps: int) -> bool:
        """Whether at least so many bytes and steps more are not better than the best."""
        state = self._state
        return self._best_key <= (0, 0, state.size + size, len(state.steps) + steps)

    def _options(self, giver: int, rests: Mapping[int, Rest]) -> list[Option]:
        """The steps by which an SPU may give."""
        state = self._state
        others = sum(rest.size for spu, rest in rests.items() if spu != giver)
        options: list[Option] = []
        for size, less, kind, is_lead in state.offers(giver, rests[giver])[:KINDS]:
            count = 0
            for taker in state.leads_of(giver, kind) if is_lead else self._takers(giver, kind):
                way = state.way(giver, taker, kind, is_lead=is_lead)
                if way is None:
                    continue
                beyond, step = way
                if beyond and state.looks > LOOKS_MAX:
                    continue  # One may lead to the next for long.
                more = size + others
                if beyond:
                    begin = len(state.steps)
                    state.make(step)
                    more += state.rest(taker).size
                    state.undo(begin)
                    more -= rests[taker].size if taker in rests else 0
                options.append((more, beyond, less, step))
                count += 1
                if count == TAKERS:
                    break
        return options

    def _takers(self, giver: int, kind: Kind) -> Iterator[int]:
        """Who may take such a replica as far as racks go, the least share first."""
        racks = self._state.open_racks(giver, kind)
        ranks = merge(*[self._in_rack[rack] for rack in racks])
        return (self._order[rank] for rank in ranks if self._order[rank] != giver)
