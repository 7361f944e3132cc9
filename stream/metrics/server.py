"""Metrics and health over HTTP: `/metrics`, `/live` and `/ready`, to read and no more.

It asks nobody who he is, so it listens on the loopback unless a setting says otherwise, and tells
nothing that is secret: counts, names of clusters and topics.
"""

from __future__ import annotations

import errno
import json
import socket
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder
from spu_assigner.stream.config.setting_spec import SettingsError
from spu_assigner.stream.config.settings import Settings
from spu_assigner.stream.metrics.health import JobHealth, Verdict

PORTS_TRIED: Final = 16  # as many as Spark's UI tries
THREADS: Final = 2
CONNECTIONS_MAX: Final = 32
REQUEST_SIZE_MAX: Final = 16 * 1024  # bytes; of a scrape a few hundred
END_SECONDS: Final = 5.0

Start = Callable[[str, list[tuple[str, str]]], object]
_TEXT: Final = "text/plain; charset=utf-8"


Page = Callable[[Mapping[str, Any]], tuple[str, str, bytes]]  # gives status, type and body


def application(registry: CollectorRegistry, health: JobHealth) -> Callable[..., Iterable[bytes]]:
    """The WSGI application."""

    def metrics(environ: Mapping[str, Any]) -> tuple[str, str, bytes]:
        encode, kind = choose_encoder(environ.get("HTTP_ACCEPT", ""))
        return "200 OK", kind, encode(registry)

    def live(_environ: Mapping[str, Any]) -> tuple[str, str, bytes]:
        return _verdict(health.live())

    def ready(_environ: Mapping[str, Any]) -> tuple[str, str, bytes]:
        return _verdict(health.ready())

    pages: dict[str, Page] = {"/metrics": metrics, "/live": live, "/ready": ready}

    def answer(environ: Mapping[str, Any], start: Start) -> Iterable[bytes]:
        method, page = environ["REQUEST_METHOD"], pages.get(environ.get("PATH_INFO", ""))
        if page is None:
            status, kind = "404 Not Found", _TEXT
            body = f"there are {', '.join(pages)}\n".encode()
        elif method not in {"GET", "HEAD"}:
            status, kind, body = "405 Method Not Allowed", _TEXT, b"GET and HEAD are answered\n"
        else:
            status, kind, body = page(environ)
        headers = [
            ("Content-Type", kind),
            ("Content-Length", str(len(body))),
            ("Cache-Control", "no-store"),
            ("X-Content-Type-Options", "nosniff"),
        ]
        if status.startswith("405"):
            headers.append(("Allow", "GET, HEAD"))
        start(status, headers)
        return [b"" if method == "HEAD" else body]

    return answer


def _verdict(verdict: Verdict) -> tuple[str, str, bytes]:
    status = "200 OK" if verdict.ok else "503 Service Unavailable"
    return status, "application/json", json.dumps(verdict.body).encode() + b"\n"


class MetricsServer:
    """Serves until it is closed."""

    def __init__(self, listening: socket.socket, app: Callable[..., Iterable[bytes]]) -> None:
        from waitress.server import create_server

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
        from waitress import wasyncore

        # In the thread that waits for these sockets: it ends when there are none.
        self._server.trigger.pull_trigger(lambda: wasyncore.close_all(self._map))
        self._thread.join(END_SECONDS)
        self._server.task_dispatcher.shutdown(timeout=END_SECONDS)


def listen(settings: Settings) -> socket.socket | None:
    """A socket on the address that is set, or on the next free port; None: none is wanted.

    Raises:
        SettingsError: this machine has no such address, or the port may not be taken.
    """
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
                "(--metrics-host, --metrics-port; `off`: no metrics)",
            ) from reason
