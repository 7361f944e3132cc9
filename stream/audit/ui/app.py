"""The pages as a WSGI application: which address shows what.

Rules:
- It only reads: no other methods than GET and HEAD.
- Nothing comes from elsewhere, and nothing foreign is taken for markup: templates escape, control
  characters are shown as what they are, and the policy in the header allows our own two files.
- An address of what is not there is a page that says so, with status 404.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import cache, partial
from typing import Any, Final
from uuid import uuid4

from flask import Flask, Response, abort, g, jsonify, render_template, request, url_for
from spu_assigner.core.base.errors import AssignerError
from spu_assigner.core.base.records import Order
from spu_assigner.core.explain.decisions import explain, why_it_waits
from spu_assigner.core.state.cluster_state import ClusterState
from spu_assigner.stream.audit import cluster_report as reports
from spu_assigner.stream.audit.cluster_report import NotThereError
from spu_assigner.stream.audit.ui import views
from spu_assigner.stream.audit.ui.known import Known
from spu_assigner.stream.audit.ui.live import Live
from spu_assigner.stream.audit.ui.views import found, sliced
from spu_assigner.stream.client.explanation import ORDER_NAMES, decision_lines
from spu_assigner.stream.clusters.plan.sources import maps_of_state
from spu_assigner.stream.common.own_names import foreign_name
from spu_assigner.stream.common.printable import printable
from spu_assigner.stream.common.quantities import bytes_text, duration_text, now_ms
from spu_assigner.stream.common.rule_texts import rule_texts, taint_text
from spu_assigner.stream.kafka.errors import ClientError, ClusterUnknownError
from spu_assigner.stream.kafka.log_dirs import ReplicaSizes, replica_sizes
from spu_assigner.stream.kafka.moves_record import is_silent, move_of
from werkzeug.exceptions import HTTPException

_ORDER_NAMES: Final = {**ORDER_NAMES, Order.BALANCED: "balanced"}
SEARCH_LENGTH_MAX: Final = 249  # of a topic's name
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
    """The application, for an open `live`. With `is_loopback` only this machine may ask. Then other
    names than its own are refused, by which a foreign page in a browser here could reach it."""
    app = Flask(__name__)
    if is_loopback:
        app.before_request(_refuse_foreign_names)
    app.jinja_options = {"finalize": _shown, "trim_blocks": True, "lstrip_blocks": True}
    app.jinja_env.filters.update(
        number=lambda value: f"{value:,.0f}",
        share=lambda value: "–" if value is None else f"{value:.1%}",
        moment=lambda ms: f"{datetime.fromtimestamp(ms / 1000, UTC):%Y-%m-%d %H:%M:%S}",
        size=lambda value: bytes_text(int(value)),
        duration=duration_text,
        taint=taint_text,
        rules=rule_texts,
    )
    app.jinja_env.globals.update(link=_link, lines_of=decision_lines, order_names=_ORDER_NAMES)
    app.jinja_env.globals.update(views=views, page=_page)
    _Pages(app, live)
    app.register_error_handler(Exception, _fault)
    app.after_request(_with_headers)
    return app


class _Pages:
    """The addresses."""

    def __init__(self, app: Flask, live: Live) -> None:
        self._live = live
        self._token = uuid4().hex[:8]  # A page of a process before is no page of this one.
        app.before_request(self._note_version)
        app.context_processor(self._common)
        for rule, view in (
            ("/", self.clusters),
            ("/clusters/<cluster_id>", self.cluster),
            ("/clusters/<cluster_id>/spus/<int:spu_id>", self.spu),
            ("/clusters/<cluster_id>/topics", self.topics),
            ("/clusters/<cluster_id>/topics/<topic>", self.topic),
            ("/clusters/<cluster_id>/topics/<topic>/explain", self.explain),
            ("/moves", self.moves),
            ("/dead-letters", self.dead_letters),
            ("/version", self.version),
        ):
            app.add_url_rule(rule, view.__name__, view, methods=["GET"])

    def _note_version(self) -> None:
        """Before anything is read, so that a page with what came meanwhile is renewed once more."""
        g.version = self._version((request.view_args or {}).get("cluster_id"))

    def _common(self) -> dict[str, Any]:
        cluster_id = (request.view_args or {}).get("cluster_id")
        return {
            "trouble": self._live.trouble,
            "is_loaded": self._live.is_loaded,
            "last": self._last(),
            # None is noted where a request is refused before it is looked at.
            "version": g.get("version") or self._version(cluster_id),
            "cluster_id": None,
            **(request.view_args or {}),
            "watch": _link("version", cluster_id=cluster_id),
            "servers": self._live.connection.bootstrap_servers,
            "prefix": self._live.connection.prefix,
        }

    def _last(self) -> tuple[int, float] | None:
        """When the job wrote last (ms), and how many seconds ago that is; None: it is not known."""
        with self._live.known() as known:
            last_ms = known.last_ms
        return (last_ms, max(0, now_ms() - last_ms) / 1000) if last_ms else None

    def _version(self, cluster_id: str | None) -> str:
        """Of a cluster's pages; without a cluster, of all others."""
        with self._live.known() as known:
            if cluster_id is None:
                number = f"{known.version}.{self._moves_version()}"
            else:
                number = str(known.cluster(cluster_id).version)
        trouble, looks = self._live.trouble is None, self._live.looks
        return f"{self._token}.{number}.{trouble}.{self._live.is_loaded}.{looks}"

    def _moves_version(self) -> str:
        moves, run = self._live.moves, self._live.moves.run
        parts: list[int] = [moves.has_topic, moves.is_read, moves.trouble is not None]
        if run is not None:
            parts += [run.recorded_at, is_silent(run, now_ms=now_ms())]
        return "-".join(str(int(each)) for each in parts)

    @contextmanager
    def _cluster(self, cluster_id: str) -> Iterator[tuple[Known, ClusterState]]:
        """A cluster that does not change inside the block."""
        with self._live.known() as known:
            if cluster_id not in known:
                raise NotThereError(f"there is no cluster {cluster_id!r}; choose one of the list")
            yield known, known.state(cluster_id)

    def version(self) -> Response:
        """What changes whenever the page would, and when the job wrote last, of any cluster."""
        last = self._last()
        version = self._version(_text("cluster_id") or None)
        return jsonify({"version": version, "last_ms": last and last[0]})

    def clusters(self) -> str:
        search = _text("q")
        with self._live.known() as known:
            rows = sliced(found(known.cluster_ids, search), _page())
            return render_template("clusters.html", rows=rows, search=search, known=known)

    def cluster(self, cluster_id: str) -> str:
        with self._cluster(cluster_id) as (known, state):
            loads, kafka = reports.spu_loads(state), views.kafka_of(state, self._live.kafka)
            shown = kafka.topics if kafka else {}
            maps = maps_of_state(state).topics if shown else {}  # It goes through all lists.
            return render_template(
                "cluster.html",
                about=known.cluster(cluster_id),
                report=known.report(cluster_id),
                ahead=kafka and kafka.partitions_ahead({x: maps[x] for x in shown if x in maps}),
                leads=kafka and Counter(each.leader for rows in shown.values() for each in rows),
                ring=views.ring_view(state, loads),
                waiting=sliced(reports.waiting_requests(state), 1),
                racks=reports.rack_loads(loads),
                loads=loads,
            )

    def spu(self, cluster_id: str, spu_id: int) -> str:
        with self._cluster(cluster_id) as (_, state):
            loads, kafka = reports.spu_loads(state), views.kafka_of(state, self._live.kafka)
            topics = views.spu_topics(state, spu_id, kafka)
        if (load := next((each for each in loads if each["spu_id"] == spu_id), None)) is None:
            raise NotThereError(f"cluster {cluster_id!r} has no SPU {spu_id}; choose one of it")
        is_alive, sizes = kafka is not None and spu_id in kafka.brokers, Counter[str]()
        held = replica_sizes(self._live.target, [spu_id]) if is_alive else ReplicaSizes()
        for (topic, _), each in held.sizes.items():
            sizes[topic] += each[spu_id]
        given = {"load": load, "loads": loads, "kafka": kafka, "is_alive": is_alive}
        given["sizes"] = sizes if held.brokers else None
        return render_template("spu.html", **given, topics=topics)

    def topics(self, cluster_id: str) -> str:
        search, shown, sort = _text("q"), _text("state"), _text("sort")
        with self._cluster(cluster_id) as (_, state):
            of = cache(partial(reports.topic_summary, state))
            names = found(sorted(state.topics), search)
            if is_shown := views.TOPIC_STATES.get(shown):
                names = [name for name in names if is_shown(of(name))]
            if (by := sort.removeprefix("-")) in views.SORTED:
                names = sorted(names, key=lambda name: of(name)[by], reverse=sort != by)
            rows, waiting = sliced(names, _page(), row=of), len(state.waiting)
        given = {"q": search, "state": shown, "sort": sort}
        return render_template("topics.html", rows=rows, given=given, waiting=waiting)

    def topic(self, cluster_id: str, topic: str) -> str:
        with self._cluster(cluster_id) as (_, state):
            found_map, waiting = reports.topic_map(state, topic), state.waiting.get(topic)
            loads = {load["spu_id"]: load for load in reports.spu_loads(state)}
            kafka = views.kafka_of(state, self._live.kafka)
            refusal = None if waiting is None or found_map else why_it_waits(state, waiting)
        return render_template(
            "topic.html", map=found_map, loads=loads, kafka=kafka, waiting=waiting, refusal=refusal
        )

    def explain(self, cluster_id: str, topic: str) -> str:
        """Read again from the topics, as the command `explain` does."""
        partition = request.args.get("partition", 0, type=int)
        state, maps, partitions = reports.read_topic(
            self._live.connection, cluster_id, topic, partition
        )
        if not partitions:
            raise NotThereError(f"topic {topic!r} has no map yet; it waits for room")
        loads = {load["spu_id"]: load for load in reports.spu_loads(state)}
        [why], newest = explain(state, maps, partitions), maps[-1]
        move = move_of(self._live.moves.run, cluster_id, topic, partition)
        return render_template(
            "explain.html", partition=partition, newest=newest, why=why, loads=loads, move=move
        )

    def moves(self) -> str:
        moves, run = self._live.moves, self._live.moves.run
        view = None if run is None else views.moves_view(run, now_ms=now_ms())
        return render_template("moves.html", view=view, moves=moves)

    def dead_letters(self) -> str:
        with self._live.known() as known:
            rows = sliced(known.dead_letters[::-1], _page())
        return render_template("dead_letters.html", rows=rows)


def _refuse_foreign_names() -> None:
    if (refusal := foreign_name(request.host)) is not None:
        abort(400, refusal)


def _text(name: str) -> str:
    return request.args.get(name, "")[:SEARCH_LENGTH_MAX]


def _page() -> int:
    return max(1, request.args.get("page", 1, type=int))


def _fault(reason: Exception) -> tuple[str, int]:
    """Any error as a page."""
    status, message = 500, str(reason)
    if isinstance(reason, HTTPException):
        status, message = reason.code or 500, reason.description or reason.name
    elif isinstance(reason, NotThereError | ClusterUnknownError):
        status = 404
    elif isinstance(reason, ClientError):
        status = 503
    elif not isinstance(reason, AssignerError):
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
        if value not in (None, "") and (name, value) != ("page", 1)
    }
    return url_for(endpoint, **values)


def _shown(value: Any) -> Any:
    """Foreign text without control characters; markup of our own as it is."""
    return printable(value) if isinstance(value, str) and not hasattr(value, "__html__") else value
