"""What `inspect` reports of a state: the values, the tables and the JSON; and what it refuses."""

from __future__ import annotations

import io
import json
import re
import subprocess
import sys
from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
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
from spu_assigner.stream.audit import inspect_command as command
from spu_assigner.stream.audit.cluster_report import NotThereError, Report, checkpoint_report
from spu_assigner.stream.audit.report_table import ROWS_SHOWN, tables
from spu_assigner.stream.cli import cli
from spu_assigner.stream.job import checkpoint_reading
from spu_assigner.stream.job.checkpoint_reading import (
    Inspection,
    inspect_checkpoint,
)
from support.events.builders import Events


def state_of(events: Iterable[Event], cluster_id: str = "c1") -> ClusterState:
    state = ClusterState(cluster_id)
    for event in events:
        step(state, event, default_policy=Policy.FLUVIO)
    return state


def inspection(*states: ClusterState) -> Inspection:
    return Inspection(
        checkpoint="/data/checkpoint",
        query_id="f3",
        batch=7,
        batch_time_ms=1_700_000_000_000,
        batches_kept=(5, 6, 7),
        shards=2,
        input_offsets={"topic-events": {"0": 4}},
        clusters={state.cluster_id: state for state in states},
    )


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
    report = checkpoint_report(inspection(state), cluster_id=state.cluster_id, topic=topic)
    [cluster] = report["clusters"]
    return cluster, cluster["detail"]


def shown(*states: ClusterState, width: int = 160, **asked: str) -> str:
    """The tables of what is asked for: a cluster, a topic of it, or all clusters."""
    console = Console(file=io.StringIO(), width=width, highlight=False)
    report = checkpoint_report(inspection(*states), **asked)
    for piece in tables(report, asked_topic=asked.get("topic")):
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
    assert re.search("2 +offline +yes", shown(state, cluster_id="c1"))
    report, detail = reported(leaving)
    assert values([report["spus"]], "total", "leaving", "online", "offline") == [(1, 1, 0, 0)]
    assert values(detail["spus"], "state", "replicas", "fair_share") == [("leaving", 1, None)]
    assert values(detail["waiting"], "topic", "kind") == [("t", "repair")]
    assert detail["topics"][0]["is_waiting"]
    assert "leaving 1" in shown(leaving)


def test_replicas_and_leaders_are_those_of_the_maps() -> None:
    """Counts that differ from the maps would hide what they are there to show."""
    state = busy()
    report, detail = reported(state)
    lists = [each for topic in state.topics.values() for each in topic.replicas.lists().tolist()]
    assert values(detail["spus"], "spu_id", "replicas", "leaders") == [
        (
            spu_id,
            sum(spu_id in each for each in lists),
            sum(spu_id == each[0] for each in lists),
        )
        for spu_id in (0, 1, 3, 4)
    ]
    assert (report["replicas"], report["partitions"]) == (sum(map(len, lists)), len(lists))
    assert sum(rack["replicas"] for rack in detail["racks"]) == report["replicas"]
    assert [rack["rack"] for rack in detail["racks"]] == ["a", "c"]


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


def test_lists_on_distinct_racks_are_counted() -> None:
    """What the racks are there for; a short list is judged by what it has."""
    events = Events()
    maps = [events.manual("t", [0, 2], [1, 2], [0, 1]), events.manual("one", [0])]
    state = state_of([*events.racks({"a": [0, 1], "b": [2]}), *maps])
    assert reported(state)[1]["lists_on_distinct_racks"] == 3
    assert "3 of 4 replica lists are on distinct racks" in shown(state, cluster_id="c1")


def test_an_empty_cluster_is_reported_as_it_is() -> None:
    """A refused event makes a cluster known that has nothing."""
    state = state_of([Events().delete("t")])
    assert reported(state)[0]["replicas_per_spu"] is None
    assert "online 0" in shown(state, cluster_id="c1")
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
    answer = shown(state, cluster_id="c1")
    assert "resources_used" in answer
    assert answer.count("disk 20") == 2
    about = shown(state, cluster_id="c1", topic="t")
    assert re.search("^demand +disk 10$", about, re.MULTILINE)
    assert re.search("^leader_demand +disk 10, net 0$", about, re.MULTILINE)
    assert "resources_used" not in shown(busy(), cluster_id="c1")


def test_taints_and_constraints_are_shown_where_there_are_any() -> None:
    """A tainted SPU is outside the ring as a cordoned one is."""
    events = Events()
    taints = (Taint("pool", "pay", TaintEffect.EVICT), Taint("old", "", TaintEffect.NO_LEADERS))
    rules = Constraints(tolerations=(Toleration("pool"),), spread=(SpreadLevel("rack", 2, 1),))
    create = events.create("t", 2, 2, policy=Policy.BALANCED, constraints=rules)
    state = state_of([*events.joins(0, 1), events.join(2, taints=taints), create])
    report, detail = reported(state)
    assert report["spus"]["cordoned"] == 1
    tainted = [*[("online", False)] * 2, ("cordoned", False)]
    assert values(detail["spus"], "state", "cordoned") == tainted
    assert "old:no_leaders, pool=pay:evict" in shown(state, cluster_id="c1")
    about = shown(state, cluster_id="c1", topic="t")
    rules_text = "tolerates pool; spread over rack, at most 2, at least 1"
    assert re.search(f"^constraints +{rules_text}$", about, re.MULTILINE)
    cluster = printed(state, "--cluster", "c1", "--topic", "t")["clusters"][0]
    taint = {"key": "pool", "value": "pay", "effect": "evict"}
    assert cluster["detail"]["spus"][2]["taints"][1] == taint
    spread = [{"label": "rack", "max": 2, "min": 1}]
    assert cluster["topic"]["summary"]["constraints"]["spread"] == spread
    assert "taints" not in shown(busy(), cluster_id="c1")


def printed(state: ClusterState, *arguments: str) -> Report:
    """What the command prints for programs."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(checkpoint_reading, "inspect_checkpoint", lambda *_, **__: inspection(state))
        done = CliRunner().invoke(cli, ["inspect", "-o", "json", *arguments])
    assert done.exit_code == 0, done.output
    found: Report = json.loads(done.stdout)
    return found


def test_the_json_has_every_list_and_stable_names() -> None:
    """Programs read it; a renamed field would break them."""
    report = printed(busy(), "--cluster", "c1", "--topic", "t")
    [cluster] = report["clusters"]
    detail = cluster["detail"]
    parts = (report, cluster, detail, detail["spus"][0], detail["waiting"][0], detail["topics"][0])
    assert [" ".join(each) for each in parts] == [
        "format checkpoint query_id batch batch_time_ms batches_kept shards input_offsets clusters",
        "cluster_id spus ring_size racks capacity topics partitions replicas short_lists "
        "chain_indexes waiting_creates waiting_repairs replicas_per_spu leaders_per_spu "
        "off_fair_share detail topic",
        "racks spus topics waiting lists_on_distinct_racks",
        "spu_id rack state capacity replicas share_used fair_share leaders cores core_weights "
        "registration labels cordoned demoted resources resources_used "
        "dominant_share dominant_resource taints",
        "topic kind sequence cause policy partitions replication_factor",
        "topic policy revision partitions replication_factor replicas short_lists ignore_rack "
        "created_by grown_by is_waiting pinned demand leader_demand constraints",
    ]
    assert cluster["topic"]["lists"] == busy().topics["t"].replicas.lists().tolist()
    assert len(detail["topics"][0]["created_by"]) == 16
    [summary] = printed(busy())["clusters"]
    assert (summary["ring_size"], summary["detail"], summary["topic"]) == (2, None, None)


def test_a_map_is_shown_with_racks_and_cores() -> None:
    """What one looks for first when a list seems wrong."""
    events = Events()
    create = events.create("t", 2, 2, policy=Policy.REDPANDA)
    state = state_of([*events.racks({"left": [0], "right": [1]}, cores=2), create])
    text = shown(state, cluster_id="c1", topic="t")
    assert re.search("0 +0, 1 +left, right +[01], [01]", text)


def test_a_create_that_waits_is_shown_as_such() -> None:
    """It has no map yet, but the requester is to see that it was received."""
    assert re.search("later +create ", shown(busy(), cluster_id="c1", topic="later"))
    assert reported(busy(), topic="later")[0]["topic"] is None


def test_no_cell_is_cut_at_any_width() -> None:
    """In a narrow terminal cells fold; every letter is still there."""
    state = state_of([Events().join(0, rack="r" * 128)])
    text = shown(state, cluster_id="c1", width=60)
    assert "…" not in text
    assert sum(line.count("r") for line in text.splitlines() if "rr" in line) >= 2 * 128
    narrow = shown(busy(), state_of(Events("c2").joins(0, 1), "c2"), width=80)
    assert max(map(len, narrow.splitlines())) <= 80
    assert narrow.count("off_fair_share ") == 2


def test_long_tables_say_what_they_leave_out() -> None:
    """A cut that is not reported would be taken for the whole."""
    events = Events()
    joins = events.joins(*range(ROWS_SHOWN + 20))
    state = state_of([*joins, events.create("t", ROWS_SHOWN + 7)])
    assert "… 20 more (all with --output json)" in shown(state, cluster_id="c1")
    text = " ".join(shown(state, cluster_id="c1", topic="t").split())
    assert "… 7 more (all with --output json)" in text


def test_what_could_move_a_cursor_is_spelt_out() -> None:
    """A rack is any text; markup and escapes in it are letters."""
    state = state_of([Events().join(0, rack="[red]\x1b[2J")])
    text = shown(state, cluster_id="c1")
    assert "[red]\\x1b[2J" in text
    assert "\x1b[2J" not in text


def test_unknown_names_are_reported_with_those_there_are() -> None:
    """One line, and what to ask instead."""
    with pytest.raises(NotThereError, match=r"no cluster 'c9' after batch 7; there is c1"):
        checkpoint_report(inspection(busy()), cluster_id="c9")
    with pytest.raises(NotThereError, match=r"no topic 'u'; it has fixed, later, t, three"):
        checkpoint_report(inspection(busy()), cluster_id="c1", topic="u")


def test_a_person_learns_that_spark_starts_and_a_program_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing was on the screen for six seconds, or sixteen on a machine under load."""
    for name in ("metadata", "offsets"):
        (tmp_path / name).touch()
    monkeypatch.setattr(checkpoint_reading, "_session", lambda *_: nullcontext(None))
    monkeypatch.setattr(checkpoint_reading, "_read", lambda *_: inspection(busy()))
    said = []
    for is_person in (True, False):
        monkeypatch.setattr(sys.stderr, "isatty", lambda it=is_person: it)
        inspect_checkpoint(str(tmp_path), starting=command._say_starting)
        said.append(capsys.readouterr().err)
    assert said == ["inspect: starts Spark to read the checkpoint, which takes seconds\n", ""]


def test_wrong_usage_is_reported_at_once() -> None:
    """Exit status 2, one line."""
    for arguments, report in (
        (["--topic", "t"], "--topic goes with --cluster"),
        (["--batch", "-1"], "--batch"),
    ):
        result = CliRunner().invoke(cli, ["inspect", *arguments])
        assert result.exit_code == 2
        assert report in result.stderr
        assert len(result.stderr.splitlines()) == 1


def test_the_command_asks_for_the_batch_that_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """And prints tables to people."""
    asked: list[Any] = []

    def read(place: str, *, batch: int | None, **_: Any) -> Inspection:
        asked.append((place, batch))
        return inspection(busy())

    monkeypatch.setattr(checkpoint_reading, "inspect_checkpoint", read)
    arguments = ["inspect", "--checkpoint", "/data/checkpoint", "--batch", "7"]
    result = CliRunner().invoke(cli, arguments)
    assert result.exit_code == 0
    assert "saturated 1" in result.stdout
    assert asked == [("/data/checkpoint", 7)]


def test_a_refusal_needs_no_spark(tmp_path: Path) -> None:
    """The wrong folder is the most common mistake, and is answered quickly."""
    for number in range(12):
        (tmp_path / f"photo{number:02}").touch()
    code = (
        "import sys\n"
        "from spu_assigner.stream.job.checkpoint_reading import (\n"
        "    NoCheckpointError, inspect_checkpoint)\n"
        "try: inspect_checkpoint(sys.argv[1])\n"
        "except NoCheckpointError as error: print(error, 'pyspark' in sys.modules)\n"
    )
    for place, said in (("nothing", "there is no folder"), ("", "photo00, photo01")):
        command = [sys.executable, "-c", code, str(tmp_path / place)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        assert said in done.stdout
        assert done.stdout.endswith("False\n")
