"""Metrics and health over HTTP: `/metrics`, `/live` and `/ready`, to read and no more.

It has no authentication, so it listens on the loopback unless a setting says otherwise, and there
it refuses other names than this machine's own. It shows nothing that is secret: counts, names of
clusters and topics.
"""

from __future__ import annotations

import errno
import socket
import threading
from typing import Any, Final

from flask import Flask, Response, request
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder
from spu_assigner.stream.common.own_names import foreign_name
from spu_assigner.stream.job.metrics.health import JobHealth, Verdict
from spu_assigner.stream.kafka.config.setting_spec import SettingsError
from spu_assigner.stream.kafka.config.settings import Settings
from waitress import wasyncore
from waitress.server import create_server

PORTS_TRIED: Final = 16  # as many as Spark's UI tries
THREADS: Final = 2
CONNECTIONS_MAX: Final = 32
REQUEST_SIZE_MAX: Final = 16 * 1024  # bytes; of a scrape a few hundred
END_SECONDS: Final = 5.0


def application(
    registry: CollectorRegistry, health: JobHealth, *, is_loopback: bool = True
) -> Flask:
    """The WSGI application."""
    app = Flask(__name__, static_folder=None)
    if is_loopback:
        app.before_request(_refuse_foreign_names)
    app.json.sort_keys = False  # type: ignore[attr-defined]  # of Flask's own provider

    @app.get("/metrics")
    def metrics() -> Response:
        encode, kind = choose_encoder(request.headers.get("Accept", ""))
        return Response(encode(registry), content_type=kind)

    app.add_url_rule("/live", "live", lambda: _answer(health.live()))
    app.add_url_rule("/ready", "ready", lambda: _answer(health.ready()))

    @app.errorhandler(404)
    def missing(_: Exception) -> Response:
        return Response("there are /metrics, /live, /ready\n", 404, mimetype="text/plain")

    @app.after_request
    def with_headers(response: Response) -> Response:
        response.headers.update({"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"})
        return response

    return app


def _refuse_foreign_names() -> Response | None:
    refusal = foreign_name(request.host)
    return None if refusal is None else Response(f"{refusal}\n", 400, mimetype="text/plain")


def _answer(verdict: Verdict) -> tuple[Verdict, int]:
    return verdict, 200 if verdict["reason"] is None else 503


class MetricsServer:
    """Serves until it is closed."""

    def __init__(self, listening: socket.socket, app: Flask) -> None:
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
        # In the thread that waits for these sockets: it ends when there are none.
        self._server.trigger.pull_trigger(lambda: wasyncore.close_all(self._map))
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
