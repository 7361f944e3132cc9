"""What `follow` takes, refuses and prints, without a broker."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from spu_assigner.core.base.events import (
    LeaveMode,
    SpuJoined,
    SpuLeft,
    TopicAdopted,
    TopicCreate,
    TopicRelease,
)
from spu_assigner.schemas.json_lines.lines import event_from_json
from spu_assigner.stream.cli import cli
from spu_assigner.stream.client.announced import AnnouncedOfCluster, EventPosition
from spu_assigner.stream.clusters.follow import loop
from spu_assigner.stream.clusters.follow.command import _watched
from spu_assigner.stream.clusters.follow.decision import (
    FollowOptions,
    MembershipDecision,
    Sightings,
    Size,
)
from spu_assigner.stream.clusters.follow.followed_topics import TopicsTurn
from spu_assigner.stream.clusters.follow.loop import SizesOfLooks
from spu_assigner.stream.clusters.follow.rendering import FollowOutput
from spu_assigner.stream.clusters.follow.sizes_file import SizesError, read_sizes
from spu_assigner.stream.clusters.plan.model import TopicReason
from spu_assigner.stream.kafka import connection_diagnosis
from spu_assigner.stream.kafka.config.connection import Connection

COMMAND = ["follow", "--cluster", "c1"]


@pytest.mark.parametrize(
    ("given", "fault"),
    [
        (["--grace", "soon"], "'soon' is no time; expected 0s to 7 days, such as 90s or 2m"),
        (["--grace", "8000h"], "'8000h' is no time"),
        (["--interval", "0"], "'0' is no time; expected 0.05s to 7 days"),
        (["--cluster", "a/b"], "'a/b' is not 1 to 249"),
        (["--capacity", "-1"], "-1 is not in the range"),
        (["--exclude", "x"], "'x' is not a valid integer"),
        (["--resources", "disk_bytes"], "'disk_bytes' is no amount of a resource"),
        (["--resources", "disk_bytes=-1"], "resources.disk_bytes is -1; expected 0 to"),
        (["--sizes", "/nowhere.toml"], "the file of sizes '/nowhere.toml' cannot be read"),
        (["--watch-config", "/nowhere.toml"], "--watch-config"),
        (
            ["--watch-bootstrap-servers", "here"],
            "--bootstrap-servers is 'here'; expected host:port",
        ),
    ],
)
def test_wrong_usage_is_one_line_and_status_2(given: list[str], fault: str) -> None:
    """Before anything is asked of Kafka."""
    done = CliRunner().invoke(cli, [*COMMAND, *given])
    assert done.exit_code == 2
    assert fault in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("option", ["-b", "--watch-bootstrap-servers"])
def test_a_cluster_that_does_not_answer_is_one_line(
    option: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the start it is a wrong address; later nobody leaves for it."""
    monkeypatch.setattr(
        connection_diagnosis,
        "WAIT_LIMITS",
        connection_diagnosis.WaitLimits(request=0.2, refused=0.1),
    )
    done = CliRunner().invoke(cli, [*COMMAND, "--once", option, "127.0.0.1:9"])
    assert (done.exit_code, done.stdout) == (1, "")
    assert done.stderr.startswith("spu-assigner: no Kafka broker answers at 127.0.0.1:9 (")
    assert done.stderr.count("\n") == 1


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "sizes.toml"


def test_a_file_of_sizes_has_one_for_all_and_some_of_their_own(file: Path) -> None:
    """As the module shows it."""
    file.write_text("capacity = 1000\n[brokers.3]\ncores = 8\ncapacity = 4000\n")
    assert read_sizes(file) == (Size(capacity=1000), {3: Size(cores=8, capacity=4000)})
    file.write_text("[resources]\ndisk_bytes = 2_000\n[brokers.3.resources]\nnet = 5\n")
    of_all, of_brokers = read_sizes(file)
    assert of_all == Size(resources={"disk_bytes": 2000})
    assert of_brokers[3].over(of_all) == Size(resources={"disk_bytes": 2000, "net": 5})


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("capacity = ", "is no TOML"),
        ("capacity = -1", "capacity in .* is -1; expected 0 to 2147483647"),
        ("capacity = true", "capacity in .* is True; expected"),
        ("cores = 0", "cores in .* is 0; expected 1 to 1024"),
        ("slots = 3", "slots in .* is 3; expected cores, capacity, resources or brokers"),
        ("resources = 3", "resources in .* is 3; expected whole numbers by name"),
        ("[brokers.3.resources]\ndisk = 1.5", "brokers.3.resources in .*; expected whole numbers"),
        ("resources = {disk = -1}", "resources.disk is -1; expected 0 to 9007199254740991"),
        ("brokers = 3", "brokers in .* is 3; expected tables"),
        ("[brokers.b1]\ncores = 1", "brokers in .* is 'b1'; expected a broker's id"),
        ("[brokers.99999999999]\ncores = 1", "expected a broker's id, 0 to 2147483647"),
        ("[brokers]\n3 = 5", "brokers.3 in .* is 5; expected a table"),
        ("[brokers.3]\nrack = 'a'", "brokers.3.rack in .* is 'a'; expected cores"),
    ],
)
def test_a_wrong_file_of_sizes_is_reported_with_its_entry(
    file: Path, text: str, fault: str
) -> None:
    """It is written by hand."""
    file.write_text(text)
    with pytest.raises(SizesError, match=fault):
        read_sizes(file)


def test_sizes_are_read_again_and_a_wrong_file_changes_nothing(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A slip of the pen must not resize a cluster, nor end the follower."""
    file.write_text("capacity = 10")
    given = FollowOptions(cluster_id="c1", grace_seconds=1, size=Size(cores=2), sizes_file=file)
    rules = SizesOfLooks(given, FollowOutput("table"))
    expected = replace(given, kafka_cluster="k", size=Size(cores=2, capacity=10))
    assert rules.now("k") == expected
    file.write_text("[brokers.3]\ncapacity = 20")
    expected = replace(expected, size=Size(cores=2), sizes={3: Size(capacity=20)})
    assert rules.now("k") == expected
    file.write_text("capacity = x")
    for _ in range(2):
        assert rules.now("k") == expected
    assert capsys.readouterr().err.count("the sizes of before still hold") == 1


def test_the_watched_cluster_has_its_own_settings_or_those_of_the_other(tmp_path: Path) -> None:
    """Never a mixture: its users must not get the passwords of the other's."""
    password = tmp_path / "password"
    password.write_text("secret")
    password.chmod(0o600)
    config = tmp_path / "watched.toml"
    config.write_text(
        'bootstrap_servers = "w:1"\nsecurity_protocol = "SASL_SSL"\nsasl_username = "eye"\n'
        f'sasl_password_file = "{password}"\n'
    )
    own = Connection(bootstrap_servers="e:1", prefix="p.")
    assert _watched(own, None, None) is own
    assert _watched(own, "w:2", None).client() == {"bootstrap.servers": "w:2"}
    found = _watched(own, None, config).client()
    assert (found["bootstrap.servers"], found["sasl.username"]) == ("w:1", "eye")
    assert _watched(own, "w:3", config).client()["bootstrap.servers"] == "w:3"


def placed(partition: int, offset: int, time_ms: int) -> EventPosition:
    return EventPosition(partition, offset, time_ms)


def joined(event_id: str = "j", spu_id: int = 1, **fields: int) -> SpuJoined:
    return SpuJoined(event_id=event_id, cluster_id="c1", spu_id=spu_id, **fields)  # type: ignore[arg-type]  # numbers only


def left(event_id: str = "l") -> SpuLeft:
    return SpuLeft(event_id=event_id, cluster_id="c1", spu_id=1)


@pytest.mark.parametrize(
    ("events", "online"),
    [
        ([(joined(), placed(0, 5, 9)), (left(), placed(0, 6, 9))], False),
        ([(left(), placed(1, 0, 7)), (joined(), placed(0, 5, 8))], True),
        ([(joined(), placed(0, 5, 8)), (left(), placed(1, 0, 7))], True),
        (
            [(joined(), placed(0, 1, 1)), (left(), placed(0, 2, 2)), (joined(), placed(0, 3, 3))],
            False,
        ),
        ([(left(), placed(0, 1, 1)), (joined(cores=0), placed(0, 2, 2))], False),
    ],
    ids=["in order", "another partition", "as read", "a copy", "a refused join"],
)
def test_what_was_announced_last_is_what_the_job_follows(
    events: list[tuple[SpuJoined | SpuLeft, EventPosition]], online: bool
) -> None:
    """Partitions by the broker's time; a copy and what is refused say nothing."""
    reader = AnnouncedOfCluster("c1", origin="t.begin-0")
    for event, place in events:
        reader.take(event, place)
    assert reader.by_spu()[1].online is online


def test_a_leave_for_a_while_differs_from_a_decommission() -> None:
    """`drain` sends the one after the other; a join ends both."""
    reader = AnnouncedOfCluster("c1", origin="t.begin-0")
    found = []
    for offset, event in enumerate(
        (
            left(),
            replace(left(), event_id="for good", mode=LeaveMode.DECOMMISSION),
            joined(),
        )
    ):
        reader.take(event, EventPosition(0, offset, offset))
        announced = reader.by_spu()[1]
        found.append((announced.online, announced.is_decommissioned))
    assert found == [(False, False), (False, True), (True, False)]


def printer(form: str, dry_run: bool = False) -> Callable[..., None]:
    return FollowOutput(form, dry_run=dry_run).event  # type: ignore[arg-type]  # a form


def test_events_are_printed_for_people_and_as_simulate_reads_them(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A dry run shows what would be."""
    printer("table")(joined(capacity=3), missing_for=None)
    printer("table")(left(), missing_for=61.2)
    printer("table", dry_run=True)(joined(capacity=3, cores=2), missing_for=None)
    printer("table", dry_run=True)(left(), missing_for=61.2)
    printer("json")(left(), missing_for=61.2)
    lines = capsys.readouterr().out.splitlines()
    assert lines[:4] == [
        "joined  SPU 1: no rack, 1 core, 3 slots",
        "left    SPU 1: missing for 61 s",
        "would join  SPU 1: no rack, 2 cores, 3 slots",
        "would leave  SPU 1: missing for 61 s",
    ]
    assert event_from_json(lines[4]) == left()


def test_how_things_stand_is_reported_when_it_changes(capsys: pytest.CaptureFixture[str]) -> None:
    """A line at each look would hide what matters."""
    output = FollowOutput("table")
    there = Sightings().after({1: None, 2: "a"}, now=0, gap=1)
    away = there.after({1: None}, now=1, gap=1)
    for decision, sight in (
        (MembershipDecision(awaited={2: 60.0}), away),
        (MembershipDecision(awaited={2: 55.0}), away),
        (MembershipDecision(), there),
        (MembershipDecision(held=(2, 3), left_alone={1: "it is excluded"}), away),
        (MembershipDecision(held=(2, 3), left_alone={1: "it is excluded"}), away),
    ):
        output.decided(decision, sight)
    for _ in range(2):
        output.blind("x:1: no answer")
    for _ in range(2):
        output.sees()
    for text in ("stands by", "stands by", "leads", None, "leads"):
        output.report("election", text)
    lines = [line.removeprefix("follow: ") for line in capsys.readouterr().err.splitlines()]
    assert lines == [
        "misses broker 2; to leave in 60 s unless seen again",
        "sees broker 2 again",
        "holds back the leave of brokers 2, 3: more than half are missing at once, which is rather "
        "a fault of the view; if they are gone, say --allow-mass-leave",
        "leaves broker 1 alone: it is excluded",
        "cannot see the watched cluster: x:1: no answer; nobody leaves",
        "sees the watched cluster again",
        "stands by",
        "leads",
        "leads",
    ]


def test_topics_are_named_by_globs_and_without_one_they_are_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    called: list[tuple[str, ...]] = []

    def followed(*given: Any, **_: object) -> int:
        _, _, options, output = given
        called.append(options.topics)
        output.say("here")
        return 0

    monkeypatch.setattr(loop, "follow_cluster", followed)
    given = ["--topics", "team-*", "--topics", "--once"]
    done = CliRunner().invoke(cli, ["follow", "--cluster", "c1", *given])
    assert (done.exit_code, done.stderr) == (0, "follow: here\n")
    assert called == [("team-*", "*")]


@pytest.mark.parametrize("given", [(), ("--topics", "*", "--once")])
def test_new_topics_are_placed_only_by_who_goes_on_following_topics(given: tuple[str, ...]) -> None:
    """What was made since the command began is not known to one that just looks once."""
    done = CliRunner().invoke(cli, ["follow", "--cluster", "c1", "--place-new", *given])
    assert done.exit_code == 2
    assert "--place-new needs --topics, and goes on: leave out --once" in done.stderr


def test_events_about_topics_and_what_is_left_alone_are_shown(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A line for each event; what stays as it is has one line only."""
    output = FollowOutput("table")
    adopted = TopicAdopted(event_id="a", cluster_id="c1", topic="t", replicas=((1, 2), (2, 1)))
    output.event(adopted)
    output.event(TopicRelease(event_id="r", cluster_id="c1", topic="t"))
    placed = TopicCreate(
        event_id="p", cluster_id="c1", topic="n", partitions=4, replication_factor=2
    )
    output.event(placed)
    output.topics(TopicsTurn(unplaced=(TopicReason(topic="n", reason="it was written to"),)))
    busy = TopicReason(topic="u", reason="is being moved")
    for turn in (TopicsTurn(left=(busy,)), TopicsTurn(left=(busy,), held=("v", "w")), TopicsTurn()):
        output.topics(turn)
    shown = capsys.readouterr()
    assert shown.out.splitlines() == [
        "adopted  topic t: 2 partitions of 2 replicas",
        "released  topic t: it is gone from Kafka",
        "asks to place  topic n: 4 partitions, 2 replicas of each",
    ]
    assert shown.err.splitlines() == [
        "follow: does not place topic n, which is adopted as it is: it was written to",
        "follow: leaves topic u alone: is being moved",
        "follow: holds back the release of v, w: more than half of the topics are gone at once; "
        "if they are, run `adopt --forget-gone`",
    ]
