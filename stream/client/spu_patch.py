"""A join that says the rest of an SPU as announced last: `spu-label`, `spu-taint`, `--keep`."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import click
from spu_assigner.core.base.events import SpuJoined
from spu_assigner.stream.client.announced import (
    LABEL,
    AnnouncedOfCluster,
    Changes,
    Described,
    described_over,
    entries_of,
    entry_text,
    read_announced,
    refusal,
)
from spu_assigner.stream.client.sending import send_events
from spu_assigner.stream.common.printable import listed
from spu_assigner.stream.kafka.config.connection import Connection
from spu_assigner.stream.kafka.errors import ClientError


def with_kept(connection: Connection, given: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a join that describe its SPU, from what is known of it where they are empty."""
    before = read_announced(connection, given["cluster_id"]).by_spu().get(given["spu_id"])
    changes = entries_of(given["labels"], given["taints"])
    named = {name: given[name] for name in ("rack", "cores", "capacity", "resources")}
    return described_over(None if before is None else before.described, changes, **named).fields()


def send_patch(
    connection: Connection,
    changes: Changes,
    *,
    cluster_id: str,
    spu_id: int,
    event_id: str,
    **asked: Any,  # of `send_events`
) -> int:
    """Send what differs, if anything does; the exit status. A join in between is reported."""
    if LABEL in changes:
        raise click.UsageError(f"label {LABEL} is set by `follow`; leave it out")
    known = read_announced(connection, cluster_id)
    seen, before = known.events_of(spu_id), _last(known, spu_id)
    after = described_over(before, changes)
    had, has = (entries_of(each.labels, each.taints).items() for each in (before, after))
    said = [f"- {entry_text(*each)}" for each in had if each not in has]
    said += [f"+ {entry_text(*each)}" for each in has if each not in had]
    text = ", ".join(said) or "it is so already, nothing is sent"
    click.echo(f"SPU {spu_id}: {text}", err=asked["output"] == "json")
    if not said:
        return 0
    event = SpuJoined(
        event_id=event_id,
        cluster_id=cluster_id,
        occurred_at=time.time_ns() // 1_000_000,
        spu_id=spu_id,
        **after.fields(),
    )
    if fault := refusal(event):
        raise ClientError(f"the job would ignore this: {fault}; nothing was sent")
    status = send_events([("the event", event)], connection=connection, **asked)
    now_seen = read_announced(connection, cluster_id).events_of(spu_id)
    until = now_seen.index(event_id) if event_id in now_seen else 0
    if between := [each for each in now_seen[:until] if each not in seen]:
        raise ClientError(
            f"event {listed(between)} came in between and is undone by this one, which says all "
            f"else of SPU {spu_id} as it was before; send again what that changed"
        )
    return status


def _last(known: AnnouncedOfCluster, spu_id: int) -> Described:
    """What was announced last of an SPU that is online: a join brings back any other."""
    last = known.by_spu().get(spu_id)
    if last is not None and last.described is not None and last.online:
        return last.described
    fault = "was not announced: check --cluster, or let it join"
    if last is not None:
        fault = "is offline: repeat this when it has joined again"
        if last.is_decommissioned:
            fault = "is decommissioned: `produce spu-joined --keep` ends that"
    raise ClientError(f"SPU {spu_id} of cluster {known.cluster_id!r} {fault}; nothing was sent")
