"""What is between a file of desired topics and a cluster, and which events follow from it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from spu_assigner.core.assigner import Assigner
from spu_assigner.core.base.constraints import NO_CONSTRAINTS, Constraints, SpreadLevel, Toleration
from spu_assigner.core.base.events import (
    Event,
    Policy,
    SpuJoined,
    TopicConstraints,
    TopicCreate,
    TopicGrow,
    TopicReplication,
)
from spu_assigner.core.base.records import ReplicaMap
from spu_assigner.stream.cli import cli
from spu_assigner.stream.clusters.desired.asking import without_rejected
from spu_assigner.stream.clusters.desired.decision import DesiredChanges, desired_changes, event_of
from spu_assigner.stream.clusters.desired.model import (
    DesiredTopic,
    KnownTopic,
    KnownTopics,
    SeenTopics,
)
from spu_assigner.stream.clusters.desired.rendering import (
    DesiredPlan,
    DesiredPlanError,
    desired_json,
    desired_lines,
    is_desired_plan,
    read_desired_plan,
    require_planned,
)
from spu_assigner.stream.clusters.plan.plan_file import write_json

RULES = Constraints(require=("tier = ssd",), apart_from=("u",))


def desired(name: str = "t", partitions: int = 4, factor: int = 2, **more: Any) -> DesiredTopic:
    return DesiredTopic(name=name, partitions=partitions, replication_factor=factor, **more)


def known(
    partitions: int = 4, factor: int = 2, policy: Policy = Policy.BALANCED, **more: Any
) -> KnownTopic:
    return KnownTopic(partitions=partitions, replication_factor=factor, policy=policy, **more)


def planned(
    *topics: DesiredTopic,
    mapped: dict[str, KnownTopic] | None = None,
    waiting: dict[str, KnownTopic] | None = None,
    seen: SeenTopics | None = None,
    answered: frozenset[str] = frozenset(),
) -> DesiredPlan:
    published = KnownTopics(mapped=mapped or {}, waiting=waiting or {})
    found = desired_changes("c1", topics, published, seen)
    return DesiredPlan(
        cluster_id="c1",
        topics=topics,
        found=found,
        events=tuple(event_of(change, answered) for change in found.changes),
        has_seen_kafka=seen is not None,
    )


@pytest.mark.parametrize(
    ("topic", "given", "line"),
    [
        (
            desired(policy=Policy.KAFKA),
            {},
            "+ t  4 partitions, replication factor 2, policy kafka",
        ),
        (desired(), {"mapped": {"t": known()}}, "= 1 topic as desired"),
        (
            desired(policy=Policy.BALANCED),
            {"mapped": {"t": known()}},
            "= 1 topic as desired",
        ),
        (desired(), {"mapped": {"t": known(partitions=3)}}, "~ t  3 → 4 partitions"),
        (desired(), {"mapped": {"t": known(factor=3)}}, "~ t  replication factor 3 → 2"),
        (
            desired(),
            {"mapped": {"t": known(lengths=(1, 2, 2, 2))}},
            "~ t  replication factor 1 to 2 → 2",
        ),
        (
            desired(),
            {"mapped": {"t": known(short={1: 1, 3: 1})}},
            "? t  the lists of partitions 1, 3 wait for SPUs or slots",
        ),
        (
            desired(factor=3, partitions=5),
            {"mapped": {"t": known(short={1: 1})}},
            "? t  the lists of partitions 1 wait for SPUs or slots; replication factor 3 is asked "
            "for after that",
        ),
        (
            desired(factor=3),
            {"mapped": {"t": known(factor=4, short={1: 3})}},
            "~ t  replication factor 4 → 3",
        ),
        (
            desired(partitions=5),
            {"mapped": {"t": known(short={1: 1})}},
            "~ t  4 → 5 partitions",
        ),
        (
            desired(),
            {"mapped": {"t": known(partitions=5)}},
            "! t  has 5 partitions, and the file says 4; partitions are never taken away: write 5, "
            "or delete the topic",
        ),
        (
            desired(policy=Policy.KAFKA),
            {"mapped": {"t": known()}},
            "! t  has policy balanced, and the file says kafka; a topic keeps its policy: write "
            "balanced, or leave it out",
        ),
        (
            desired(constraints=RULES),
            {"mapped": {"u": known()}},
            "+ t  4 partitions, replication factor 2, requires tier = ssd; apart from u",
        ),
        (desired(), {"mapped": {"t": known(constraints=RULES)}}, "= 1 topic as desired"),
        (
            desired(constraints=NO_CONSTRAINTS),
            {"mapped": {"t": known()}},
            "= 1 topic as desired",
        ),
        (
            desired(constraints=RULES),
            {"mapped": {"t": known(constraints=RULES)}},
            "= 1 topic as desired",
        ),
        (
            desired(constraints=RULES),
            {"mapped": {"t": known(), "u": known()}},
            "~ t  other constraints, requires tier = ssd; apart from u",
        ),
        (
            desired(constraints=NO_CONSTRAINTS),
            {"mapped": {"t": known(constraints=RULES)}},
            "~ t  other constraints, none",
        ),
        (
            desired(constraints=RULES),
            {"mapped": {"t": known(policy=Policy.KAFKA), "u": known()}},
            "! t  has policy kafka, and the file names constraints; they are for policy balanced: ",
        ),
        (
            desired(constraints=RULES),
            {},
            "! t  its constraints name u, which the cluster has not, and the file does not add "
            "before it; add that topic, or let only one of two topics name the other",
        ),
        (
            desired(constraints=RULES),
            {"waiting": {"t": known(constraints=RULES)}},
            "? t  its create waits for SPUs or slots",
        ),
        (
            desired(constraints=RULES),
            {"waiting": {"t": known()}},
            "! t  waits as 4 partitions of 2 replicas, and the file says 4 of 2 and other "
            "constraints; withdraw",
        ),
        (desired(), {"waiting": {"t": known()}}, "? t  its create waits for SPUs or slots"),
        (
            desired(),
            {"waiting": {"t": known(partitions=1)}},
            "! t  waits as 1 partitions of 2 replicas, and the file says 4 of 2; withdraw that "
            "request (`spu-assigner produce topic-delete --topic t`) and run this again",
        ),
        (
            desired(),
            {"seen": SeenTopics(partitions={"t": 1})},
            "! t  is in Kafka and has no map; take it in first (`spu-assigner adopt --cluster c1 "
            "--topics t`), or choose another name",
        ),
        (
            desired(),
            {"mapped": {"t": known()}, "seen": SeenTopics(partitions={"t": 1})},
            "= 1 topi",
        ),
        (
            desired("replica-map"),
            {},
            "! replica-map  is called like a topic of the product; rename it",
        ),
    ],
)
def test_a_topic_is_brought_to_what_is_desired_or_it_is_said_why_not(
    topic: DesiredTopic, given: dict[str, Any], line: str
) -> None:
    """It is what a review of the file shows."""
    first, *_ = desired_lines(planned(topic, **given))
    assert first.startswith(line)


def test_topics_that_others_name_come_first() -> None:
    """The assigner knows no topic of the future; of two that name each other neither can."""
    rules = {name: Constraints(apart_from=(name,)) for name in "abcdef"}
    file = (
        desired("a", constraints=rules["b"]),
        desired("b", 9, constraints=rules["c"]),
        desired("c"),
        desired("d", constraints=rules["e"]),
        desired("e", constraints=rules["d"]),
        desired("f", 9, constraints=rules["d"]),
    )
    plan = planned(*file, mapped={"b": known(), "f": known()})
    assert [(type(each), each.topic) for each in topic_events(plan)] == [
        (TopicCreate, "a"),
        (TopicCreate, "c"),
        (TopicConstraints, "b"),
        (TopicGrow, "b"),
    ]
    assert [each.topic for each in plan.found.refused] == ["d", "e", "f"]
    assert ", 1 to constrain otherwise" in list(desired_lines(plan))[-1]


def topic_events(plan: DesiredPlan) -> list[Any]:
    return list(plan.events)


def test_what_is_not_in_the_file_is_reported_and_never_deleted() -> None:
    """A file that lost a line must not cost data."""
    seen = SeenTopics(partitions={"a": 1, "foreign": 1})
    plan = planned(mapped={"a": known()}, waiting={"b": known()}, seen=seen)
    assert plan.events == ()
    assert list(desired_lines(plan)) == [
        ". a  is in the cluster and not in the file; it stays",
        ". b  is in the cluster and not in the file; it stays",
        "nothing to do: 0 to create, 0 to grow, 0 to replicate otherwise, 2 not in the file",
        "1 topic in Kafka without a map and not in the file: foreign",
    ]


def test_of_many_topics_that_are_not_in_the_file_ten_are_named() -> None:
    """The file of a cluster that lives begins with a few topics, and the changes are to be seen."""
    plan = planned(desired(), mapped={f"t{number:02}": known() for number in range(40)})
    lines = list(desired_lines(plan))
    assert sum("not in the file; it stays" in line for line in lines) == 10
    assert ". 30 more topics likewise; -o json names all" in lines
    assert lines[-1].endswith(", 40 not in the file")
    assert len(desired_json(plan)["extra"]) == 40


def test_a_mapped_topic_that_is_gone_from_kafka_is_not_as_desired() -> None:
    """Its map alone is as desired; its data are gone, and no event brings them back."""
    seen = SeenTopics(partitions={"u": 4}, gone=frozenset({"t"}))
    plan = planned(desired(), desired("u"), mapped={"t": known(), "u": known()}, seen=seen)
    assert list(desired_lines(plan)) == [
        "! t  was in Kafka before; its data are gone: create it again, empty (`spu-assigner apply "
        "--cluster c1 --recreate`), or delete its map (`spu-assigner produce topic-delete "
        "--cluster c1 --topic t`)",
        "= 1 topic as desired",
        "nothing to do: 0 to create, 0 to grow, 0 to replicate otherwise, 1 that cannot be as "
        "desired",
    ]
    assert desired_json(plan)["behind"] == []


def test_a_topic_that_this_user_may_not_see_in_kafka_is_not_taken_for_a_new_one() -> None:
    """Neither one that has a map nor one that has none."""
    seen = SeenTopics(hidden=frozenset({"t", "u"}))
    plan = planned(desired(), desired("u"), mapped={"u": known()}, seen=seen)
    assert plan.events == ()
    assert [each.topic for each in plan.found.refused] == ["t", "u"]
    assert all("grant it Describe" in each.reason for each in plan.found.refused)


def test_a_name_that_kafka_refuses_beside_another_is_not_requested() -> None:
    """Of a topic in Kafka without a map; of a mapped one, and within the file, the core says it."""
    seen = SeenTopics(partitions={"a_b": 1, "c.d": 1, "e": 1})
    plan = planned(desired("a.b"), desired("c_d"), desired("e.f"), desired("e_f"), seen=seen)
    assert [each.topic for each in plan.found.refused] == ["a.b", "c_d"]
    assert plan.found.refused[0].reason == (
        "differs from topic 'a_b' in Kafka by dots and underscores alone, which Kafka refuses; "
        "choose another name"
    )
    assigner = Assigner()
    for spu_id in range(2):
        assigner.apply(SpuJoined(event_id=f"j{spu_id}", cluster_id="c1", spu_id=spu_id))
    found = without_rejected(plan.found, assigner.clusters["c1"], reserved=frozenset())
    assert [change.event.topic for change in found.changes] == ["e.f"]
    assert found.refused[2].reason.endswith("choose another name (TOPIC_COLLIDES)")


def test_what_apply_has_still_to_make_in_kafka_is_named() -> None:
    """Its map is as desired, and Kafka has nothing of it, or not all partitions."""
    seen = SeenTopics(partitions={"u": 3, "v": 4})
    topics = [desired(name) for name in "tuv"]
    plan = planned(*topics, mapped=dict.fromkeys("tuv", known()), seen=seen)
    lines = list(desired_lines(plan))
    assert lines[0] == "= 3 topics as desired"
    assert lines[-1] == (
        "2 topics not in Kafka yet, or without all partitions: t, u; `spu-assigner apply --cluster "
        "c1` makes them"
    )
    assert desired_json(plan)["behind"] == ["t", "u"]
    assert desired_json(planned(*topics))["behind"] is None


def test_what_the_core_rejects_is_not_planned() -> None:
    """In the order of the plan: what comes before it holds slots."""
    assigner = Assigner()
    for spu_id in range(3):
        join = SpuJoined(event_id=f"j{spu_id}", cluster_id="c1", spu_id=spu_id, capacity=10)
        assigner.apply(join)
    assigner.apply(
        TopicCreate(event_id="t", cluster_id="c1", topic="t", partitions=4, replication_factor=2)
    )
    file = [desired("t", 6, 5), desired("a", 6, 2), desired("b", 1, 5), desired("c", 9, 3)]
    plan = planned(*file, mapped={"t": known()})
    assert len(plan.events) == 5
    found = without_rejected(plan.found, assigner.clusters["c1"], reserved=frozenset({"a.b"}))
    assert [change.event.topic for change in found.changes] == ["t", "a"]
    assert [type(change.event) for change in found.changes] == [TopicGrow, TopicCreate]
    assert [each.topic for each in found.refused] == ["t", "b", "c"]
    reasons = [each.reason for each in found.refused]
    assert [reason.partition(": rejected as the cluster is now: ")[0] for reason in reasons] == [
        "replication factor 2 → 5",
        "1 partitions, replication factor 5",
        "9 partitions, replication factor 3",
    ]
    assert all(reason.endswith("(INSUFFICIENT_SPUS)") for reason in reasons[:2])
    assert reasons[2].endswith("(INSUFFICIENT_CAPACITY)")


def test_settings_are_compared_where_kafka_has_the_topic() -> None:
    """They are no part of a replica map, so no event can set them."""
    topic = desired(config={"retention.ms": "2", "cleanup.policy": "compact", "no.such": "x"})
    seen = SeenTopics(
        partitions={"t": 4}, configs={"t": {"retention.ms": "1", "cleanup.policy": "compact"}}
    )
    plan = planned(topic, mapped={"t": known()}, seen=seen)
    end = "set it with kafka-configs: settings are only compared"
    assert list(desired_lines(plan))[:2] == [
        f"! t  no.such is not set in Kafka, and the file says x; {end}",
        f"! t  retention.ms is 1 in Kafka, and the file says 2; {end}",
    ]
    assert (plan.events, plan.found.unchanged) == ((), 1)
    ends = [
        list(desired_lines(planned(each, mapped={"t": known()}, seen=seen)))[-1]
        for each in (topic, desired(config={"retention.ms": "2"}))
    ]
    assert [end.rpartition(", ")[2] for end in ends] == [
        "2 settings that differ",
        "1 setting that differs",
    ]


def create(plan: DesiredPlan) -> Event:
    (event,) = plan.events
    return event


def test_the_same_request_has_the_same_id_and_another_has_another() -> None:
    """So that two runs, or two machines, ask for it once."""
    first = create(planned(desired()))
    assert first == create(planned(desired(), desired("u"), mapped={"u": known()}))
    others = [
        create(planned(desired(partitions=5))),
        create(planned(desired(factor=3))),
        create(planned(desired(policy=Policy.KAFKA))),
        create(planned(desired("u"))),
        create(planned(desired(), mapped={"t": known(partitions=1)})),
    ]
    assert len({event.event_id for event in [first, *others]}) == len(others) + 1
    elsewhere = desired_changes("c2", [desired()], KnownTopics(), None)
    assert event_of(elsewhere.changes[0], ()).event_id != first.event_id


def test_a_request_that_was_answered_and_is_needed_again_has_a_new_id() -> None:
    """The job would remember the old one, and do nothing."""
    first = create(planned(desired()))
    second = create(planned(desired(), answered=frozenset({first.event_id})))
    third = create(planned(desired(), answered=frozenset({first.event_id, second.event_id})))
    assert len({first.event_id, second.event_id, third.event_id}) == 3
    assert replace(second, event_id=first.event_id) == first


def test_the_events_make_the_cluster_as_desired_and_then_there_is_nothing_to_do() -> None:
    """By the core itself: created, sent twice, grown, deleted, created again."""
    assigner = Assigner()
    for spu_id in range(3):
        assigner.apply(SpuJoined(event_id=f"j{spu_id}", cluster_id="c1", spu_id=spu_id))
    maps: dict[str, KnownTopic] = {}

    def sent(plan: DesiredPlan) -> list[Any]:
        answers = [each for event in plan.events for each in assigner.apply(event)]
        for each in answers:
            if isinstance(each, ReplicaMap) and each.replicas is not None:
                maps[each.topic] = known(len(each.replicas), each.replication_factor, each.policy)
        return answers

    file = [desired("a"), desired("b", policy=Policy.KAFKA)]
    plan = planned(*file)
    assert [type(event) for event in plan.events] == [TopicCreate, TopicCreate]
    assert len(sent(plan)) == 4
    assert sent(plan) == []
    assert planned(*file, mapped=maps).events == ()
    grown = [desired("a", 9, 3), file[1]]
    plan = planned(*grown, mapped=maps)
    assert [type(event) for event in plan.events] == [TopicReplication, TopicGrow]
    sent(plan)
    assert planned(*grown, mapped=maps).events == ()


def test_a_saved_plan_is_read_back_and_refuses_what_was_not_planned(tmp_path: Path) -> None:
    """What is done already is left out; what has changed is planned again, by a person."""
    file = tmp_path / "plan.json"
    rules = Constraints(spread=(SpreadLevel("zone", 1),), tolerations=(Toleration("k"),))
    topics = (
        desired("a", config={"x": "1"}),
        desired("b", policy=Policy.KAFKA),
        desired("c", constraints=rules),
        desired("d", constraints=NO_CONSTRAINTS),
    )
    plan = planned(*topics)
    write_json(file, desired_json(plan))
    saved = read_desired_plan(file)
    assert is_desired_plan(file)
    assert (saved.cluster_id, saved.topics) == ("c1", topics)
    require_planned(plan, saved)
    require_planned(planned(*topics, mapped={"a": known()}), saved)
    with pytest.raises(DesiredPlanError, match="topics a need something else now; nothing"):
        require_planned(planned(*topics, mapped={"a": known(partitions=1)}), saved)


@pytest.mark.parametrize(
    "change",
    [
        lambda document: document.pop("topics"),
        lambda document: document.update(format=2),
        lambda document: document["topics"][0].update(partitions="4"),
        lambda document: document["topics"][0].update(policy="best"),
        lambda document: document.update(events=[{}]),
        lambda document: document["topics"][0].update(constraints={"require": "a"}),
    ],
)
def test_a_file_that_is_no_saved_plan_is_refused(change: Any, tmp_path: Path) -> None:
    """It decides what is sent."""
    file = tmp_path / "plan.json"
    document = desired_json(planned(desired()))
    change(document)
    file.write_text(json.dumps(document), "utf-8")
    with pytest.raises(DesiredPlanError, match="expected what `spu-assigner plan --desired --out`"):
        read_desired_plan(file)


def call(*arguments: object) -> tuple[int, str]:
    done = CliRunner().invoke(cli, [str(each) for each in arguments])
    return done.exit_code, done.stderr


def test_options_that_mean_nothing_for_desired_topics_are_refused(tmp_path: Path) -> None:
    """Whoever gives --delete expects deletions."""
    file, plan = tmp_path / "topics.yaml", tmp_path / "plan.json"
    file.write_text("topics: []\n", "utf-8")
    write_json(plan, desired_json(planned(desired())))
    status, text = call("plan", "--cluster", "c1", "--desired", file, "--delete", "--topics", "a")
    assert (status, "--topics, --delete cannot be given with desired topics" in text) == (1, True)
    assert call("plan", "--desired", file) == (
        1,
        "spu-assigner plan: Missing option '--cluster' (see spu-assigner plan --help)\n",
    )
    for arguments in (("--cluster", "c1"), ("--desired", file)):
        status, text = call("apply", plan, *arguments)
        assert (status, "PLAN says what to do: leave out --desired and" in text) == (2, True)
    status, text = call("apply", plan, "--reassignment-file", tmp_path / "moves.json")
    assert (status, "--reassignment-file cannot be given" in text) == (2, True)


def test_every_fault_of_the_file_is_a_line_and_the_status_is_1(tmp_path: Path) -> None:
    """Nothing was compared, and nothing is sent."""
    file = tmp_path / "topics.yaml"
    file.write_text("topics:\n  - name: t\n    partitions: 0\n", "utf-8")
    for command in ("plan", "apply"):
        status, text = call(command, "--cluster", "c1", "--desired", file)
        assert status == 1
        assert [line.partition(": ")[0] for line in text.splitlines()] == [
            f"{file}:2",
            f"{file}:3",
        ]


@pytest.mark.parametrize("command", ["plan", "apply"])
def test_a_file_of_desired_topics_that_is_not_there_is_one_line_with_advice(
    command: str, tmp_path: Path
) -> None:
    """As any command says it: who, what was found, what was expected."""
    file = tmp_path / "no.yaml"
    assert call(command, "--cluster", "c1", "--desired", file) == (
        1,
        f"spu-assigner {command}: the file of desired topics {str(file)!r} cannot be read: No such "
        "file or directory; expected YAML with a list of `topics`: check its path\n",
    )


def test_a_saved_plan_that_is_not_there_is_one_line_with_advice(tmp_path: Path) -> None:
    """It could have been of either kind."""
    file = tmp_path / "no.json"
    assert call("apply", file) == (
        1,
        f"spu-assigner: the plan {str(file)!r} cannot be read: No such file or directory; expected "
        "what `spu-assigner plan --out` writes: check its path\n",
    )


def test_a_plan_of_replica_maps_is_not_taken_for_one_of_desired_topics(tmp_path: Path) -> None:
    """Both are given to `apply` in the same place."""
    file = tmp_path / "plan.json"
    file.write_text('{"format":2,"product":"spu-assigner"}', "utf-8")
    assert not is_desired_plan(file)
    assert not is_desired_plan(tmp_path)
    assert DesiredChanges().changes == ()
