"""Decisions in words, and as JSON for programs.

A line of JSON says how one list was made by one revision: the fields of a `PlacementDecision`, of
its step, and `text`. What does not apply is null or empty; what cannot be known is a sentence in
`unknown`. `shares` are those "then", before the decision, or "now", as `shares_of` says.
"""

from __future__ import annotations

import json
from typing import Final

import msgspec
from spu_assigner.core.base.records import Mode, Move, Order, ReplicaMap
from spu_assigner.core.explain.decisions import BY_SHARES, CHANGES
from spu_assigner.core.explain.placement_decision import (
    Explanation,
    Load,
    PlacementDecision,
    PlacementStep,
    Taken,
    Why,
)
from spu_assigner.core.policies.cursor import RULES_OF
from spu_assigner.stream.common.printable import listed, printable

NAMED_MAX: Final = 16  # SPUs in one sentence; JSON of those not in the ring has them all

MODE_NAMES: Final = {
    **{
        mode: f"{policy} {how} racks"
        for policy, modes in RULES_OF.items()
        for mode, how in zip(modes, ("without", "over"), strict=False)
    },
    **{modes[0]: f"{policy}'s {modes[0]}" for policy, modes in RULES_OF.items() if len(modes) == 1},
    Mode.LISTS: "by hand, as the request named it",
    Mode.BALANCED: "balanced: racks first, then shares of capacity, then leaders",
    Mode.BALANCED_ROUNDS: "balanced: SPUs alike, each gets one replica a round, and leads in turn",
    Mode.REPAIR: "repair of what a decommission took away",
    Mode.REBALANCE: "rebalance",
    Mode.ADOPTED: "adopted, as it was found in Kafka",
    Mode.REPLICATION: "another replication factor",
    Mode.DEMOTION: "demotion of an SPU, or its end: SPUs of the list change places",
    Mode.STRIPED: "kraft: racks in turn, from drawn places, as Kafka 4",
    Mode.DEMAND: "another demand: the lists stay as they were",
    Mode.CONSTRAINED: "balanced over the SPUs that the constraints permit",
    Mode.CONSTRAINTS: "other constraints: the lists stay as they were",
}
ORDER_NAMES: Final = {order: order.value for order in Order} | {
    Order.ID: "by id",
    Order.DIAGONAL: "along Fluvio's diagonals over racks",
    Order.ALTERNATION: "alternating over racks",
    Order.REGISTRATION: "by registration",
}
_WHYS: Final = {why: why.value for why in Why} | {
    Why.FILLED: "saturated by an earlier replica of the same request",
    Why.SAME_RACK: "same rack",
    Why.IN_LIST: "in the list already",
}


def explanation_text(explanation: Explanation) -> str:
    """One partition in words, several lines."""
    lines = [
        f"{explanation.cluster_id}/{explanation.topic} partition {explanation.partition}: "
        f"{list(explanation.replicas)}, policy {explanation.policy}"
    ]
    if not explanation.is_whole:
        lines.append("  the revision that placed it first is no longer retained")
    for decision in explanation.decisions:
        cause = printable(decision.cause)
        lines.append(
            f"  revision {decision.revision}, caused by {cause}: {list(decision.replicas)}"
        )
        lines += [f"    {line}" for line in decision_lines(decision)]
    return "\n".join(lines)


def decision_lines(decision: PlacementDecision) -> list[str]:
    """One decision in words."""
    reason, step = decision.reason, decision.step
    lines = [MODE_NAMES[reason.mode]]
    if step is not None and step.order is not None:
        lines += _placed(decision, step, step.order)
    elif step is not None:
        lines += _scored_or_drawn(decision, step)
    elif reason.mode in CHANGES:
        lines += _changed(decision)
    elif reason.mode in BY_SHARES:
        lines += _balanced(decision)
    elif reason.start_index is not None:
        lines.append(
            f"placed from index {reason.start_index} on, on a ring of {decision.ring_size}"
        )
    for fate in Why:
        if names := [each.spu_id for each in decision.absent if each.why is fate]:
            lines.append(f"not in the ring: SPU {listed(names, NAMED_MAX)}, {_WHYS[fate]}")
    lines += [f"rule {rule}" for rule in decision.rules]
    if decision.recomputed:
        lines.append("repeated for this answer: the same comes out")
    return lines + [f"not known: {each}" for each in decision.unknown]


def _placed(decision: PlacementDecision, step: PlacementStep, order: Order) -> list[str]:
    is_named = decision.reason.is_named
    index = "index of the request's own start" if is_named else "chain index"
    parts = [f"cycle {step.cycle}", f"position {step.position}"]
    parts += [] if step.gap is None else [f"gap {step.gap}"]
    parts += [] if step.shift is None else [f"shift {step.shift}"]
    size = step.ring_size
    lines = [f"ring of {size} {ORDER_NAMES[order]}, {index} {step.index}: {', '.join(parts)}"]
    passed = [each.spu_id for each in decision.replica_steps[0].passed if each.why is Why.DEMOTED]
    swap = decision.replicas.index(passed[0]) if passed else 0
    for at, taken in enumerate(decision.replica_steps):
        number = {0: swap, swap: 0}.get(at, at)  # in the list as the rule places it
        how = ""
        if number and step.gap is not None:
            how = f" = ({step.position} + {number} + gap {step.gap}) % {size}"
        elif number and order is Order.DIAGONAL:
            how = f" = ({step.position} + {number}) % {size}"
        elif number and order is Order.ID and step.shift is not None:
            turn = f"(shift {step.shift} + {number - 1}) % {max(size - 1, 1)}"
            how = f" = ({step.position} + 1 + {turn}) % {size}"
        lines.append(_replica(at, taken, how))
    return lines


def _scored_or_drawn(decision: PlacementDecision, step: PlacementStep) -> list[str]:
    how = f"; what is drawn follows from cluster, topic and chain index {step.index}"
    if step.index is None:
        how = ", the best scores of capacity and hash"
    lines = [f"ring of {step.ring_size}{how}"]
    for number, taken in enumerate(decision.replica_steps):
        score = "" if taken.score is None else f" by score {taken.score:g}"
        lines.append(_replica(number, taken, score))
    return lines


def _replica(number: int, taken: Taken, how: str = "") -> str:
    role = "leader  " if number == 0 else "follower"
    parts = [] if taken.position is None else [f"position {taken.position}{how}"]
    parts += [] if taken.rack is None else [f"rack {printable(taken.rack) or 'none'}"]
    parts += [] if taken.core is None else [f"core {taken.core}"]
    parts += ["offline"] if taken.is_offline else []
    line = f"{role} SPU {taken.spu_id}" + (f": {', '.join(parts)}" if parts else "")
    passed = [
        f"SPU {each.spu_id} ({_WHYS[each.why]}"
        + (")" if each.beside is None else f" as {each.beside})")
        for each in taken.passed
    ]
    return line + (f", passed over {listed(passed, NAMED_MAX)}" if passed else "")


def _balanced(decision: PlacementDecision) -> list[str]:
    lines = [
        f"ring of {decision.ring_size}, chain index of the step {decision.reason.start_index}: "
        "it decides between equals"
    ]
    loads = {load.spu_id: load for load in decision.loads}
    for number, taken in enumerate(decision.replica_steps):
        load = loads.get(taken.spu_id)
        share = "" if load is None else f", {_share(load, decision)}{_share_with(load, decision)}"
        lines.append(_replica(number, taken) + share)
    return lines


def _changed(decision: PlacementDecision) -> list[str]:
    before, leader = decision.before, decision.replicas[0]
    lines = [] if before is None else [f"before: {list(before)}"]
    lines += [_move(decision, move) for move in decision.moves]
    at_rest = "" if decision.moves else ": no data moves"
    if before is not None and before[0] != leader:
        lines.append(f"SPU {leader} leads now instead of SPU {before[0]}{at_rest}")
    elif at_rest:
        lines.append(f"the same SPUs in another order{at_rest}")
    return lines


def _move(decision: PlacementDecision, move: Move) -> str:
    gone, taken = move.gone, move.taken
    leaves = "is decommissioned" if decision.reason.mode is Mode.REPAIR else "goes"
    parts = [] if gone is None else [f"SPU {gone} {leaves}"]
    if taken is None:
        return f"{parts[0]}, no SPU comes: the list is shorter"
    loads = [load for each in (gone, taken) for load in decision.loads if load.spu_id == each]
    shares = ", ".join(f"SPU {load.spu_id} {_share(load, decision)}" for load in loads)
    what = ", ".join([*parts, f"SPU {taken} comes"])
    return f"{what}: {shares}" if shares else what


def _share(load: Load, decision: PlacementDecision) -> str:
    when = "held" if decision.loads_are_of_then else "now holds"
    text = f"{when} {load.count} of {load.capacity}"
    if load.amounts:
        share, amount = load.dominant()
        text += f", dominant share {share:.1%}"
        if amount is not None:
            text += f" ({amount.resource} {amount.used:,} of {amount.capacity:,})"
    return text


def _share_with(load: Load, decision: PlacementDecision) -> str:
    """What a replica of a topic with a demand makes of the dominant share."""
    if not load.amounts or not decision.loads_are_of_then:
        return ""
    share, amount = load.dominant(replicas=1)
    if amount is None:
        return f", with this replica {share:.1%} of slots"
    used = f"{amount.used:,} + {amount.needed:,} of {amount.capacity:,}"
    return f", with this replica {share:.1%} ({amount.resource} {used})"


def decision_json(of: Explanation | ReplicaMap, partition: int, decision: PlacementDecision) -> str:
    """One decision for one partition, as a line of JSON."""
    fields = msgspec.to_builtins(decision)
    step = fields["step"] or {}
    line = {
        "type": "explanation",
        "cluster_id": of.cluster_id,
        "topic": of.topic,
        "partition": partition,
        "revision": decision.revision,
        "cause": decision.cause,
        "policy": of.policy,
        "mode": decision.reason.mode,
        "replicas": decision.replicas,
        "replicas_before": decision.before,
        "text": "; ".join(decision_lines(decision)),
        **{name: step.get(name) for name in ("order", "cycle", "position", "gap", "shift")},
        "ring_size": step.get("ring_size", decision.ring_size),
        "chain_index": step.get("index"),
        "is_named": decision.reason.is_named,
        "steps": fields["replica_steps"],
        "moves": fields["moves"],
        "not_in_ring": fields["absent"],
        "shares": fields["loads"],
        "shares_of": ("then" if decision.loads_are_of_then else "now") if decision.loads else None,
        **{name: fields[name] for name in ("rules", "recomputed", "unknown")},
    }
    return json.dumps(line, separators=(",", ":"))
