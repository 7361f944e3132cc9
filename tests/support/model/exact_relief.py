"""A rebalance by resources as a mixed-integer linear programme, solved by HiGHS.

Written from the rules alone: who is in which list, who leads it, what of each resource that takes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Final

import highspy

MOVE: Final = 0.001  # what a move weighs beside a byte
SECONDS_MAX: Final = 60.0


@dataclass(frozen=True, kw_only=True)
class Demand:
    follower: Mapping[str, int]
    leader: Mapping[str, int]

    @property
    def size(self) -> int:
        return self.follower.get("disk_bytes", 0)


@dataclass(frozen=True, kw_only=True)
class Weighted:
    racks: Sequence[int]  # of each SPU
    capacities: Sequence[Mapping[str, int]]  # of each SPU, slots too
    lists: Sequence[Sequence[int]]
    demands: Sequence[Demand]  # of each list

    @property
    def names(self) -> list[str]:
        return list(self.capacities[0])

    def used(self) -> list[Counter[str]]:
        used = [Counter[str]() for _ in self.racks]
        for row, demand in zip(self.lists, self.demands, strict=True):
            for place, spu in enumerate(row):
                used[spu].update(demand.follower if place else demand.leader)
        return used

    def largest(self) -> Fraction:
        """The largest dominant share."""
        return max(
            Fraction(used[name], has[name])
            for used, has in zip(self.used(), self.capacities, strict=True)
            for name in self.names
        )

    def largest_replica(self) -> Fraction:
        return max(
            Fraction(
                max(
                    max(each.follower.get(name, 0), each.leader.get(name, 0))
                    for each in self.demands
                ),
                max(has[name] for has in self.capacities),
            )
            for name in self.names
        )

    def moved(self, lists: Sequence[Sequence[int]]) -> int:
        pairs = zip(self.lists, lists, self.demands, strict=True)
        return sum(len({*new} - {*old}) * demand.size for old, new, demand in pairs)

    def least_level(self) -> Fraction:
        """The least that the largest dominant share can be, if replicas could be divided."""
        return Fraction(_Programme(self, is_whole=False).least_level()).limit_denominator(10**9)

    def least_bytes(self, bound: Fraction) -> int | None:
        """The fewest bytes to bring all shares down to a bound; None: that cannot be."""
        return _Programme(self, is_whole=True).least_bytes(bound)


class _Programme:
    def __init__(self, cluster: Weighted, *, is_whole: bool) -> None:
        self._cluster = cluster
        self._is_whole = is_whole
        self._highs = highspy.Highs()
        for option, value in (
            ("output_flag", False),
            ("time_limit", SECONDS_MAX),
            ("mip_rel_gap", 0.0),
            ("mip_abs_gap", 0.0),
        ):
            self._highs.setOptionValue(option, value)
        self._used: list[dict[str, Any]] = [{} for _ in cluster.racks]
        self._costs: list[tuple[Any, int]] = []
        for row, demand in zip(cluster.lists, cluster.demands, strict=True):
            self._add_list(row, demand)

    def _variable(self) -> Any:
        variable = self._highs.addVariable(lb=0, ub=1)
        if self._is_whole:
            self._highs.changeColIntegrality(variable.index, highspy.HighsVarType.kInteger)
        return variable

    def _add_list(self, row: Sequence[int], demand: Demand) -> None:
        spus = range(len(self._cluster.racks))
        holds = [self._variable() for _ in spus]
        self._highs.addConstr(sum(holds) == len(row))
        now = Counter(self._cluster.racks[spu] for spu in row)
        for rack in sorted(set(self._cluster.racks)):
            here = [holds[spu] for spu in spus if self._cluster.racks[spu] == rack]
            self._highs.addConstr(sum(here) <= max(1, now[rack]))
        leads = [self._variable() for _ in spus] if demand.leader != demand.follower else []
        if leads:
            self._highs.addConstr(sum(leads) == 1)
        for spu in spus:
            if spu not in row:
                self._costs.append((holds[spu], demand.size))
            if leads:
                self._highs.addConstr(leads[spu] <= holds[spu])
            for name in self._cluster.names:
                amount = demand.follower.get(name, 0)
                self._use(spu, name, amount, holds[spu])
                if leads:
                    self._use(spu, name, demand.leader.get(name, 0) - amount, leads[spu])

    def _use(self, spu: int, name: str, amount: int, variable: Any) -> None:
        if amount:
            self._used[spu][name] = self._used[spu].get(name, 0) + amount * variable

    def _solved(self) -> float | None:
        self._highs.run()
        status = self._highs.getModelStatus()
        if status == highspy.HighsModelStatus.kInfeasible:
            return None
        assert status == highspy.HighsModelStatus.kOptimal, status
        return float(self._highs.getInfo().objective_function_value)

    def least_level(self) -> float:
        level = self._highs.addVariable(lb=0, ub=highspy.kHighsInf, obj=1)
        for used, has in zip(self._used, self._cluster.capacities, strict=True):
            for name, amount in used.items():
                self._highs.addConstr(amount <= has[name] * level)
        solved = self._solved()
        assert solved is not None
        return solved

    def least_bytes(self, bound: Fraction) -> int | None:
        for used, has in zip(self._used, self._cluster.capacities, strict=True):
            for name, amount in used.items():
                self._highs.addConstr(amount <= min(has[name], int(has[name] * bound)))
        for variable, size in self._costs:
            self._highs.changeColCost(variable.index, size + MOVE)
        solved = self._solved()
        return None if solved is None else int(solved + 0.01)
