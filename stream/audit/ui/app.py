"""The pages as a WSGI application: which address shows what.

Rules:
- It only reads: no other methods than GET and HEAD.
- Nothing comes from elsewhere, and nothing foreign is taken for markup: templates escape, control
  characters are shown as what they are, and the policy in the header allows our own two files.
- An address of what is not there is a page that says so, with status 404.
"""

from __future__ import annotations

import time
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
from spu_assigner.stream.audit.cluster_report import (
    NotThereError,
    Report,
    rack_loads,
    read_topic,
    spu_loads,
    topic_map,
    topic_summary,
    waiting_requests,
)
from spu_assigner.stream.audit.ui.known import Known
from spu_assigner.stream.audit.ui.live import Live
from spu_assigner.stream.audit.ui.views import (
    TOPIC_STATES,
    ahead,
    bar_scale,
    found,
    kafka_of,
    moves_view,
    rack_colours,
    ring_view,
    sliced,
    spu_topics,
)
from spu_assigner.stream.client.explanation import ORDER_NAMES, decision_lines
from spu_assigner.stream.common.own_names import foreign_name
from spu_assigner.stream.common.printable import printable
from spu_assigner.stream.common.quantities import bytes_text, duration_text
from spu_assigner.stream.common.rule_texts import rule_texts, taint_text
from spu_assigner.stream.kafka.errors import ClientError, ClusterUnknownError
from spu_assigner.stream.kafka.log_dirs import ReplicaSizes, replica_sizes
from spu_assigner.stream.kafka.moves_record import is_silent, move_of
from werkzeug.exceptions import HTTPException

_ORDER_NAMES: Final = {**ORDER_NAMES, Order.BALANCED: "balanced"}
FEW: Final = 10  # of what a cluster's page shows only the first
SORTED: Final = ("topic", "policy", "partitions", "replicas", "revision", "short_lists")  # topics
MAP_ROWS: Final = 100  # partitions of a page
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
    """The application, for an open `live`.

    With `is_loopback` only this machine may ask. Then other names than its own are refused, by
    which a foreign page in a browser here could reach it.
    """
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
            "cluster_id": cluster_id,
            "watch": _link("version", cluster_id=cluster_id),
            "servers": self._live.connection.bootstrap_servers,
            "prefix": self._live.connection.prefix,
        }

    def _last(self) -> tuple[int, float] | None:
        """When the job wrote last (ms), and how many seconds ago that is; None: it is not known."""
        with self._live.known() as known:
            last_ms = known.last_ms
        return (last_ms, max(0, _now_ms() - last_ms) / 1000) if last_ms else None

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
            parts += [run.recorded_at, is_silent(run, now_ms=_now_ms())]
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
        search, page = _text("q"), _page()
        with self._live.known() as known:

            def row(cluster_id: str) -> tuple[Report, int]:
                return known.report(cluster_id), len(known.cluster(cluster_id).faults)

            rows = sliced(found(known.cluster_ids, search), page, row=row)
        return render_template("clusters.html", rows=rows, search=search, foreign=known.foreign)

    def cluster(self, cluster_id: str) -> str:
        with self._cluster(cluster_id) as (known, state):
            loads, about = spu_loads(state), known.cluster(cluster_id)
            kafka = kafka_of(state, self._live.kafka)
            view = {
                "ahead": ahead(state, kafka),
                "leads": kafka and Counter(x.leader for y in kafka.topics.values() for x in y),
                "report": known.report(cluster_id),
                "ring": ring_view(state, loads),
                "waiting": sliced(waiting_requests(state), 1),
                "statuses": about.statuses[: -FEW - 1 : -1],
                "ring_events": about.ring_events[: -FEW - 1 : -1],
                "faults": [
                    f"{key.decode('utf-8', 'replace')}: {fault}"
                    for key, fault in list(about.faults.items())[:FEW]
                ],
            }
        racks = rack_loads(loads)
        return render_template(
            "cluster.html",
            **view,
            all_racks=racks,
            racks=sliced(racks, 1, size=2 * FEW),
            colours=rack_colours(loads),
            spus=sliced(loads, _page()),
            scale=bar_scale(loads),
            has_resources=any(each["resources"] for each in loads),
        )

    def spu(self, cluster_id: str, spu_id: int) -> str:
        with self._cluster(cluster_id) as (_, state):
            loads, kafka = spu_loads(state), kafka_of(state, self._live.kafka)
            load = next((each for each in loads if each["spu_id"] == spu_id), None)
            topics = spu_topics(state, spu_id, kafka)
        if load is None:
            raise NotThereError(f"cluster {cluster_id!r} has no SPU {spu_id}; choose one of it")
        is_alive = kafka is not None and spu_id in kafka.brokers
        held = replica_sizes(self._live.target, [spu_id]) if is_alive else ReplicaSizes()
        sizes = Counter[str]()
        for (topic, _), each in held.sizes.items():
            sizes[topic] += each[spu_id]
        return render_template(
            "spu.html",
            load=load,
            colour=rack_colours(loads)[load["rack"]],
            kafka=kafka,
            is_alive=is_alive,
            sizes=sizes if held.brokers else None,
            topics=topics,
            rows=sliced(topics, _page()),
        )

    def topics(self, cluster_id: str) -> str:
        search, shown, sort = _text("q"), _text("state"), _text("sort")
        with self._cluster(cluster_id) as (_, state):
            of = cache(partial(topic_summary, state))
            names = found(sorted(state.topics), search)
            if is_shown := TOPIC_STATES.get(shown):
                names = [name for name in names if is_shown(of(name))]
            if (by := sort.removeprefix("-")) in SORTED:
                names = sorted(names, key=lambda name: of(name)[by], reverse=sort != by)
            rows, waiting = sliced(names, _page(), row=of), len(state.waiting)
        given = {"q": search, "state": shown, "sort": sort}
        return render_template("topics.html", rows=rows, given=given, waiting=waiting)

    def topic(self, cluster_id: str, topic: str) -> str:
        with self._cluster(cluster_id) as (_, state):
            found_map = topic_map(state, topic)
            waiting = state.waiting.get(topic)
            loads = spu_loads(state)
            kafka = kafka_of(state, self._live.kafka)
            refusal = None if waiting is None or found_map else why_it_waits(state, waiting)
        lists = [] if found_map is None else found_map["lists"]
        return render_template(
            "topic.html",
            topic=topic,
            map=found_map,
            rows=sliced(range(len(lists)), _page(), size=MAP_ROWS),
            columns=max(map(len, lists), default=0),
            loads={load["spu_id"]: load for load in loads},
            colours=rack_colours(loads),
            kafka=kafka and kafka.topics.get(topic),
            waiting=waiting,
            obstacle=None if refusal is None else f"{refusal.code}: {refusal.message}",
        )

    def explain(self, cluster_id: str, topic: str) -> str:
        """Read again from the topics, as the command `explain` does."""
        partition = request.args.get("partition", 0, type=int)
        state, maps, partitions = read_topic(self._live.connection, cluster_id, topic, partition)
        if not partitions:
            raise NotThereError(f"topic {topic!r} has no map yet; it waits for room")
        [why], loads = explain(state, maps, partitions), spu_loads(state)
        return render_template(
            "explain.html",
            topic=topic,
            partition=partition,
            partitions=len(maps[-1].replicas or ()),
            why=why,
            loads={load["spu_id"]: load for load in loads},
            colours=rack_colours(loads),
            move=move_of(self._live.moves.run, cluster_id, topic, partition),
        )

    def moves(self) -> str:
        moves = self._live.moves
        run = moves.run
        return render_template(
            "moves.html",
            view=None if run is None else moves_view(run, now_ms=_now_ms()),
            rows=sliced(() if run is None else run.moves, _page()),
            moves_trouble=moves.trouble,
            has_topic=moves.has_topic,
            is_read=moves.is_read,
        )

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


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
