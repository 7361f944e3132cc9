"""The file of desired topics: what it may hold, and what is said of one that may not."""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from spu_assigner.core.base.constraints import Constraints, Preference, SpreadLevel, Toleration
from spu_assigner.core.base.events import Policy
from spu_assigner.stream.clusters.desired.model import DesiredTopic
from spu_assigner.stream.clusters.desired.topics_file import (
    FAULTS_MAX,
    DesiredFileError,
    UnreadableTopicsError,
    desired_topics,
    read_desired,
)

_ROOT = Path(__file__).parents[5]
GOOD = """\
# Owned by team orders.
version: 1
topics:
  - name: orders
    partitions: 12
    replication_factor: 3
    policy: balanced
    config:
      retention.ms: 86400000
      cleanup.policy: compact
      preallocate: True
    constraints:
      require: ["tier in (ssd, nvme)"]
      tolerations: [{key: pool, value: "8"}, {key: spare}]
      prefer: [{select: "!old", weight: -5}]
      spread: [{label: zone, max: 1}, {label: rack, max: }]
  - {name: "123", partitions: 1, replication_factor: 1}
"""


def read(text: str) -> tuple[DesiredTopic, ...]:
    return desired_topics(text.encode(), source="topics.yaml")


def faults(text: str) -> list[str]:
    with pytest.raises(DesiredFileError) as caught:
        read(text)
    return caught.value.faults


def test_a_file_gives_its_topics_in_its_order() -> None:
    """Settings are kept as Kafka writes them."""
    assert read(GOOD) == (
        DesiredTopic(
            name="orders",
            partitions=12,
            replication_factor=3,
            policy=Policy.BALANCED,
            config={
                "retention.ms": "86400000",
                "cleanup.policy": "compact",
                "preallocate": "true",
            },
            constraints=Constraints(
                require=("tier in (ssd, nvme)",),
                tolerations=(Toleration("pool", "8"), Toleration("spare")),
                prefer=(Preference("!old", -5),),
                spread=(SpreadLevel("zone", 1), SpreadLevel("rack")),
            ),
        ),
        DesiredTopic(name="123", partitions=1, replication_factor=1),
    )


def test_a_cluster_may_desire_no_topics() -> None:
    """A file that is generated may have none yet."""
    assert read("topics: []\n") == ()


def topic(**changed: str) -> str:
    members = {"name": "t", "partitions": "1", "replication_factor": "1", **changed}
    lines = "".join(f"    {key}: {value}\n" for key, value in members.items() if value != "-")
    return f"topics:\n  -\n{lines}"


TOPIC_RULE = (
    "expected a mapping with name, partitions, replication_factor, policy, config, constraints"
)


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("", "1: is empty; expected a mapping with `topics`"),
        ("- a\n", "1: found a list, expected a mapping with topics, version"),
        ("a: [\n", "2: is no YAML: "),
        ("topics: []\n---\ntopics: []\n", "2: is no YAML: "),
        ("topics: {}\n", "1: topics: found a mapping, expected a list of topics"),
        ("topics:\n", "1: topics: found nothing, expected a list of topics"),
        ("version: 2\ntopics: []\n", "1: version: found 2 (int), expected 1"),
        ("version: 1\n", "1: has no `topics`; expected a mapping with topics, version"),
        ("topics: [t]\n", f"1: topics[0]: found 't', {TOPIC_RULE}"),
        (topic(partition="1"), f"6: topics[0]: has 'partition'; {TOPIC_RULE}"),
        (topic(partitions="-"), f"3: topics[0]: has no `partitions`; {TOPIC_RULE}"),
        (topic(name="t\n    name: u"), "4: topics[0]: has `name` twice; expected it once"),
        (topic(name="12"), "3: topics[0].name: found 12 (int), expected a text in quotes"),
        (topic(name="no"), "3: topics[0].name: found no (bool), expected a text in quotes"),
        (topic(name="a/b"), "3: topics[0].name: found 'a/b', expected 1 to 249 of "),
        (topic(name="__own"), "3: topics[0].name: found '__own', expected a name without the `__`"),
        (topic(partitions="many"), "4: topics[0].partitions: found 'many', expected a whole num"),
        (topic(partitions="0"), "found 0 (int), expected a whole number from 1 to 100000"),
        (topic(partitions="1.0"), "found 1.0 (float), expected a whole number from 1 to 100000"),
        (topic(partitions="0x10"), "found 0x10 (int), expected a whole number from 1 to 100000"),
        (topic(partitions="'3'"), "found '3', expected a whole number from 1 to 100000"),
        (topic(partitions="yes"), "found yes (bool), expected a whole number from 1 to 100000"),
        (topic(replication_factor="33"), "replication_factor: found 33 (int), expected a whole nu"),
        (topic(policy="best"), "policy: found 'best', expected one of fluvio, "),
        (
            topic(policy="manual"),
            "; manual lists are sent with `spu-assigner produce",
        ),
        (topic(config="[a]"), "config: found a list, expected a mapping of Kafka's settings"),
        (topic(config="{a: [1]}"), "config.a: found a list, expected one value"),
        (topic(config="{a: }"), "config.a: found nothing, expected one value"),
        (topic(config="{A B: 1}"), "config: found 'A B', expected the name of a setting"),
        (topic(config="{a: 1, a: 2}"), "config: has `a` twice; expected it once"),
        (topic(constraints="[a]"), "6: topics[0]: constraints is a list; expected an object that"),
        (
            topic(constraints="\n      spread:\n        - label: a\n          max: many"),
            '9: topics[0]: constraints.spread[0].max is "many"; expected a whole number',
        ),
        (
            topic(constraints="{require: ['a b']}"),
            "6: topics[0]: constraints.require[0]: 'a b' is no selector; expected key, ",
        ),
        (topic(constraints="{apart_from: [t]}"), "apart_from[0] is 't'; expected the name of anot"),
        (topic(constraints="{forbid: [a]}", policy="kafka"), "has constraints, which are for bal"),
        (
            topic(constraints="{forbid: [a], forbid: [b]}"),
            "topics[0]: has `forbid` twice; expected",
        ),
        (topic(constraints="&c {require: *c}"), "has constraints of more than 1000 parts, or deep"),
        (
            topic(
                constraints="{require: [&a [x, x, x, x, x, x, x, x, x, x], "
                "&b [*a, *a, *a, *a, *a, *a, *a, *a, *a, *a], "
                "[*b, *b, *b, *b, *b, *b, *b, *b, *b]]}"
            ),
            "has constraints of more than 1000 parts, or deep ones",
        ),
        (topic(name="!!python/object/apply:os.system ['true']"), "found a list, expected a text"),
        (topic(name='"\\e[31m"'), "found '\\\\x1b[31m', expected 1 to 249"),
    ],
)
def test_what_is_wrong_is_said_with_its_line(text: str, fault: str) -> None:
    """A person fixes the file by it, or the review of a change is red by it."""
    (found,) = faults(text)
    assert found.startswith("topics.yaml:")
    assert fault in found


def test_all_faults_are_said_at_once() -> None:
    """One run of CI for all of them."""
    text = f"{topic(partitions='0', policy='best')}  - name: t\n    partitions: 1\n"
    found = faults(text)
    assert [each.partition(": ")[0] for each in found] == [
        "topics.yaml:4",
        "topics.yaml:6",
        "topics.yaml:7",
        "topics.yaml:7",
    ]
    assert "found 't', which line 3 has; expected each name once" in found[3]
    assert len(faults("topics:\n" + "  - t\n" * 1_000)) == FAULTS_MAX


@pytest.mark.parametrize(
    "text",
    [
        "[" * 50_000,
        "a: &a [*a]\n",
        "x: &x {y: &y [*x, *y]}\ntopics: *x\n",
        "topics: &t\n  - {name: a, partitions: 1, replication_factor: 1, config: *t}\n",
    ],
)
def test_a_file_that_is_built_to_break_readers_is_refused(text: str) -> None:
    """Depth and references cost nothing: only what the schema names is looked at."""
    assert faults(text)


@given(st.binary(max_size=200) | st.text(alphabet="topics:-[]{}&*!|>'\" \n\tabc1", max_size=80))
def test_any_bytes_are_topics_or_faults(found: bytes | str) -> None:
    """Whoever writes the file never sees a traceback."""
    data = found if isinstance(found, bytes) else found.encode()
    with suppress(DesiredFileError):
        assert all(each.partitions > 0 for each in desired_topics(data, source="f"))


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    """With the reason of the system."""
    with pytest.raises(UnreadableTopicsError, match=r"no\.yaml' cannot be read: No such file"):
        read_desired(tmp_path / "no.yaml")


def test_the_documentation_names_what_a_file_and_a_topic_know_and_nothing_else() -> None:
    """Who writes a name of another tool reads that it is an error, and which names there are."""
    page = (_ROOT / "docs/kafka-clusters.md").read_text(encoding="utf-8")
    strict, _, of_others = page.partition("- **The file is strict**")[2].partition("Any other name")
    assert "is an error" in of_others.partition(". ")[0]
    named = re.findall(r"`(\w+)`", strict)
    refused = [
        re.search(r"has 'racks'; expected a mapping with ([\w, ]+)$", fault)
        for fault in faults(
            "racks: {}\ntopics: [{name: t, partitions: 1, replication_factor: 1, racks: {}}]\n"
        )
    ]
    known = [name for each in refused if each is not None for name in each[1].split(", ")]
    assert len(refused) == 2
    assert sorted(named) == sorted(known)
