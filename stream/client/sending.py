"""Sending events, and waiting for their answers: for `produce` and `apply --desired`."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import ExitStack
from typing import TYPE_CHECKING, Final

import click
from spu_assigner.core.base.events import Event
from spu_assigner.schemas.errors import EncodeError
from spu_assigner.stream.common.printable import listed
from spu_assigner.stream.kafka.config.connection import Connection

if TYPE_CHECKING:
    from spu_assigner.stream.client.pending_answers import Awaited
    from spu_assigner.stream.kafka.client import SentMessage
    from spu_assigner.stream.kafka.config.command_options import Form

WAIT_SECONDS: Final = 30.0  # a job that has just been started answers within it
NOT_ANSWERED: Final = 3  # exit status
IDS_NAMED: Final = 5  # of the unanswered, in the message


def send_events(
    named: Iterable[tuple[str, Event | None]],
    *,
    connection: Connection,
    output: Form,
    wait: float | None,
    program: str,
) -> int:
    """Send, and wait if asked to; returns the exit status.

    Args:
        named: each event with the name of where it stands; None for one that was reported as bad.
        wait: seconds for the answers, which are printed; None: they are not waited for.
        program: what messages on standard error begin with.
    """
    from spu_assigner.stream.client.pending_answers import ANSWER_TOPICS, Awaited
    from spu_assigner.stream.client.rendering import received_line, sent_line
    from spu_assigner.stream.kafka.client import Reader, Sender

    def complain(message: str) -> None:
        click.echo(f"{program}: {message}", err=True)

    failures = 0
    awaited = Awaited()

    def report_sent(sent: SentMessage) -> None:
        nonlocal failures
        if wait is not None:
            awaited.sent(sent)
        if sent.error is None:
            click.echo(sent_line(sent, output))
        else:
            failures += 1
            complain(f"event {sent.event_id} was not sent: {sent.error}")

    with ExitStack() as stack:
        sender = Sender(connection, report_sent)
        if wait is not None:  # Made before anything is sent, so that it sees every answer.
            reader = stack.enter_context(Reader(connection, ANSWER_TOPICS))
        for name, event in named:
            if event is None:
                failures += 1
                continue
            if wait is not None:
                awaited.expect(event)
            try:
                sender.send(event)
            except EncodeError as error:
                failures += 1
                awaited.close(event.event_id, str(error))
                complain(f"{name}: {error}")
        sender.flush()
        in_time = wait is None or awaited.wait(
            reader, seconds=wait, report=lambda found: click.echo(received_line(found, output))
        )
    for cluster_id, spu_ids in awaited.drained.items():
        complain(
            f"cluster {cluster_id}: replica maps no longer use SPU {listed(spu_ids, IDS_NAMED)}; "
            "in Kafka its replicas stay on the broker until they are moved: run `spu-assigner "
            f"drain {spu_ids[0]} --cluster {cluster_id}`, which moves all that the broker holds, "
            "Kafka's own topics included, and switch the broker off when it ends with 0"
        )
    if not in_time:
        complain(_not_answered(awaited, wait or 0, connection))
        return NOT_ANSWERED
    return 1 if failures or awaited.rejected else 0


def _not_answered(awaited: Awaited, seconds: float, connection: Connection) -> str:
    from spu_assigner.stream.kafka.open_transactions import why_unanswered

    named = listed(awaited.unanswered or awaited.waiting, IDS_NAMED)
    if not awaited.unanswered:
        return f"still waiting for SPUs or slots after {seconds:g} s: {named}; they stay in line"
    return (
        f"not answered within {seconds:g} s: {named}; {why_unanswered(connection)} "
        "The job answers what was sent also when it starts later. An event whose id was used "
        "before is not answered"
    )
