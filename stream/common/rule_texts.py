"""Taints and constraints as people write them."""

from __future__ import annotations

from collections.abc import Iterator

from spu_assigner.core.base.constraints import Constraints, Taint


def taint_text(taint: Taint) -> str:
    """As kubectl writes it: `pool=payments:evict`."""
    name = f"{taint.key}={taint.value}" if taint.value else taint.key
    return f"{name}:{taint.effect}"


def rule_texts(constraints: Constraints) -> Iterator[str]:
    """Each rule, in the order in which the constraints have them."""
    for toleration in constraints.tolerations:
        value = "" if toleration.value is None else f"={toleration.value}"
        yield f"tolerates {toleration.key}{value}"
    yield from (f"requires {each}" for each in constraints.require)
    yield from (f"forbids {each}" for each in constraints.forbid)
    yield from (f"prefers {each.select} (weight {each.weight})" for each in constraints.prefer)
    for level in constraints.spread:
        limits = ("most", level.max), ("least", level.min)
        said = [f", at {word} {number}" for word, number in limits if number is not None]
        yield f"spread over {level.label}{''.join(said)}"
    yield from (f"apart from {each}" for each in constraints.apart_from)
    yield from (f"together with {each}" for each in constraints.together_with)
    yield from (f"led by {each}" for each in constraints.leaders)
