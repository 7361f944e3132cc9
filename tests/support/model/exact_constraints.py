"""A request under constraints as a mixed-integer linear programme, solved by HiGHS.

One binary variable for each list and SPU, one for who leads; the score is made least level by
level, over all lists together.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import highspy
from support.events.constrained_cases import ConstrainedCase
from support.model.constrained_oracle import Oracle


def least_scores(case: ConstrainedCase) -> tuple[int, ...] | None:
    """The least that the scores of all lists come to together; None: there are no such lists."""
    return _Placement(case).least_scores()


class _Placement:
    def __init__(self, case: ConstrainedCase) -> None:
        self._case = case
        self._facts = facts = Oracle(case)
        self._highs = highs = highspy.Highs()
        highs.silent()
        self._able = [i for i in facts.spu_ids if facts.may_hold(i)]
        self._held = [{i: highs.addBinary() for i in self._able} for _ in range(case.partitions)]
        leaders = [i for i in self._able if facts.may_lead(i)]
        self._leads = [{i: highs.addBinary() for i in leaders} for _ in range(case.partitions)]
        for held, leads in zip(self._held, self._leads, strict=True):
            self._hold(held.values(), case.replicas, case.replicas)
            self._hold(leads.values(), 1, 1)
            for spu_id, variable in leads.items():
                highs.addConstr(variable <= held[spu_id])
        for spu_id in self._able:
            self._hold([held[spu_id] for held in self._held], 0, facts.free(spu_id))

    def least_scores(self) -> tuple[int, ...] | None:
        if len(self._able) < self._case.replicas or not self._leads[0]:
            return None
        found: list[int] = []
        self._is_possible = True  # No value without any SPU that has room is demanded.
        for cost in (*self._pairs(), self._weights(), self._ranks()):
            objective = highspy.highs_linear_expression()
            for weight, variable in cost:
                objective += weight * variable
            if cost:
                self._highs.minimize(objective)
            else:
                self._highs.run()
            is_solved = self._highs.getModelStatus() == highspy.HighsModelStatus.kOptimal
            if not self._is_possible or not is_solved:
                return None
            found.append(round(self._highs.getObjectiveValue()) if cost else 0)
            if cost:
                self._highs.addConstr(objective <= found[-1] + 0.001)
        return tuple(found)

    def _pairs(self) -> list[list[tuple[int, Any]]]:
        """By level: the k-th replica in a group makes k - 1 pairs."""
        costs = []
        for label, most in self._facts.levels():
            cost: list[tuple[int, Any]] = []
            values = {i: self._facts.value(i, label) for i in self._able}
            for held in self._held:
                least, demanded = self._facts.least().get(label, 0), self._facts.demanded[label]
                self._is_possible &= not least or demanded <= set(values.values())
                for value in sorted(set(values.values())):
                    members = [held[i] for i in self._able if values[i] == value]
                    few = least if value in demanded else 0
                    self._hold(members, few, len(members) if most is None else most)
                    layers = [self._highs.addVariable(0, 1) for _ in members]
                    total = highspy.highs_linear_expression()
                    for member in members:
                        total += member
                    for layer in layers:
                        total -= layer
                    self._highs.addConstr(total == 0)
                    cost += [(k, layer) for k, layer in enumerate(layers) if k]
            costs.append(cost)
        return costs

    def _weights(self) -> list[tuple[int, Any]]:
        return [
            (-weight, held[i])
            for held in self._held
            for i in self._able
            if (weight := self._facts.weight(i))
        ]

    def _ranks(self) -> list[tuple[int, Any]]:
        return [
            (rank, leads[i])
            for leads in self._leads
            for i in leads
            if (rank := self._facts.rank(i))
        ]

    def _hold(self, variables: Any, least: int, most: int) -> None:
        """Let so many of these be 1."""
        chosen: Sequence[Any] = list(variables)
        if not chosen:
            return
        total = highspy.highs_linear_expression()
        for variable in chosen:
            total += variable
        self._highs.addConstr(total >= least)
        self._highs.addConstr(total <= most)
