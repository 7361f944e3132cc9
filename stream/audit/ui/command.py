"""`spu-assigner ui`: the page, served as long as the command runs."""

from __future__ import annotations

import signal
import socket
from typing import Final, NoReturn

import click
from spu_assigner.core.base.errors import AssignerError
from spu_assigner.stream.common.daemon_threads import DaemonThread
from spu_assigner.stream.common.own_names import is_loopback
from spu_assigner.stream.kafka.config.command_options import broker_options, with_target
from spu_assigner.stream.kafka.config.connection import Connection

PORT: Final = 8080
THREADS: Final = 4  # pages made at once; reading is one thread more
BACKLOG: Final = 64


class AddressError(AssignerError):
    """Nothing can listen there."""


@click.command()
@click.option(
    "--host",
    default="127.0.0.1",
    show_default=True,
    metavar="ADDRESS",
    help="Where to listen; the page has no password, and by default only this machine reaches it.",
)
@click.option(
    "--port",
    type=click.IntRange(0, 65_535),
    default=PORT,
    show_default=True,
    help="0: any that is free.",
)
@broker_options
@with_target
def ui(
    *, host: str, port: int, connection: Connection, target_connection: Connection | None
) -> NoReturn:
    """Show clusters, rings, loads, topics and their maps in a browser, as they are now.

    Reads what the job publishes, with a consumer's rights; changes nothing. The page follows what
    comes by itself. With SPU_ASSIGNER_TARGET_BOOTSTRAP_SERVERS, it shows the moves of that Kafka
    cluster. Ctrl-C ends it.
    """
    import waitress
    from spu_assigner.stream.audit.ui.app import make_app
    from spu_assigner.stream.audit.ui.live import Live

    moved = connection.to_target(target_connection)
    with _listening(host, port) as listener, Live(connection, moved=moved) as live:
        is_local = is_loopback(listener)
        if not is_local:
            click.echo(
                f"warning: everybody who reaches {host} may read the page: it has no password",
                err=True,
            )
        bound, number = listener.getsockname()[:2]
        shown = f"[{bound}]" if ":" in bound else bound
        click.echo(f"page  http://{shown}:{number}/  (Ctrl-C ends it)")
        server = waitress.create_server(
            make_app(live, is_loopback=is_local), sockets=[listener], threads=THREADS, ident=None
        )
        # In a thread: its loop would keep for itself the exception that a signal raises.
        DaemonThread(server.run, "pages").start()
        while True:
            signal.pause()


def _listening(host: str, port: int) -> socket.socket:
    try:
        family, _, _, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        return socket.create_server(address[:2], family=family, backlog=BACKLOG)
    except OSError as reason:
        why = (reason.strerror or str(reason)).partition(" (while")[0]  # Python adds the address.
        raise AddressError(
            f"cannot listen on {host}:{port}: {why}; name another with --host and --port"
        ) from reason
