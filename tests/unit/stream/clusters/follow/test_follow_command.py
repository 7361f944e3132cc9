"""What `follow` and `adopt` take, refuse and print, without a broker."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from click.testing import CliRunner
from spu_assigner.core.base.events import SpuLeft
from spu_assigner.schemas.json_lines.lines import event_from_json
from spu_assigner.stream.cli import cli
from spu_assigner.stream.clusters.follow import loop
from spu_assigner.stream.clusters.follow.brokers import MembershipDecision, Sightings
from spu_assigner.stream.clusters.follow.report import AdoptReport, FollowOutput
from spu_assigner.stream.clusters.follow.topics import TopicsDecision
from spu_assigner.stream.clusters.plan.model import TopicReason
from support.events.builders import Events


@pytest.mark.parametrize(
    ("command", "given", "fault"),
    [
        ("follow", ["--grace", "soon"], "'soon' is not a valid float"),
        ("follow", ["--interval", "0"], "0.0 is not in the range 0.05<=x<="),
        ("follow", ["--resources", "disk_bytes=-1"], "resources.disk_bytes is -1; expected 0 to"),
        ("follow", ["--place-new"], "--place-new needs --topics, and goes on: leave out --once"),
        ("follow", ["--place-new", "--topics", "*", "--once"], "--place-new needs --topics"),
        ("adopt", ["--cluster", "a/b"], "'a/b' is not 1 to 249"),
        ("adopt", ["--policy", "mine"], "'mine' is not one of"),
        ("adopt", ["--wait", "0"], "0.0 is not in the range"),
    ],
)
def test_wrong_usage_is_one_line(command: str, given: list[str], fault: str) -> None:
    """Before anything is asked of Kafka. Status 2 is an answer of a dry run of `adopt`."""
    done = CliRunner().invoke(cli, [command, "--cluster", "c1", *given])
    assert done.exit_code == {"follow": 2, "adopt": 1}[command]
    assert fault in done.stderr
    assert done.stderr.count("\n") == 1


OF_TARGET = {
    "SPU_ASSIGNER_TARGET_BOOTSTRAP_SERVERS": "w:1",
    "SPU_ASSIGNER_TARGET_SECURITY_PROTOCOL": "SSL",
}


@pytest.mark.parametrize(
    ("given", "env", "globs", "watched"),
    [
        (["--topics", "team-*", "--topics"], {}, ("team-*", "*"), {"bootstrap.servers": "e:1"}),
        ([], OF_TARGET, (), {"bootstrap.servers": "w:1", "security.protocol": "SSL"}),
    ],
)
def test_topics_are_named_by_globs_and_the_watched_cluster_by_variables(
    given: list[str],
    env: dict[str, str],
    globs: tuple[str, ...],
    watched: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Without a glob topics are all; without another address the cluster is the job's."""

    def followed(events: Any, target: Any, options: Any, output: Any, **_: object) -> int:
        assert (options.globs, events.bootstrap_servers) == (globs, "e:1")
        assert target.client().items() >= watched.items()
        output.say("here")
        return 0

    monkeypatch.setattr(loop, "follow_cluster", followed)
    asked = ["follow", "--cluster", "c1", "-b", "e:1", *given, "--once"]
    done = CliRunner().invoke(cli, asked, env=env)
    assert (done.exit_code, done.stderr) == (0, "follow: here\n")


EVENTS = Events()
JOIN = EVENTS.join(1, rack="a", capacity=5, cores=2)
LEAVE = SpuLeft(event_id="l", cluster_id="c1", spu_id=1)
PLACED = EVENTS.create("n", 4, 2)
RELEASE = EVENTS.release("away")
NEW = EVENTS.adopt("new", [1, 2], [2], demand={"disk_bytes": 2048})
OLD = EVENTS.adopt("old", [1], [1, 2], [1, 2, 3])


def test_events_are_printed_for_people_and_as_simulate_reads_them(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A dry run shows what would be."""
    FollowOutput("follow", "table", dry_run=True).event(PLACED)
    output = FollowOutput("follow", "table")
    output.event(LEAVE, ": missing for 61 s")
    for event in (JOIN, PLACED):
        output.event(event)
    FollowOutput("follow", "json").event(LEAVE)
    *lines, last = capsys.readouterr().out.splitlines()
    assert lines == [
        "would place  topic n: 4 partitions, 2 replicas of each",
        "left    SPU 1: missing for 61 s",
        "joined  SPU 1: rack a, 2 cores, 5 slots",
        "asks to place  topic n: 4 partitions, 2 replicas of each",
    ]
    assert event_from_json(last) == LEAVE


def test_how_things_stand_is_reported_when_it_changes(capsys: pytest.CaptureFixture[str]) -> None:
    """A line at each look would hide what matters."""
    output = FollowOutput("follow", "table")
    there = Sightings().after({1: None, 2: "a"}, now=0, gap=1)
    away = there.after({1: None}, now=1, gap=1)
    held = MembershipDecision(held=(2, 3), left_alone={1: "it is excluded"})
    output.brokers(MembershipDecision(awaited={2: 60.0}), away)
    output.brokers(MembershipDecision(awaited={2: 55.0}), away)
    output.brokers(MembershipDecision(), there)
    output.brokers(held, away)
    output.brokers(held, away)
    busy = TopicReason(topic="u", reason="is being moved")
    output.topics(TopicsDecision(unplaced=(TopicReason(topic="n", reason="it was written to"),)))
    output.topics(TopicsDecision(left=(busy,)))
    output.topics(TopicsDecision(left=(busy,), held=("v", "w")))
    output.blind("x:1: no answer")
    output.blind("x:1: timed out")
    output.sees()
    output.sees()
    for text in ("stands by", "stands by", "leads", "stands by"):
        output.report("election", text)
    lines = [line.removeprefix("follow: ") for line in capsys.readouterr().err.splitlines()]
    assert lines == [
        "misses broker 2; to leave in 60 s unless seen again",
        "sees broker 2 again",
        "leaves broker 1 alone: it is excluded",
        "holds back the leave of brokers 2, 3: more than half are missing at once, which is rather "
        "a fault of the view; if they are gone, say --allow-mass-leave",
        "does not place topic n, which is adopted as it is: it was written to",
        "leaves topic u alone: is being moved",
        "holds back the release of v, w: more than half of the topics are gone at once; if they "
        "are, run `adopt --forget-gone`",
        "cannot see the watched cluster: x:1: no answer; nobody leaves",
        "sees the watched cluster again",
        "stands by",
        "leads",
        "stands by",
    ]


DECISION = TopicsDecision(
    events=(NEW, OLD, RELEASE),
    reasons={"new": "has no map", "old": "differs from revision 3 of its map"},
    equal=("same",),
    pending=(TopicReason(topic="moved", reason="its map was changed"),),
    left=(TopicReason(topic="busy", reason="Kafka is reassigning"),),
    gone=("away",),
)
REPORT = AdoptReport(joins=(JOIN,), topics=DECISION)
ANSWERED = REPORT.answered([NEW.event_id, RELEASE.event_id], {OLD.event_id: "no"})
CHANGED = replace(ANSWERED, changed=(TopicReason(topic="new", reason="was changed by others"),))


@pytest.mark.parametrize(
    ("report", "dry_run", "lines"),
    [
        (
            REPORT,
            True,
            [
                "would join  SPU 1: rack a, 2 cores, 5 slots",
                "would adopt  topic new: 2 partitions of 1 or 2 replicas of 2.0 KiB; it has no map",
                "would adopt  topic old: 3 partitions of 1, 2 or 3 replicas; it differs from "
                "revision 3 of its map",
                "would release  topic away: it is gone from Kafka",
                "! busy  Kafka is reassigning",
                "? moved  its map was changed",
                "1 broker to join, 2 topics to adopt, 1 to release, 1 as mapped before, 1 changed "
                "here, for `apply` to carry out, 1 left alone",
            ],
        ),
        (
            CHANGED,
            False,
            [
                "adopted  topic new: 2 partitions of 1 or 2 replicas of 2.0 KiB",
                "released  topic away: it is gone from Kafka",
                "! busy  Kafka is reassigning",
                "! old  no",
                "! new  was changed by others",
                "1 topic adopted, 1 released, 1 not answered, 1 rejected, 1 as mapped before, 1 "
                "changed here, for `apply` to carry out, 1 left alone",
            ],
        ),
    ],
    ids=["dry run", "run"],
)
def test_adopt_shows_each_event_what_is_left_out_and_the_sum(
    report: AdoptReport, dry_run: bool, lines: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """What was not done has a line each."""
    FollowOutput("adopt", "table", dry_run=dry_run).adopted(report)
    assert capsys.readouterr().out.splitlines() == lines


def test_adopt_shows_programs_the_events_as_simulate_reads_them(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """All else is for people."""
    FollowOutput("adopt", "json").adopted(ANSWERED)
    shown = capsys.readouterr()
    assert [event_from_json(line) for line in shown.out.splitlines()] == [NEW, RELEASE]
    assert shown.err.startswith("! busy  Kafka is reassigning\n! old  no\n1 topic adopted, 1 rel")
