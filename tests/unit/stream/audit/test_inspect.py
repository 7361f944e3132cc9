"""What `inspect` reports of a state: the values, the tables and the JSON; and what it refuses."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner, Result
from rich.console import Console
from spu_assigner.core.base.constraints import (
    Constraints,
    SpreadLevel,
    Taint,
    TaintEffect,
    Toleration,
)
from spu_assigner.core.base.events import Event, LeaveMode, OnShortage, Policy
from spu_assigner.core.decision.machine import step
from spu_assigner.core.state.cluster_state import ClusterState
from spu_assigner.stream.audit.cluster_report import NotThereError, Report, inspect_report
from spu_assigner.stream.audit.report_table import ROWS_SHOWN, tables
from spu_assigner.stream.cli import cli
from spu_assigner.stream.job.shard import published
from support.events.builders import Events
from support.pages.ui_pages import Output, outputs


def state_of(events: Iterable[Event], cluster_id: str = "c1") -> ClusterState:
    state = ClusterState(cluster_id)
    for event in events:
        step(state, event, default_policy=Policy.FLUVIO)
    return state


def busy() -> ClusterState:
    """Racks, a full SPU, one offline, short lists after one has left, a create that waits."""
    events = Events()
    return state_of(
        [
            *events.racks({"a": [0, 1], "b": [2], "c": [3]}, capacity=20),
            events.join(4, rack="c", capacity=2),
            events.manual("fixed", [4, 0], [4, 2]),
            events.create("t", 4, 3),
            events.create("three", 1, 3),
            events.leave(3),
            events.leave(2, mode=LeaveMode.DECOMMISSION),
            events.create("later", 1, 5, on_shortage=OnShortage.WAIT),
        ]
    )


def reported(state: ClusterState, *, topic: str | None = None) -> tuple[Report, Report]:
    """A cluster and its detail."""
    [cluster] = inspect_report([state], is_named=True, topic=topic)["clusters"]
    return cluster, cluster["detail"]


def shown(
    *states: ClusterState, width: int = 160, is_named: bool = True, topic: str | None = None
) -> str:
    """The tables of a cluster, of a topic of it, or of all clusters."""
    console = Console(file=io.StringIO(), width=width, highlight=False)
    report = inspect_report(states, is_named=is_named, topic=topic)
    for piece in tables(report, asked_topic=topic):
        console.print(piece)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def values(rows: Sequence[Report], *names: str) -> list[tuple[Any, ...]]:
    return [tuple(each[name] for name in names) for each in rows]


def test_every_spu_is_counted_in_one_state() -> None:
    """Online, leaving and offline together are all; the saturated are among the online."""
    report, _ = reported(busy())
    counts = {"total": 4, "online": 3, "saturated": 1, "cordoned": 0, "leaving": 0, "offline": 1}
    assert report["spus"] == counts
    assert values([report], "ring_size", "racks", "capacity") == [(2, 2, 42)]
    assert report["chain_indexes"]["id"] == 0


def test_states_of_an_spu_are_named() -> None:
    """What cannot go yet is neither online nor offline; an order stands beside any state."""
    events = Events()
    orders = [events.cordon(1), events.cordon(2), events.leave(2)]
    state = state_of([*events.joins(0, 1, 2), *orders])
    gone = events.leave(0, mode=LeaveMode.DECOMMISSION)
    leaving = state_of([events.join(0), events.create("t"), gone])
    _, detail = reported(state)
    assert values(detail["spus"], "state", "cordoned") == [
        ("online", False),
        ("cordoned", True),
        ("offline", True),
    ]
    assert re.search("2 +offline +yes", shown(state))
    report, detail = reported(leaving)
    assert values([report["spus"]], "total", "leaving", "online", "offline") == [(1, 1, 0, 0)]
    assert values(detail["spus"], "state", "replicas", "fair_share") == [("leaving", 1, None)]
    assert values(detail["waiting"], "topic", "kind") == [("t", "repair")]
    assert detail["topics"][0]["is_waiting"]
    assert "leaving 1" in shown(leaving, is_named=False)


def test_what_waits_is_reported_in_the_order_of_service() -> None:
    """Repairs come before creates, whatever came first."""
    report, detail = reported(busy())
    waiting = detail["waiting"]
    assert values([report], "waiting_creates", "waiting_repairs") == [(1, len(waiting) - 1)]
    kinds = [each["kind"] for each in waiting]
    assert kinds == sorted(kinds, reverse=True)
    named = ("topic", "partitions", "replication_factor")
    assert values(waiting[-1:], *named) == [("later", 1, 5)]
    assert report["short_lists"] == sum(each["short_lists"] for each in detail["topics"])


def test_the_fair_share_is_by_capacity() -> None:
    """An SPU of twice the size is to hold twice as much."""
    events = Events()
    joins = [events.join(0, capacity=10), events.join(1, capacity=20)]
    report, detail = reported(state_of([*joins, events.create("t", 6, 1)]))
    assert values(detail["spus"], "fair_share", "share_used") == [(2.0, 0.3), (4.0, 0.15)]
    assert report["replicas_per_spu"] == {"least": 3, "most": 3}
    assert report["off_fair_share"] == {"least": -1, "most": 1}


def test_what_could_be_better_is_counted() -> None:
    """As `plan` counts it; a short list is judged by what it has."""
    events = Events()
    maps = [events.manual("t", [0, 2], [1, 2], [0, 1]), events.manual("one", [0])]
    state = state_of([*events.racks({"a": [0, 1], "b": [2]}), *maps])
    could = {"few_racks": 1, "broken_rules": 0, "one_leader": 0}
    assert reported(state)[0]["improvable"] == could
    assert "few_racks 1, broken_rules 0, one_leader 0" in shown(state)


def test_an_empty_cluster_is_reported_as_it_is() -> None:
    """A refused event makes a cluster known that has nothing."""
    state = state_of([Events().delete("t")])
    assert reported(state)[0]["replicas_per_spu"] is None
    assert "online 0" in shown(state)
    assert "no cluster yet" in shown()


def test_what_is_used_of_resources_is_shown_where_there_are_any() -> None:
    """And a cluster without any has no column for them."""
    events = Events()
    joined = [events.join(spu_id, resources={"disk": 40 + 40 * spu_id}) for spu_id in range(2)]
    need = {"demand": {"disk": 10}, "leader_demand": {"net": 0, "disk": 10}}
    create = events.create("t", 2, 2, policy=Policy.BALANCED, **need)
    state = state_of([*joined, events.join(2), create])
    names = ("resources", "resources_used", "dominant_share", "dominant_resource")
    assert values(reported(state)[1]["spus"], *names) == [
        ({"disk": 40}, {"disk": 20}, 0.5, "disk"),
        ({"disk": 80}, {"disk": 20}, 0.25, "disk"),
        ({}, {}, 0.0, None),
    ]
    assert shown(state).count("disk 20") == 2
    assert re.search("^leader_demand +disk 10, net 0$", shown(state, topic="t"), re.MULTILINE)
    assert "resources_used" not in shown(busy())


def test_taints_and_constraints_are_shown_where_there_are_any() -> None:
    """A tainted SPU is outside the ring as a cordoned one is."""
    events = Events()
    taints = (Taint("pool", "pay", TaintEffect.EVICT), Taint("old", "", TaintEffect.NO_LEADERS))
    rules = Constraints(tolerations=(Toleration("pool"),), spread=(SpreadLevel("rack", 2, 1),))
    create = events.create("t", 2, 2, policy=Policy.BALANCED, constraints=rules)
    state = state_of([*events.joins(0, 1), events.join(2, taints=taints), create])
    _, detail = reported(state)
    assert [each["state"] for each in detail["spus"]] == ["online", "online", "cordoned"]
    assert "old:no_leaders, pool=pay:evict" in shown(state)
    rules_text = "tolerates pool; spread over rack, at most 2, at least 1"
    assert re.search(f"^constraints +{rules_text}$", shown(state, topic="t"), re.MULTILINE)
    cluster = json.loads(msgspec.json.encode(reported(state, topic="t")[0]))
    taint = {"key": "pool", "value": "pay", "effect": "evict"}
    assert cluster["detail"]["spus"][2]["taints"][1] == taint
    spread = [{"label": "rack", "max": 2, "min": 1}]
    assert cluster["topic"]["summary"]["constraints"]["spread"] == spread
    assert "taints" not in shown(busy())


def test_the_json_has_every_list_and_stable_names(monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs read it; a renamed field would break them. And people are given tables."""
    monkeypatch.setattr(published, "read_cluster_state", lambda *_: busy())
    arguments = ["inspect", "--cluster", "c1", "--topic", "t"]
    assert "saturated 1" in CliRunner().invoke(cli, arguments).stdout
    report = json.loads(CliRunner().invoke(cli, [*arguments, "-o", "json"]).stdout)
    [cluster] = report["clusters"]
    detail = cluster["detail"]
    parts = (report, cluster, detail, detail["spus"][0], detail["waiting"][0], detail["topics"][0])
    assert [" ".join(each) for each in parts] == [
        "format clusters",
        "cluster_id spus ring_size racks capacity topics partitions replicas short_lists "
        "chain_indexes waiting_creates waiting_repairs replicas_per_spu leaders_per_spu "
        "off_fair_share improvable detail topic",
        "racks spus topics waiting",
        "spu_id rack state capacity replicas share_used fair_share leaders cores core_weights "
        "registration labels cordoned demoted resources resources_used "
        "dominant_share dominant_resource taints",
        "topic kind sequence cause policy partitions replication_factor",
        "topic policy revision partitions replication_factor replicas short_lists ignore_rack "
        "created_by grown_by is_waiting pinned demand leader_demand constraints",
    ]
    assert cluster["topic"]["lists"] == busy().topics["t"].replicas.lists().tolist()
    assert len(detail["topics"][0]["created_by"]) == 16
    [summary] = inspect_report([busy()])["clusters"]
    assert (summary["ring_size"], summary["detail"], summary["topic"]) == (2, None, None)


def test_a_map_is_shown_with_racks_and_cores() -> None:
    """What one looks for first when a list seems wrong."""
    events = Events()
    create = events.create("t", 2, 2, policy=Policy.REDPANDA)
    state = state_of([*events.racks({"left": [0], "right": [1]}, cores=2), create])
    text = shown(state, topic="t")
    assert re.search("0 +0, 1 +left, right +[01], [01]", text)


def test_no_cell_is_cut_at_any_width() -> None:
    """In a narrow terminal cells fold; every letter is still there."""
    state = state_of([Events().join(0, rack="r" * 128)])
    text = shown(state, width=60)
    assert "…" not in text
    assert sum(line.count("r") for line in text.splitlines() if "rr" in line) >= 2 * 128
    narrow = shown(busy(), state_of(Events("c2").joins(0, 1), "c2"), width=80, is_named=False)
    assert max(map(len, narrow.splitlines())) <= 80
    assert narrow.count("off_fair_share ") == 2


def test_long_tables_say_what_they_leave_out() -> None:
    """A cut that is not reported would be taken for the whole."""
    events = Events()
    joins = events.joins(*range(ROWS_SHOWN + 20))
    state = state_of([*joins, events.create("t", ROWS_SHOWN + 7)])
    assert "… 20 more (all with --output json)" in shown(state)
    text = " ".join(shown(state, topic="t").split())
    assert "… 7 more (all with --output json)" in text


def test_what_could_move_a_cursor_is_spelt_out() -> None:
    """A rack is any text; markup and escapes in it are letters."""
    state = state_of([Events().join(0, rack="[red]\x1b[2J")])
    text = shown(state)
    assert "[red]\\x1b[2J" in text
    assert "\x1b[2J" not in text


def test_what_waits_has_no_map_and_what_is_unknown_is_reported() -> None:
    """The requester is to see that it was received; one line, and what to ask instead."""
    assert re.search("later +create ", shown(busy(), topic="later"))
    assert reported(busy(), topic="later")[0]["topic"] is None
    with pytest.raises(NotThereError, match=r"no topic 'u'; it has fixed, later, t, three"):
        reported(busy(), topic="u")
    result = CliRunner().invoke(cli, ["inspect", "--topic", "t"])
    assert (result.exit_code, len(result.stderr.splitlines())) == (2, 1)
    assert "--topic goes with --cluster" in result.stderr


def test_what_a_job_has_published_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    """All clusters in numbers, one in detail with a topic's map; what is not there is named."""
    events, messages = Events(), outputs([])

    @contextmanager
    def reader(_: object, topics: list[str], **__: object) -> Iterator[SimpleNamespace]:
        found = [(each.topic, at(each)) for each in messages if each.topic in topics]
        yield SimpleNamespace(drain_messages=lambda: found)

    def at(given: Output) -> SimpleNamespace:
        place = {"partition": lambda: 0, "offset": lambda: 0}
        return SimpleNamespace(key=given.key, value=given.value, **place)

    def asked(*arguments: str) -> Result:
        return CliRunner().invoke(cli, ["inspect", "-b", "x:1", *arguments], env={})

    monkeypatch.setattr(published, "Reader", reader)
    assert "There is no cluster yet." in asked().stdout
    joins = events.racks({"r": [0, 1], "s": [2]}, capacity=10)
    requests = [*(events.create(name, 3, 2) for name in "abc"), events.delete("b")]
    messages += outputs([[*joins, *requests], Events("c2").joins(0)])
    report = json.loads(asked("-o", "json").stdout)
    counts = [(each["cluster_id"], each["topics"], each["replicas"]) for each in report["clusters"]]
    assert counts == [("c1", 2, 12), ("c2", 0, 0)]
    [found] = json.loads(asked("--cluster", "c1", "--topic", "a", "-o", "json").stdout)["clusters"]
    assert [each["spu_id"] for each in found["detail"]["spus"]] == [0, 1, 2]
    assert [len(each) for each in found["topic"]["lists"]] == [2, 2, 2]
    assert "no cluster 'c9' on replica-map; it has c1, c2" in asked("--cluster", "c9").stderr
    assert "no topic 'b'; it has a, c" in asked("--cluster", "c1", "--topic", "b").stderr
