"""The file of desired topics: what it may hold, and what is said of one that may not."""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from spu_assigner.core.base.constraints import Constraints, SpreadLevel, Toleration
from spu_assigner.core.base.events import Policy, TopicCreate
from spu_assigner.stream.clusters.desired.topics_file import (
    FAULTS_MAX,
    DesiredFileError,
    desired_topics,
)

_ROOT = Path(__file__).parents[5]


def read(text: str) -> tuple[TopicCreate, ...]:
    return tuple(desired_topics(text.encode(), "c1", source="topics.yaml"))


def faults(text: str) -> list[str]:
    with pytest.raises(DesiredFileError) as caught:
        read(text)
    return caught.value.faults


def test_a_file_gives_its_topics_in_its_order() -> None:
    """As creates; a file that is generated may have none yet."""
    rules = """\
      require: ["tier in (ssd, nvme)"]
      tolerations: [{key: pool, value: "8"}, {key: spare}]
      spread: [{label: zone, max: 1}, {label: rack, max: }]
"""
    text = f"# Of team orders.\nversion: 1\n{topic(name='orders', policy='kraft', constraints='')}"
    plain = '  - {name: "123", partitions: 1, replication_factor: 1}\n'
    constraints = Constraints(
        require=("tier in (ssd, nvme)",),
        tolerations=(Toleration("pool", "8"), Toleration("spare")),
        spread=(SpreadLevel("zone", 1), SpreadLevel("rack")),
    )
    common = {"event_id": "desired", "cluster_id": "c1"}
    orders = TopicCreate(**common, topic="orders", policy=Policy.KRAFT, constraints=constraints)
    assert read(text + rules + plain) == (orders, TopicCreate(**common, topic="123"))
    assert read("topics: []\n") == ()


def test_settings_are_texts_as_they_are_written() -> None:
    """As Kafka takes them: it judges which there are, and what they may be."""
    config = """
      retention.ms: 86400000
      min.cleanable.dirty.ratio: 0.50
      preallocate: true
      cleanup.policy: "compact,delete"
      compression.type: no
"""
    found = desired_topics(f"{topic(config=config)}".encode(), "c1", source="topics.yaml")
    assert [*found.values()] == [
        {
            "retention.ms": "86400000",
            "min.cleanable.dirty.ratio": "0.50",
            "preallocate": "true",
            "cleanup.policy": "compact,delete",
            "compression.type": "no",
        }
    ]


def topic(**changed: str) -> str:
    members = {"name": "t", "partitions": "1", "replication_factor": "1", **changed}
    lines = "".join(f"    {key}: {value}\n" for key, value in members.items() if value != "-")
    return f"topics:\n  -\n{lines}"


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("", ": is null; expected an object that may have topics, version"),
        ("- a\n", ": is a list; expected"),
        ("a: [\n", ": is no YAML: "),
        ("topics: []\n---\ntopics: []\n", ": is no YAML: "),
        ("topics: {}\n", ": topics is an object; expected a list of objects with name, part"),
        ("version: 2\ntopics: []\n", ": version is 2; expected 1"),
        ("version: 1\n", ": topics is absent; expected topics"),
        ("topics: []\nracks: {}\n", ': has an unknown field "racks"; it may have topics, version'),
        ("topics: [t]\n", ': topics[0] is "t"; expected an object that may have name, part'),
        (topic(partition="1"), ': topics[0] has an unknown field "partition"; it may have name, '),
        (topic(partitions="-"), ": topics[0].partitions is absent; expected name, "),
        (topic(name="t\n    name: u"), ": is no YAML: line 3: 'name' stands twice"),
        (topic(name="12"), ": topics[0].name is 12; expected a text"),
        (topic(name="no"), ": topics[0].name is false; expected a text"),
        (topic(name="a/b"), ": topics[0]: topic is 'a/b'; expected 1 to 249 of"),
        (topic(name='"\\e[31m"'), ": topics[0]: topic is "),
        (topic(partitions="many"), ': topics[0].partitions is "many"; expected a whole number'),
        (topic(partitions="0x10"), 'partitions is "0x10"; expected a whole number'),
        (topic(partitions="010"), 'partitions is "010"; expected a whole number'),
        (topic(partitions="'3'"), 'partitions is "3"; expected a whole number'),
        (topic(policy="best"), 'policy is "best"; expected one of fluvio, '),
        (
            topic(constraints="\n      spread:\n        - label: a\n          max: many"),
            ': topics[0].constraints.spread[0].max is "many"; expected a whole number',
        ),
        (topic(config="[a]"), ": topics[0].config is a list; expected a mapping of names"),
        (topic(config="{a: {b: c}}"), ": topics[0].config.a is an object; expected a text"),
        (topic(config="{retention.ms: }"), ": topics[0].config.retention.ms is null; expected a"),
        (topic(name="!!python/object/apply:os.system ['true']"), ": is no YAML: "),
    ],
)
def test_what_is_wrong_is_said_with_its_place(text: str, fault: str) -> None:
    """A person fixes the file by it, or the review of a change is red by it."""
    (found,) = faults(text)
    assert found.startswith("topics.yaml: ")
    assert fault in found


def test_all_faults_are_said_at_once() -> None:
    """One run of CI for all of them."""
    text = f"{topic(partitions='x', policy='best')}  - name: t\n    partitions: 1\n"
    assert [each.partition(" is ")[0] for each in faults(text)] == [
        f"topics.yaml: topics[{of}"
        for of in ("0].partitions", "0].policy", "1].replication_factor")
    ]
    twice = f"{topic()}  - {{name: t, partitions: 1, replication_factor: 1}}\n"
    assert faults(twice) == ["topics.yaml: topics[1].name is t, as of another; expected each once"]
    assert len(faults("topics:\n" + "  - t\n" * 1_000)) == FAULTS_MAX


@pytest.mark.parametrize(
    "text", ["[" * 50_000, "a: &a [*a]\n", "x: &x {y: &y [*x, *y]}\ntopics: *x\n"]
)
def test_a_file_that_is_built_to_break_readers_is_refused(text: str) -> None:
    """Depth and references cost nothing."""
    assert "is no YAML: " in faults(text)[0]


@given(st.binary(max_size=200) | st.text(alphabet="topics:-[]{}&*!|>'\" \n\tabc1", max_size=80))
def test_any_bytes_are_topics_or_faults(found: bytes | str) -> None:
    """Whoever writes the file never sees a traceback."""
    data = found if isinstance(found, bytes) else found.encode()
    with suppress(DesiredFileError):
        desired_topics(data, "c1", source="f")


def test_the_documentation_names_what_a_topic_knows_and_nothing_else() -> None:
    """Who writes a name of another tool reads that it is an error, and which names there are."""
    page = (_ROOT / "docs/kafka-clusters.md").read_text(encoding="utf-8")
    strict, _, of_others = page.partition("- **The file is strict**")[2].partition("Any other name")
    assert "is an error" in of_others.partition(". ")[0]
    (fault,) = faults(topic(racks="{}"))
    known = fault.partition("; it may have ")[2].split(", ")
    assert sorted(re.findall(r"`(\w+)`", strict)) == sorted(["version", "topics", *known])
