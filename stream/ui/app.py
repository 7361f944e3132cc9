"""The pages as a WSGI application: which address shows what.

Rules:
- It only reads: no other methods than GET and HEAD.
- Nothing comes from elsewhere, and nothing foreign is taken for markup: templates escape, control
  characters are shown as what they are, and the policy in the header allows our own two files.
- An address that makes no sense is a page that says so, with status 400 or 404.
"""

from __future__ import annotations

import threading
from datetime import UTC, datetime
from ipaddress import ip_address
from typing import Any, Final
from urllib.parse import urlsplit
from uuid import uuid4

from flask import Flask, Response, abort, jsonify, render_template, request, url_for
from markupsafe import Markup
from spu_assigner.core.base.errors import AssignerError
from spu_assigner.core.base.records import Order
from spu_assigner.stream.common.printable import printable
from spu_assigner.stream.inspect.plot import STYLE
from spu_assigner.stream.kafka.errors import ClientError
from spu_assigner.stream.kafka.outputs import ClusterUnknownError
from spu_assigner.stream.ui.known import ClusterDamagedError
from spu_assigner.stream.ui.live import Live
from spu_assigner.stream.ui.views import (
    NotFoundError,
    Reports,
    cluster_view,
    clusters_view,
    explain_view,
    sliced,
    topic_view,
    topics_view,
    waiting_view,
)
from werkzeug.exceptions import HTTPException

SEARCH_LENGTH_MAX: Final = 249  # of a topic's name
NUMBER_LENGTH_MAX: Final = 9
HEADERS: Final = {
    "Content-Security-Policy": "default-src 'none'; style-src 'self'; script-src 'self'; "
    "img-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'self'; "
    "frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


def make_app(live: Live, *, is_loopback: bool = True) -> Flask:
    """The application.

    Args:
        live: open as long as pages are asked for.
        is_loopback: only this machine may ask. Then other names than its own are refused, by which
            a foreign page in a browser here could reach it.
    """
    app = Flask(__name__)
    if is_loopback:
        app.before_request(_refuse_foreign_names)
    app.jinja_options = {"finalize": _printable, "trim_blocks": True, "lstrip_blocks": True}
    app.jinja_env.filters.update(number=_number, share=_share, moment=_moment)
    app.jinja_env.globals["link"] = _link
    _Pages(app, live)
    app.register_error_handler(Exception, _fault)
    app.after_request(_with_headers)
    return app


class _Pages:
    """The addresses."""

    def __init__(self, app: Flask, live: Live) -> None:
        self._live = live
        self._reports = Reports()
        self._explaining = threading.Lock()  # It reads the topics: one at a time.
        self._token = uuid4().hex[:8]  # A page of a process before is no page of this one.
        app.context_processor(self._common)
        for rule, view in (
            ("/", self.clusters),
            ("/clusters/<cluster_id>", self.cluster),
            ("/clusters/<cluster_id>/topics", self.topics),
            ("/clusters/<cluster_id>/topics/<topic>", self.topic),
            ("/clusters/<cluster_id>/topics/<topic>/explain", self.explain),
            ("/clusters/<cluster_id>/waiting", self.waiting),
            ("/dead-letters", self.dead_letters),
            ("/version", self.version),
            ("/plot.css", self.plot_style),
        ):
            app.add_url_rule(rule, view.__name__, view, methods=["GET"])

    def _common(self) -> dict[str, Any]:
        args = request.view_args or {}
        cluster_id = args.get("cluster_id")
        return {
            "health": self._live.health,
            "version": self._version(cluster_id),
            "cluster_id": cluster_id,
            "watch": _link("version", cluster_id=cluster_id),
            "servers": self._live.connection.bootstrap_servers,
            "prefix": self._live.connection.prefix,
        }

    def _version(self, cluster_id: str | None) -> str:
        health = self._live.health
        with self._live.known() as known:
            number = known.version if cluster_id is None else known.cluster_version(cluster_id)
        percent = 100 if health.is_loaded else 100 * health.read // max(health.total, 1)
        return f"{self._token}.{number}.{percent}.{int(health.trouble is not None)}"

    def version(self) -> Response:
        """What changes whenever the page would."""
        return jsonify({"version": self._version(_text("cluster_id") or None)})

    def plot_style(self) -> Response:
        return Response(f".plot{{{STYLE}}}", mimetype="text/css")

    def clusters(self) -> str:
        search, page = _text("q"), _page()
        with self._live.known() as known:
            rows = clusters_view(known, self._reports, search=search, page=page)
            foreign, letters = known.foreign, len(known.dead_letters)
        return render_template(
            "clusters.html", rows=rows, search=search, foreign=foreign, letters=letters
        )

    def cluster(self, cluster_id: str) -> str:
        named = _text("order")
        if named and named not in set(Order):
            abort(400, f"order is {named!r}; expected {', '.join(Order)}")
        with self._live.known() as known:
            self._require(cluster_id, known.cluster_ids)
            view = cluster_view(
                known,
                self._reports,
                cluster_id,
                order=Order(named) if named else None,
                page=_page(),
                rack=_page("racks"),
            )
        # Made of our numbers; what is foreign in it was escaped where it was drawn.
        plot = None if view.plot is None else Markup(view.plot)
        return render_template("cluster.html", view=view, plot=plot)

    def topics(self, cluster_id: str) -> str:
        search = _text("q")
        with self._live.known() as known:
            self._require(cluster_id, known.cluster_ids)
            rows = topics_view(known, cluster_id, search=search, page=_page())
            waiting = waiting_view(known, cluster_id, page=1)
        return render_template("topics.html", rows=rows, search=search, waiting=waiting)

    def topic(self, cluster_id: str, topic: str) -> str:
        with self._live.known() as known:
            self._require(cluster_id, known.cluster_ids)
            view = topic_view(known, cluster_id, topic, page=_page())
        return render_template("topic.html", view=view, topic=topic)

    def explain(self, cluster_id: str, topic: str) -> str:
        partition = _number_given("partition", least=0, default=0)
        with self._explaining:
            view = explain_view(self._live.connection, cluster_id, topic, partition)
        return render_template("explain.html", view=view, topic=topic)

    def waiting(self, cluster_id: str) -> str:
        with self._live.known() as known:
            self._require(cluster_id, known.cluster_ids)
            rows = waiting_view(known, cluster_id, page=_page())
        return render_template("waiting.html", rows=rows)

    def dead_letters(self) -> str:
        with self._live.known() as known:
            rows = sliced(list(reversed(known.dead_letters)), _page())
        return render_template("dead_letters.html", rows=rows)

    def _require(self, cluster_id: str, ids: list[str]) -> None:
        if cluster_id not in ids:
            raise NotFoundError(f"there is no cluster {cluster_id!r}")


def _refuse_foreign_names() -> None:
    name = urlsplit(f"//{request.host}").hostname or ""
    try:
        is_own = name == "localhost" or ip_address(name).is_loopback
    except ValueError:
        is_own = False
    if not is_own:
        abort(400, f"this page is not called {name[:250]!r}; expected localhost or 127.0.0.1")


def _text(name: str) -> str:
    value = request.args.get(name, "")
    if len(value) > SEARCH_LENGTH_MAX:
        abort(400, f"{name} has {len(value)} characters; expected at most {SEARCH_LENGTH_MAX}")
    return value


def _page(name: str = "page") -> int:
    return _number_given(name, least=1, default=1)


def _number_given(name: str, *, least: int, default: int) -> int:
    value = request.args.get(name, str(default))
    is_number = value.isascii() and value.isdigit() and len(value) <= NUMBER_LENGTH_MAX
    if not is_number or int(value) < least:
        abort(400, f"{name} is {value[:40]!r}; expected a number from {least} on")
    return int(value)


def _fault(reason: Exception) -> tuple[str, int]:
    """Any error as a page."""
    match reason:
        case HTTPException():
            status, message = reason.code or 500, reason.description or reason.name
        case NotFoundError() | ClusterUnknownError():
            status, message = 404, str(reason)
        case ClientError():
            status, message = 503, str(reason)
        case ClusterDamagedError() | AssignerError():
            status, message = 500, str(reason)
        case _:
            raise reason
    return render_template("error.html", status=status, message=message), status


def _with_headers(response: Response) -> Response:
    response.headers.update(HEADERS)
    return response


def _link(endpoint: str, **given: Any) -> str:
    """An address; what is None, empty or the first page is left out."""
    values = {
        name: value
        for name, value in given.items()
        if value not in (None, "") and (name not in ("page", "racks") or value != 1)
    }
    return url_for(endpoint, **values)


def _printable(value: Any) -> Any:
    """Foreign text without control characters; markup of our own as it is."""
    return printable(value) if isinstance(value, str) and not hasattr(value, "__html__") else value


def _number(value: float) -> str:
    return f"{value:,.0f}"


def _share(value: float | None) -> str:
    return "–" if value is None else f"{value:.1%}"


def _moment(time_ms: int) -> str:
    return datetime.fromtimestamp(time_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")
