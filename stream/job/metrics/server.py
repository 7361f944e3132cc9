"""Metrics and health over HTTP: `/metrics`, `/live` and `/ready`, to read and no more.

It has no authentication, so it listens on the loopback unless a setting says otherwise, and there
it refuses other names than this machine's own. It shows nothing that is secret: counts, names of
clusters and topics.
"""

from __future__ import annotations

import errno
import socket
import threading
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

import msgspec
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder
from spu_assigner.stream.common.own_names import foreign_name
from spu_assigner.stream.job.metrics.health import JobHealth
from spu_assigner.stream.kafka.config.setting_spec import SettingsError
from spu_assigner.stream.kafka.config.settings import Settings
from waitress import wasyncore
from waitress.server import create_server

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

PORTS_TRIED: Final = 16  # as many as Spark's UI tries
THREADS: Final = 2
CONNECTIONS_MAX: Final = 32
REQUEST_SIZE_MAX: Final = 16 * 1024  # bytes; of a scrape a few hundred
END_SECONDS: Final = 5.0
_TEXT: Final = "text/plain; charset=utf-8"
_HEADERS: Final = {
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "Allow": "GET, HEAD",
}


def application(
    registry: CollectorRegistry, health: JobHealth, *, is_loopback: bool = True
) -> WSGIApplication:
    """The three pages; by no framework, which would be a third of what the job's Python holds."""
    verdicts = {"/live": health.live, "/ready": health.ready}

    def page(asked: WSGIEnvironment) -> tuple[HTTPStatus, str, bytes]:
        refusal = foreign_name(asked.get("HTTP_HOST", "")) if is_loopback else None
        if refusal is not None:
            return HTTPStatus.BAD_REQUEST, _TEXT, f"{refusal}\n".encode()
        if asked["REQUEST_METHOD"] not in ("GET", "HEAD"):
            return HTTPStatus.METHOD_NOT_ALLOWED, _TEXT, b"these pages are to be read\n"
        if (path := asked["PATH_INFO"]) == "/metrics":
            encode, kind = choose_encoder(asked.get("HTTP_ACCEPT", ""))
            return HTTPStatus.OK, kind, encode(registry)
        if path not in verdicts:
            return HTTPStatus.NOT_FOUND, _TEXT, b"there are /metrics, /live, /ready\n"
        verdict = verdicts[path]()
        status = HTTPStatus.SERVICE_UNAVAILABLE if verdict["reason"] else HTTPStatus.OK
        return status, "application/json", msgspec.json.encode(verdict)

    def answer(asked: WSGIEnvironment, start: StartResponse) -> list[bytes]:
        status, kind, body = page(asked)
        headers = {"Content-Type": kind, "Content-Length": str(len(body)), **_HEADERS}
        start(f"{status.value} {status.phrase}", [*headers.items()])
        return [] if asked["REQUEST_METHOD"] == "HEAD" else [body]

    return answer


class MetricsServer:
    """Serves until it is closed."""

    def __init__(self, listening: socket.socket, app: WSGIApplication) -> None:
        self._map: dict[int, Any] = {}  # its own: other servers of this process are not ours
        self._server: Any = create_server(
            app,
            map=self._map,
            sockets=[listening],
            threads=THREADS,
            ident=None,
            connection_limit=CONNECTIONS_MAX,
            channel_timeout=10,
            cleanup_interval=10,
            max_request_header_size=REQUEST_SIZE_MAX,
            max_request_body_size=REQUEST_SIZE_MAX,
        )
        host, port = listening.getsockname()[:2]
        self.url = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
        self._thread = threading.Thread(target=self._server.run, name="metrics", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop listening."""
        # In the thread that waits for these sockets: it ends when there are none. If something else
        # has woken it, it waits until the pipe by which it is woken is no longer written to.
        woken = threading.Event()
        self._server.trigger.pull_trigger(lambda: woken.wait() and wasyncore.close_all(self._map))
        woken.set()
        self._thread.join(END_SECONDS)
        self._server.task_dispatcher.shutdown(timeout=END_SECONDS)


def listen(settings: Settings) -> socket.socket | None:
    """A socket on the address that is set, or on the next free port; None: none is wanted."""
    if settings.metrics_port is None:
        return None
    host, first = settings.metrics_host, settings.metrics_port
    ports = [0] if first == 0 else [*range(first, min(first + PORTS_TRIED, 65_536)), 0]
    while True:
        port = ports.pop(0)
        try:
            family, _, _, _, address = socket.getaddrinfo(
                host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
            )[0]
            return socket.create_server(address, family=family)
        except OSError as reason:
            if reason.errno == errno.EADDRINUSE and ports:
                continue
            raise SettingsError(
                "the address for metrics",
                found=f"{host!r}, port {port}, which cannot be listened on "
                f"({reason.strerror or reason})",
                expected="an address of this machine and a port that you may take "
                "(SPU_ASSIGNER_METRICS_HOST, --metrics-port; `off`: no metrics)",
            ) from reason
