"""What `follow` and `adopt` take, refuse and print, without a broker."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from spu_assigner.core.base.events import (
    SpuJoined,
    SpuLeft,
    TopicAdopted,
    TopicCreate,
    TopicRelease,
)
from spu_assigner.schemas.json_lines.lines import event_from_json
from spu_assigner.stream.cli import cli
from spu_assigner.stream.clusters.follow import loop
from spu_assigner.stream.clusters.follow.brokers import MembershipDecision, Sightings
from spu_assigner.stream.clusters.follow.options import Size, SizesError, read_sizes
from spu_assigner.stream.clusters.follow.report import AdoptReport, FollowOutput
from spu_assigner.stream.clusters.follow.topics import TopicsDecision
from spu_assigner.stream.clusters.plan.model import Rows, TopicReason
from spu_assigner.stream.kafka import connection_diagnosis


@pytest.mark.parametrize(
    ("command", "given", "fault"),
    [
        ("follow", ["--grace", "soon"], "'soon' is no time; expected 0s to 7 days, such as 90s"),
        ("follow", ["--grace", "8000h"], "'8000h' is no time"),
        ("follow", ["--interval", "0"], "'0' is no time; expected 0.05s to 7 days"),
        ("follow", ["--exclude", "x"], "'x' is not a valid integer"),
        ("follow", ["--resources", "disk_bytes"], "'disk_bytes' is no amount of a resource"),
        ("follow", ["--resources", "disk_bytes=-1"], "resources.disk_bytes is -1; expected 0 to"),
        ("follow", ["--sizes", "/nowhere"], "the file of sizes '/nowhere' cannot be read"),
        ("follow", ["--watch-bootstrap-servers", "here"], "is 'here'; expected host:port"),
        ("follow", ["--place-new"], "--place-new needs --topics, and goes on: leave out --once"),
        ("follow", ["--place-new", "--topics", "*", "--once"], "--place-new needs --topics"),
        ("adopt", ["--cluster", "a/b"], "'a/b' is not 1 to 249"),
        ("adopt", ["--policy", "mine"], "'mine' is not one of"),
        ("adopt", ["--capacity", "-1"], "-1 is not in the range"),
        ("adopt", ["--resources", "a b=1"], "resources names 'a b'; expected 1 to 64 of"),
        ("adopt", ["--wait", "0"], "0.0 is not in the range"),
    ],
)
def test_wrong_usage_is_one_line(command: str, given: list[str], fault: str) -> None:
    """Before anything is asked of Kafka. Status 2 is an answer of a dry run of `adopt`."""
    done = CliRunner().invoke(cli, [command, "--cluster", "c1", *given])
    assert done.exit_code == {"follow": 2, "adopt": 1}[command]
    assert fault in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    "given",
    [
        ("follow", "--once", "-b"),
        ("follow", "--once", "--watch-bootstrap-servers"),
        ("adopt", "-b"),
    ],
)
def test_a_cluster_that_does_not_answer_is_one_line(
    given: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the start it is a wrong address; later nobody leaves for it."""
    limits = connection_diagnosis.WaitLimits(request=0.2, refused=0.1)
    monkeypatch.setattr(connection_diagnosis, "WAIT_LIMITS", limits)
    done = CliRunner().invoke(cli, [*given, "127.0.0.1:9", "--cluster", "c1"])
    assert (done.exit_code, done.stdout) == (1, "")
    assert done.stderr.startswith("spu-assigner: no Kafka broker answers at 127.0.0.1:9 (")
    assert done.stderr.count("\n") == 1


def test_topics_are_named_by_globs_and_without_one_they_are_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The watched cluster is the one that the variables or the option name, else the job's."""
    called: list[tuple[object, ...]] = []

    def followed(events: Any, target: Any, options: Any, output: Any, **_: object) -> int:
        called.append((options.globs, events.bootstrap_servers, target.client()))
        output.say("here")
        return 0

    monkeypatch.setattr(loop, "follow_cluster", followed)
    of_target = {
        "SPU_ASSIGNER_TARGET_BOOTSTRAP_SERVERS": "w:1",
        "SPU_ASSIGNER_TARGET_SECURITY_PROTOCOL": "SSL",
    }
    for given, env in (
        (["--topics", "team-*", "--topics"], {}),
        (["--watch-bootstrap-servers", "w:2"], {}),
        ([], of_target),
    ):
        asked = ["follow", "--cluster", "c1", "-b", "e:1", *given, "--once"]
        done = CliRunner().invoke(cli, asked, env=env)
        assert (done.exit_code, done.stderr) == (0, "follow: here\n")
    plain, watched, targeted = called
    assert plain == (("team-*", "*"), "e:1", {"bootstrap.servers": "e:1"})
    assert watched == ((), "e:1", {"bootstrap.servers": "w:2"})
    assert targeted[2].items() >= {"bootstrap.servers": "w:1", "security.protocol": "SSL"}.items()  # type: ignore[attr-defined]  # a dict


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "sizes.toml"


def test_a_file_of_sizes_has_one_for_all_and_some_of_their_own(file: Path) -> None:
    """As the module shows it; field by field."""
    file.write_text("capacity = 1000\n[brokers.3]\ncores = 8\ncapacity = 4000\n")
    assert read_sizes(file) == (Size(capacity=1000), {3: Size(cores=8, capacity=4000)})
    file.write_text("[resources]\ndisk_bytes = 2_000\n[brokers.3.resources]\nnet = 5\n")
    of_all, of_brokers = read_sizes(file)
    assert of_all == Size(resources={"disk_bytes": 2000})
    assert of_brokers[3].over(of_all) == Size(resources={"disk_bytes": 2000, "net": 5})
    assert Size(cores=4).over(Size(cores=2, capacity=5)) == Size(cores=4, capacity=5)


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("capacity = ", "is wrong: Invalid value"),
        ("capacity = -1", r">= 0.*\$\.capacity"),
        ("capacity = true", r"Expected `int.*\$\.capacity"),
        ("cores = 0", r">= 1.*\$\.cores"),
        ("slots = 3", "unknown field `slots`"),
        ("resources = 3", r"\$\.resources"),
        ("[brokers.3.resources]\ndisk = 1.5", r"`float` - at `\$\.brokers\[\.\.\.\]\.resources"),
        ("resources = {disk = -1}", "resources.disk is -1; expected 0 to 9007199254740991"),
        ("brokers = 3", r"\$\.brokers"),
        ("[brokers.b1]\ncores = 1", "at `key` in `\\$.brokers`"),
        ("[brokers.99999999999]\ncores = 1", "at `key` in `\\$.brokers`"),
        ("[brokers]\n3 = 5", r"Expected `object`, got `int` - at `\$\.brokers"),
    ],
)
def test_a_wrong_file_of_sizes_is_reported_with_its_entry(
    file: Path, text: str, fault: str
) -> None:
    """It is written by hand."""
    file.write_text(text)
    with pytest.raises(SizesError, match=fault) as found:
        read_sizes(file)
    assert "\n" not in str(found.value)


JOIN = SpuJoined(event_id="j", cluster_id="c1", spu_id=1, rack="a", capacity=5, cores=2)
LEAVE = SpuLeft(event_id="l", cluster_id="c1", spu_id=1)


def adopted(topic: str, rows: Rows, **demand: int) -> TopicAdopted:
    return TopicAdopted(
        event_id=topic, cluster_id="c1", topic=topic, replicas=rows, demand=demand or None
    )


RELEASE = TopicRelease(event_id="r", cluster_id="c1", topic="away")
NEW, OLD = adopted("new", ((1, 2), (2,))), adopted("old", ((1,), (1, 2), (1, 2, 3)))


def test_events_are_printed_for_people_and_as_simulate_reads_them(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A dry run shows what would be."""
    placed = TopicCreate(
        event_id="p", cluster_id="c1", topic="n", partitions=4, replication_factor=2
    )
    FollowOutput("follow", "table", dry_run=True).event(placed)
    output = FollowOutput("follow", "table")
    output.event(LEAVE, ": missing for 61 s")
    for event in (JOIN, placed):
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
    for brokers, sight in (
        (MembershipDecision(awaited={2: 60.0}), away),
        (MembershipDecision(awaited={2: 55.0}), away),
        (MembershipDecision(), there),
        (MembershipDecision(held=(2, 3), left_alone={1: "it is excluded"}), away),
        (MembershipDecision(held=(2, 3), left_alone={1: "it is excluded"}), away),
    ):
        output.brokers(brokers, sight)
    busy = TopicReason(topic="u", reason="is being moved")
    for topics in (
        TopicsDecision(unplaced=(TopicReason(topic="n", reason="it was written to"),)),
        TopicsDecision(left=(busy,)),
        TopicsDecision(left=(busy,), held=("v", "w")),
        TopicsDecision(),
    ):
        output.topics(topics)
    for _ in range(2):
        output.blind("x:1: no answer")
    for _ in range(2):
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
    events=(adopted("new", NEW.replicas, disk_bytes=2048), OLD, RELEASE),
    reasons={"new": "has no map", "old": "differs from revision 3 of its map"},
    equal=("same",),
    pending=(TopicReason(topic="moved", reason="its map was changed"),),
    left=(TopicReason(topic="busy", reason="Kafka is reassigning"),),
    gone=("away",),
)
REPORT = AdoptReport(kafka_cluster="k", joins=(JOIN,), topics=DECISION)
NOTHING = TopicsDecision(equal=("a", "b"), gone=("c",))


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
            replace(
                REPORT,
                accepted=(NEW, RELEASE),
                rejected=(TopicReason(topic="old", reason="no"),),
                changed=(TopicReason(topic="new", reason="was changed by others"),),
                unanswered=2,
            ),
            False,
            [
                "adopted  topic new: 2 partitions of 1 or 2 replicas",
                "released  topic away: it is gone from Kafka",
                "! busy  Kafka is reassigning",
                "! old  no",
                "! new  was changed by others",
                "1 topic adopted, 1 released, 2 not answered, 1 rejected, 1 as mapped before, 1 "
                "changed here, for `apply` to carry out, 1 left alone",
            ],
        ),
        (
            replace(REPORT, joins=(), topics=NOTHING),
            True,
            [
                ". c  is gone from Kafka; --forget-gone releases it",
                "nothing to do: 0 brokers to join, 0 topics to adopt, 2 as mapped before, 1 gone",
            ],
        ),
    ],
    ids=["dry run", "run", "nothing"],
)
def test_adopt_shows_each_event_what_is_left_out_and_the_sum(
    report: AdoptReport, dry_run: bool, lines: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """What was not done has a line each."""
    FollowOutput("adopt", "table", dry_run=dry_run).adopted(report)
    assert capsys.readouterr().out.splitlines() == lines
    assert report.is_whole == (report.topics is NOTHING)


def test_adopt_shows_programs_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    """In one object; the events as `simulate` reads them."""
    report = REPORT.answered(["j", "new", "r"], {"old": "no"})
    FollowOutput("adopt", "json").adopted(report)
    found = json.loads(capsys.readouterr().out)
    kinds = [each["type"] for each in found.pop("events")]
    assert kinds == ["spu_joined", "topic_adopted", "topic_adopted", "topic_release"]
    assert found == {
        "kafka_cluster": "k",
        "dry_run": False,
        "joined": [1],
        "adopted": ["new"],
        "released": ["away"],
        "rejected": [{"topic": "old", "reason": "no"}],
        "changed": [],
        "unanswered": 0,
        "as_mapped": 1,
        "pending": [{"topic": "moved", "reason": "its map was changed"}],
        "left": [{"topic": "busy", "reason": "Kafka is reassigning"}],
        "gone": ["away"],
    }
