"""Undoing a drain: the SPU joins again, and gets back the replicas and leads that it had.

Rules: a partition gets its list of before if its list, in its map and in Kafka, is still the one
that the drain made; others are named and left alone. Maps lead: a mapped topic is adopted with its
lists of before, then moved; what has no map is only moved. What is done already is seen to be done,
so a run that was killed is repeated; the record of the drain goes once all lists are as before.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import click
from spu_assigner.core.base.events import SpuJoined, TopicAdopted
from spu_assigner.schemas.messages.wire import MovedPartition
from spu_assigner.stream.clusters.drain.draining import Draining
from spu_assigner.stream.clusters.drain.job_wait import DrainError, JobWait, answers_to
from spu_assigner.stream.clusters.drain.preview import preview_lines
from spu_assigner.stream.clusters.moves.reassigning import PartitionShape, Reassigner
from spu_assigner.stream.clusters.moves.runner import require_ready
from spu_assigner.stream.clusters.moves.status import new_move, place_of
from spu_assigner.stream.clusters.plan.model import UNDO_MARK, Rows, Wanted
from spu_assigner.stream.clusters.plan.sources import plan_now
from spu_assigner.stream.common.printable import counted, printable
from spu_assigner.stream.kafka.log_dirs import Partition

GONE: Final = "its topic was deleted, or made again, since the drain"
CHANGED: Final = "its list was changed since the drain"
SHORT: Final = "another list of its topic waits for a replica, and would wait no more"


class UndoPlan(NamedTuple):
    """What gives a broker back what a drain took."""

    maps: dict[str, Rows]  # of mapped topics whose lists are to change
    moves: list[MovedPartition]
    left: list[str]  # a line for each partition that is left alone


def undo_plan(
    taken: Sequence[MovedPartition],
    broker: int,
    maps: Mapping[str, Wanted],
    shapes: Mapping[Partition, PartitionShape],
) -> UndoPlan:
    """What is between the lists of before and those of now.

    A list that the drain left short may be filled since, one that it did not note at a kill be any
    that has the others. A mapped list need not have been as mapped. While a partition is moved, and
    until a broker knows that this has ended, it has both lists as one.
    """
    plan, places = UndoPlan({}, [], []), {place_of(each) for each in taken}
    for each in taken:
        at, topic, number, before = place_of(each), each.topic, each.partition, each.before
        shape, wanted = shapes.get(at), maps.get(topic, Wanted(replicas=None))
        rows = plan.maps.get(topic, wanted.replicas)
        row = before if rows is None else dict(enumerate(rows)).get(number, ())
        old, new, held = {*before}, {*each.after}, {*(before if shape is None else shape.replicas)}
        is_open = len(new) < len(old) and {*row} >= old - {broker}
        is_own = held in (old, new, old | new) or (rows is not None and broker in held)
        why = None
        if each.topic_id and (shape is None or shape.topic_id != each.topic_id):
            why = GONE
        elif not (is_own and (is_open or row in (before, each.after))):
            why = CHANGED
        elif any((topic, short) not in places for short in wanted.short):
            why = SHORT
        if why is not None:
            plan.left.append(f"{printable(topic)}-{number}: {why}")
            continue
        if rows is not None and row != before:
            plan.maps[topic] = (*rows[:number], before, *rows[number + 1 :])
        if shape is not None and shape.replicas != before:
            plan.moves.append(new_move(at, shape.topic_id, shape.replicas, before))
    return plan


class Undoing(Draining):
    """One drain that is to be undone."""

    def _preview(self, kafka: Reassigner) -> Iterator[str]:
        plan, request = self._plan(kafka), self._request
        if not self._announced().online:
            yield f"joins    SPU {self._broker}, as it was announced last"
        with request.target() as target:
            shown = (kafka, target, plan.moves, *plan_now(request, target))
            yield from preview_lines(*shown, request=request, options=self._options)
        yield from (f"left     {line}" for line in plan.left)

    def _plan(self, kafka: Reassigner) -> UndoPlan:
        """What is to be done now."""
        broker, cluster = self._broker, self._request.cluster_id
        taken = self._ledger().drained(broker)
        if taken is None:
            raise DrainError(
                f"no drain of broker {broker} is recorded for cluster {cluster!r}: there was none, "
                "it was undone, or an earlier release did it; let the SPU join (`spu-assigner "
                f"produce spu-joined --cluster {cluster} --spu-id {broker} --keep`), then "
                "`spu-assigner rebalance` gives it replicas"
            )
        taken.sort(key=place_of)
        plan = undo_plan(taken, broker, self._maps().topics, kafka.shapes())
        if plan.moves and broker not in kafka.brokers():
            raise DrainError(f"broker {broker} is not alive; start it, and run this again")
        return plan

    def _change_maps(self, kafka: Reassigner, wait: JobWait) -> None:
        """Have the job take the SPU and the lists of before."""
        broker, plan, maps = self._broker, self._plan(kafka), self._maps().topics
        at = [place_of(each) for each in plan.moves]
        require_ready(self._request.ledger_connection(), self._options, at)
        known = self._announced()
        of: dict[str, Any] = {"cluster_id": self._request.cluster_id}
        events: list[SpuJoined | TopicAdopted] = []
        if not known.online:
            if known.described is None:
                raise DrainError(
                    f"what SPU {broker} was like is not known any more; let it join "
                    "(`spu-assigner produce spu-joined`), and run this again"
                )
            fields = of | {"spu_id": broker} | known.described.fields()
            events.append(SpuJoined(event_id=f"{UNDO_MARK}/{uuid.uuid4()}", **fields))
        for topic, rows in plan.maps.items():
            given = of | {"topic": topic, "replicas": rows, "pinned": maps[topic].is_pinned}
            events.append(TopicAdopted(event_id=f"{UNDO_MARK}/{uuid.uuid4()}", **given))
        rejected = answers_to(self._request, events, wait).rejected
        for event in (each for each in events if each.event_id in rejected):
            if isinstance(event, SpuJoined):
                why = rejected[event.event_id]
                raise DrainError(f"SPU {broker} does not join: {why}; fix that, run this again")
            click.echo(f"left     {event.topic}: {rejected[event.event_id]}", err=True)
        count = counted(len(plan.maps) - len(rejected), "topic")
        click.echo(f"mapped   SPU {broker} as it was announced last, {count} as before the drain")

    def _planned(self, kafka: Reassigner) -> tuple[list[MovedPartition], list[str]]:
        plan = self._plan(kafka)
        for line in plan.left:
            click.echo(f"left     {line}", err=True)
        lines = [f"{name}: its map is not as before; run this again" for name in plan.maps]
        return [each for each in plan.moves if each.topic not in plan.maps], lines

    def _held(self, kafka: Reassigner) -> list[str]:
        count = counted(len(moves := self._plan(kafka).moves), "list")
        return [f"Kafka does not show {count} as before yet; run this again"] if moves else []

    def _done(self, kafka: Reassigner) -> str:
        but = f" but {counted(left, 'list')}" if (left := len(self._plan(kafka).left)) else ""
        self._ledger().record_drained(self._broker, None)
        return f"undone   Kafka shows all that broker {self._broker} gave away as before{but}"
