"""What `inspect` reports of a state: the values, the tables and the JSON; and what it refuses."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from collections.abc import Iterable
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
from spu_assigner.stream.audit.cluster_report import (
    ClusterDetail,
    ClusterReport,
    NotThereError,
    Spread,
    cluster_reports,
    report_json,
)
from spu_assigner.stream.audit.report_table import ROWS_SHOWN, tables
from spu_assigner.stream.cli import cli
from spu_assigner.stream.job import checkpoint_reading
from spu_assigner.stream.job.checkpoint_reading import (
    BatchNotKeptError,
    Inspection,
    NoCheckpointError,
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


def reported(
    state: ClusterState, *, topic: str | None = None
) -> tuple[ClusterReport, ClusterDetail]:
    found = inspection(state)
    [report] = cluster_reports(found, cluster_id=state.cluster_id, topic=topic)
    assert report.detail is not None
    return report, report.detail


def shown(*states: ClusterState, width: int = 160, **asked: str) -> str:
    """The tables of what is asked for: a cluster, a topic of it, or all clusters."""
    found = inspection(*states)
    console = Console(file=io.StringIO(), width=width, highlight=False)
    clusters = cluster_reports(found, **asked)
    for piece in tables(found, clusters, asked_topic=asked.get("topic")):
        console.print(piece)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_every_spu_is_counted_in_one_state() -> None:
    """Online, leaving and offline together are all; the saturated are among the online."""
    report, _ = reported(busy())
    counts = report.spus
    assert (counts.total, counts.online, counts.saturated) == (4, 3, 1)
    assert (counts.leaving, counts.offline) == (0, 1)
    assert (report.ring_size, report.racks, report.capacity) == (2, 2, 42)


def test_an_spu_that_cannot_go_yet_is_leaving() -> None:
    """Its replicas are the last ones; it is neither online nor merely offline."""
    events = Events()
    state = state_of(
        [events.join(0), events.create("t"), events.leave(0, mode=LeaveMode.DECOMMISSION)]
    )
    report, detail = reported(state)
    assert (report.spus.total, report.spus.leaving, report.spus.online, report.spus.offline) == (
        1,
        1,
        0,
        0,
    )
    [load] = detail.spus
    assert (load.state, load.replicas, load.fair_share) == ("leaving", 1, None)
    [waiting] = detail.waiting
    assert (waiting.topic, waiting.kind) == ("t", "repair")
    assert detail.topics[0].is_waiting
    assert "1 leaving" in shown(state)


def test_replicas_and_leaders_are_those_of_the_maps() -> None:
    """Counts that differ from the maps would hide what they are there to show."""
    state = busy()
    report, detail = reported(state)
    lists = [each for topic in state.topics.values() for each in topic.replicas.lists().tolist()]
    assert [(load.spu_id, load.replicas, load.leaders) for load in detail.spus] == [
        (
            spu_id,
            sum(spu_id in each for each in lists),
            sum(spu_id == each[0] for each in lists),
        )
        for spu_id in (0, 1, 3, 4)
    ]
    assert (report.replicas, report.partitions) == (sum(map(len, lists)), len(lists))
    assert sum(rack.replicas for rack in detail.racks) == report.replicas
    assert [rack.rack for rack in detail.racks] == ["a", "c"]


def test_what_waits_is_reported_in_the_order_of_service() -> None:
    """Repairs come before creates, whatever came first."""
    report, detail = reported(busy())
    assert (report.waiting_creates, report.waiting_repairs) == (1, len(detail.waiting) - 1)
    kinds = [each.kind for each in detail.waiting]
    assert kinds == sorted(kinds, reverse=True)
    last = detail.waiting[-1]
    assert (last.topic, last.partitions, last.replication_factor) == ("later", 1, 5)
    assert report.short_lists == sum(each.short_lists for each in detail.topics)


def test_the_fair_share_is_by_capacity() -> None:
    """An SPU of twice the size is to hold twice as much."""
    events = Events()
    report, detail = reported(
        state_of(
            [events.join(0, capacity=10), events.join(1, capacity=20), events.create("t", 6, 1)]
        )
    )
    assert [load.fair_share for load in detail.spus] == [2.0, 4.0]
    assert report.replicas_per_spu == Spread(least=3, most=3)
    assert report.off_fair_share == Spread(least=-1, most=1)
    assert [load.share_used for load in detail.spus] == [0.3, 0.15]


def test_chain_indexes_are_reported_for_each_order() -> None:
    """They say where the next topic begins."""
    events = Events()
    report, _ = reported(state_of([*events.joins(0, 1, 2), events.create("t", 7, 1)]))
    others = {"diagonal": 0, "alternation": 0, "registration": 0, "balanced": 0}
    assert report.chain_indexes == {"id": 7, **others}


def test_lists_on_distinct_racks_are_counted() -> None:
    """What the racks are there for; a short list is judged by what it has."""
    events = Events()
    _, detail = reported(
        state_of(
            [
                *events.racks({"a": [0, 1], "b": [2]}),
                events.manual("t", [0, 2], [1, 2], [0, 1]),
                events.manual("one", [0]),
            ]
        )
    )
    assert detail.lists_on_distinct_racks == 3


def test_an_empty_cluster_is_reported_as_it_is() -> None:
    """A refused event makes a cluster known that has nothing."""
    state = state_of([Events().delete("t")])
    assert reported(state)[0].replicas_per_spu is None
    assert "0 online" in shown(state, cluster_id="c1")
    assert "no cluster yet" in shown()


def test_a_cordoned_spu_is_named_so_online_or_not() -> None:
    """Who looks why an SPU takes nothing finds it here."""
    events = Events()
    state = state_of(
        [*events.joins(0, 1, 2), events.cordon(1), events.cordon(2), events.leave(2)],
    )
    report, detail = reported(state)
    assert (report.spus.online, report.spus.cordoned, report.ring_size) == (2, 1, 1)
    assert [(spu.state, spu.cordoned) for spu in detail.spus] == [
        ("online", False),
        ("cordoned", True),
        ("offline", True),
    ]
    text = shown(state, cluster_id="c1")
    assert "2 online (1 cordoned)" in text
    assert "offline, cordoned" in text


def test_what_is_used_of_resources_is_shown_where_there_are_any() -> None:
    """And a cluster without any has no column for them."""
    events = Events()
    joined = [events.join(spu_id, resources={"disk": 40 + 40 * spu_id}) for spu_id in range(2)]
    need = {"demand": {"disk": 10}, "leader_demand": {"net": 0, "disk": 10}}
    create = events.create("t", 2, 2, policy=Policy.BALANCED, **need)
    state = state_of([*joined, events.join(2), create])
    answer = shown(state, cluster_id="c1")
    assert "resources used" in answer
    assert "disk 50.0%" in answer
    assert "disk 25.0%" in answer
    _, detail = reported(state)
    assert [spu.resources for spu in detail.spus] == [{"disk": 40}, {"disk": 80}, {}]
    assert [spu.resources_used for spu in detail.spus] == [{"disk": 20}, {"disk": 20}, {}]
    assert [(spu.dominant_share, spu.dominant_resource) for spu in detail.spus] == [
        (0.5, "disk"),
        (0.25, "disk"),
        (0.0, None),
    ]
    assert "50.0% disk" in answer
    assert "0.0% slots" in answer
    assert detail.topics[0].demand == {"disk": 10}
    assert "demand       disk 10; a leader disk 10, net 0" in shown(
        state, cluster_id="c1", topic="t"
    )
    assert "resources used" not in shown(busy(), cluster_id="c1")


def test_taints_and_constraints_are_shown_where_there_are_any() -> None:
    """A tainted SPU is outside the ring as a cordoned one is."""
    events = Events()
    taints = (Taint("pool", "pay", TaintEffect.EVICT), Taint("old", "", TaintEffect.NO_LEADERS))
    rules = Constraints(tolerations=(Toleration("pool"),), spread=(SpreadLevel("rack", 2, 1),))
    create = events.create("t", 2, 2, policy=Policy.BALANCED, constraints=rules)
    state = state_of([*events.joins(0, 1), events.join(2, taints=taints), create])
    report, detail = reported(state)
    assert report.spus.cordoned == 1
    assert [(spu.state, spu.cordoned) for spu in detail.spus] == [
        *[("online", False)] * 2,
        ("cordoned", False),
    ]
    answer = shown(state, cluster_id="c1")
    assert "old:no_leaders, pool=pay:evict" in answer
    assert "constraints  tolerates pool; spread over rack, at most 2, at least 1" in shown(
        state, cluster_id="c1", topic="t"
    )
    clusters = cluster_reports(inspection(state), cluster_id="c1", topic="t")
    [cluster] = json.loads(json.dumps(report_json(inspection(state), clusters)))["clusters"]
    assert cluster["detail"]["spus"][2]["taints"][1] == {
        "key": "pool",
        "value": "pay",
        "effect": "evict",
    }
    assert cluster["topic"]["summary"]["constraints"]["spread"] == [
        {"label": "rack", "max": 2, "min": 1}
    ]
    assert "taints" not in shown(busy(), cluster_id="c1")


def test_the_json_has_every_list_and_stable_names() -> None:
    """Programs read it; a renamed field would break them."""
    found = inspection(busy())
    clusters = cluster_reports(found, cluster_id="c1", topic="t")
    report = json.loads(json.dumps(report_json(found, clusters)))
    [cluster] = report["clusters"]
    detail = cluster["detail"]
    assert [
        " ".join(each) for each in (report, cluster, detail["spus"][0], detail["waiting"][0])
    ] == [
        "format checkpoint query_id batch batch_time_ms batches_kept shards input_offsets clusters",
        "cluster_id spus ring_size racks capacity topics partitions replicas short_lists "
        "chain_indexes waiting_creates waiting_repairs replicas_per_spu leaders_per_spu "
        "off_fair_share detail topic",
        "spu_id rack state capacity replicas share_used fair_share leaders cores core_weights "
        "registration labels cordoned demoted resources resources_used "
        "dominant_share dominant_resource taints",
        "topic kind sequence cause policy partitions replication_factor",
    ]
    assert cluster["topic"]["lists"] == busy().topics["t"].replicas.lists().tolist()
    assert len(detail["topics"][0]["created_by"]) == 16


def test_a_map_is_shown_with_racks_and_cores() -> None:
    """What one looks for first when a list seems wrong."""
    events = Events()
    state = state_of(
        [
            *events.racks({"left": [0], "right": [1]}, cores=2),
            events.create("t", 2, 2, policy=Policy.REDPANDA),
        ]
    )
    text = shown(state, cluster_id="c1", topic="t")
    assert "0, 1" in text
    assert "left, right" in text
    assert "on cores" in text


def test_a_create_that_waits_is_shown_as_such() -> None:
    """It has no map yet, but the requester is to see that it was received."""
    text = shown(busy(), cluster_id="c1", topic="later")
    assert "create" in text
    assert "later" in text
    assert reported(busy(), topic="later")[0].topic is None


def test_no_cell_is_cut() -> None:
    """In a narrow terminal cells fold; every letter is still there."""
    name = "x" * 200 + "end"
    events = Events(name)
    state = state_of([events.join(0, rack="r" * 128), events.create("t")], name)
    text = shown(state, cluster_id=name, width=60)
    assert "…" not in text
    assert text.count("r" * 4) > 0
    letters = "".join(line for line in text.splitlines() if set(line) <= {*"xend "})
    assert letters.count("x") >= 200 - 60


def test_clusters_are_listed_one_below_the_other_at_any_width() -> None:
    """A terminal has no room for a dozen columns."""
    narrow = shown(busy(), state_of(Events("c2").joins(0, 1), "c2"), width=80)
    assert "  SPUs       2 online; ring of 2, 0 racks" in narrow
    assert max(map(len, narrow.splitlines())) <= 80
    assert narrow.count(" off its fair share") == 2


def test_long_tables_say_what_they_leave_out() -> None:
    """A cut that is not reported would be taken for the whole."""
    text = shown(state_of(Events().joins(*range(ROWS_SHOWN + 20))), cluster_id="c1")
    assert "… 20 more (all with --output json)" in text


def test_what_could_move_a_cursor_is_spelt_out() -> None:
    """A rack is any text; markup and escapes in it are letters."""
    state = state_of([Events().join(0, rack="[red]\x1b[2J")])
    text = shown(state, cluster_id="c1")
    assert "[red]\\x1b[2J" in text
    assert "\x1b[2J" not in text


def test_unknown_names_are_reported_with_those_there_are() -> None:
    """One line, and what to ask instead."""
    with pytest.raises(NotThereError, match=r"no cluster 'c9' after batch 7; there is c1"):
        cluster_reports(inspection(busy()), cluster_id="c9")
    with pytest.raises(NotThereError, match=r"no topic 'u'; it has fixed, later, t, three"):
        cluster_reports(inspection(busy()), cluster_id="c1", topic="u")


def test_a_place_without_a_checkpoint_is_refused_before_spark_starts(tmp_path: Path) -> None:
    """Known in an instant; Spark takes seconds."""
    with pytest.raises(NoCheckpointError, match=r"there is no folder .*--checkpoint"):
        inspect_checkpoint(str(tmp_path / "nothing"))
    with pytest.raises(NoCheckpointError, match="found in it: none; expected metadata"):
        inspect_checkpoint(str(tmp_path))
    for number in range(12):
        (tmp_path / f"photo{number:02}").touch()
    with pytest.raises(NoCheckpointError, match=r"photo00, photo01.* and 2 more; expected"):
        inspect_checkpoint(str(tmp_path))


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


def test_a_batch_not_kept_says_which_are() -> None:
    """So that the next try is the right one."""
    error = BatchNotKeptError(checkpoint="/c", batch=1, kept=[3, 4, 5, 9])
    assert "batch 1 is not in checkpoint /c; it keeps 3, 4, 5, 9" in str(error)


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


def test_the_command_prints_tables_or_json(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the same state."""
    asked: list[Any] = []

    def read(place: str, *, batch: int | None, **_: Any) -> Inspection:
        asked.append((place, batch))
        return inspection(busy())

    monkeypatch.setattr("spu_assigner.stream.job.checkpoint_reading.inspect_checkpoint", read)
    runner = CliRunner()
    arguments = ["inspect", "--checkpoint", "/data/checkpoint", "--batch", "7"]
    result = runner.invoke(cli, arguments)
    assert result.exit_code == 0
    assert "1 saturated" in result.stdout
    result = runner.invoke(cli, [*arguments, "--output", "json"])
    assert json.loads(result.stdout)["clusters"][0]["ring_size"] == 2
    assert asked == [("/data/checkpoint", 7)] * 2


def test_a_refusal_needs_no_spark(tmp_path: Path) -> None:
    """The wrong folder is the most common mistake, and is answered quickly."""
    code = (
        "import sys\n"
        "from spu_assigner.stream.job.checkpoint_reading import (\n"
        "    NoCheckpointError, inspect_checkpoint)\n"
        "try: inspect_checkpoint(sys.argv[1])\n"
        "except NoCheckpointError: sys.exit('pyspark' in sys.modules)\n"
        "sys.exit(9)\n"
    )
    command = [sys.executable, "-c", code, str(tmp_path)]
    assert subprocess.run(command, env=os.environ, check=False).returncode == 0
