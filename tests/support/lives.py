"""Random lives of a cluster as Hypothesis strategies: events as the contract's JSON objects."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

SPU_IDS = st.integers(0, 7)
RACKS = st.sampled_from([None, "a", "b", "c"])
TOPICS = st.sampled_from([f"t{number}" for number in range(8)])


def _join(draw: st.DrawFn, *, racked: bool | None) -> dict[str, Any]:
    rack = {None: RACKS, True: st.sampled_from(["a", "b", "c"]), False: st.none()}[racked]
    return {
        "type": "spu_joined",
        "spu_id": draw(SPU_IDS),
        "rack": draw(rack),
        "cores": draw(st.integers(1, 3)),
        "capacity": draw(st.one_of(st.integers(0, 12), st.none())),
    }


def _create(draw: st.DrawFn) -> dict[str, Any]:
    policy = draw(st.sampled_from(["fluvio", "kafka", "redpanda", "manual", None]))
    event: dict[str, Any] = {
        "type": "topic_create",
        "topic": draw(TOPICS),
        "policy": policy,
        "validate_only": draw(st.integers(0, 9)) == 0,
    }
    if policy == "manual":
        width = draw(st.integers(1, 3))
        rows = draw(
            st.lists(st.lists(SPU_IDS, min_size=width, max_size=width, unique=True), max_size=4)
        )
        event["replicas"] = [{"id": number, "replicas": row} for number, row in enumerate(rows)]
        return event
    event["partitions"] = draw(st.integers(0, 12))
    event["replication_factor"] = draw(st.integers(0, 4))
    event["ignore_rack"] = draw(st.integers(0, 4)) == 0
    if policy in ("fluvio", "kafka") and draw(st.integers(0, 2)) == 0:
        event["start_index"] = draw(st.integers(0, 20))
        if policy == "kafka" and draw(st.booleans()):
            event["shift"] = draw(st.integers(0, 20))
    return event


@st.composite
def lives(draw: st.DrawFn, *, length_max: int = 40) -> list[dict[str, Any]]:
    """Up to `length_max` events of cluster c1, some of them repeated."""
    racked = draw(st.sampled_from([None, True, False, True, False]))
    events: list[dict[str, Any]] = []
    for number in range(draw(st.integers(1, length_max))):
        kind = draw(st.sampled_from("jjjlccccccccddr" if number > 3 else "jjjjc"))
        if kind == "r":
            events.append(dict(draw(st.sampled_from(events))))
            continue
        if kind == "j":
            event = _join(draw, racked=racked)
        elif kind == "l":
            event = {"type": "spu_left", "spu_id": draw(SPU_IDS), "mode": "offline"}
        elif kind == "c":
            event = _create(draw)
        else:
            event = {"type": "topic_delete", "topic": draw(TOPICS)}
        events.append({**event, "event_id": f"e{number}", "cluster_id": "c1"})
    return events
