"""The audit finds every damage, and nothing where there is none.

Histories are made by the job's own parts (`support/events/histories.py`); what damage is, and what
is not, says `support/events/corruptions.py`.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from functools import cache

import pytest
from spu_assigner.schemas.messages.codec import decode_record, encode_record
from spu_assigner.schemas.messages.wire import CommitMarker
from spu_assigner.stream.audit.verify import history as verify_history
from spu_assigner.stream.audit.verify.audit import verify
from spu_assigner.stream.audit.verify.history import _TABLES
from spu_assigner.stream.audit.verify.marker_chain import wire_of
from spu_assigner.stream.audit.verify.model import AuditReport, FindingKind, How, Read, VerifyError
from support.events.builders import Events
from support.events.corruptions import AUDIT, COMMITS, CORRUPTIONS
from support.events.histories import PREFIX, Log, Story, Topics, Writer, written
from support.events.random_lives import Life, life_of, rebalanced_life
from support.job.streams import Outgoing
from support.project.case_share import share_of

SEEDS = share_of(1_000)
BLOCKS = 10  # so that several workers share them
HISTORIES = 16
INPUTS = ["spu-events", "topic-events"]
ANSWERS = ["topic-status", "ring-events", "dead-letter"]
STATES = ("whole", "compacted", "without inputs")


@cache
def sound(number: int, state: str) -> Topics:
    """A history in which all is right."""
    topics = written(number).topics
    draw = random.Random(number)
    if state == "compacted":
        topics.compact(draw)
    if state == "without inputs":
        topics.expire(draw, INPUTS)
    return topics


def findings(report: AuditReport) -> list[str]:
    return [
        f"{each.kind.name} {each.batch and each.batch.batch} "
        f"{each.at.topic}/{each.at.partition}@{each.at.offset} "
        f"{each.found} / {each.expected}"
        for each in report.findings
    ]


@pytest.mark.parametrize("block", range(BLOCKS))
def test_every_seeded_corruption_is_found(block: int) -> None:
    """Drop, duplicate, swap, torn batch, altered byte, foreign message, changed marker."""
    for seed in range(block, SEEDS, BLOCKS):
        draw = random.Random(seed)
        state = STATES[seed % len(STATES)]
        corrupt = CORRUPTIONS[seed // len(STATES) % len(CORRUPTIONS)]
        damage = None
        while damage is None:
            topics = sound(draw.randrange(HISTORIES), state).copy()
            damage = corrupt(topics, draw, state != "without inputs")
        report = verify(topics.history())
        assert not report.is_right, f"seed {seed}, {state}: {damage.what} was not found"
        if damage.topic not in ("assigner-audit", "assigner-commits", *INPUTS):
            assert any(
                each.at.topic == damage.topic or each.batch is not None for each in report.findings
            ), f"seed {seed}: {damage.what}; {findings(report)}"


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("number", range(HISTORIES))
def test_nothing_is_found_where_all_is_right(number: int, state: str) -> None:
    """Also not after compaction, nor without the inputs; and how far was checked is reported."""
    report = verify(sound(number, state).history())
    assert findings(report) == []
    how = How.DIGEST if state == "without inputs" else How.REPLAYED
    assert report.checked == {how: len(report.labels)} == {how: 6}
    why = [line.partition(": ")[2].partition(":")[0] for line in report.unchecked()]
    assert why == (["not replayed"] if state == "without inputs" else [])


@pytest.mark.parametrize("lives", [life_of, rebalanced_life])
@pytest.mark.parametrize("seed", [1, 3, 5, 11])
def test_needs_and_rules_are_replayed(seed: int, lives: Callable[[int], Life]) -> None:
    """Of every four lives one has resources and one constraints: both come back out of messages."""
    writer, events = Writer(seed), lives(seed).events
    described = [e for e in events if getattr(e, "demand", None) or getattr(e, "constraints", None)]
    assert described
    for begin in range(0, len(events), 5):
        writer.send([Outgoing.of_event(each) for each in events[begin : begin + 5]])
        writer.batch()
    report = verify(writer.topics.history())
    assert findings(report) == []
    assert report.checked[How.REPLAYED] == len(report.labels) > 1


@pytest.mark.parametrize("seed", [*range(40), 221, 617])  # of these two markers have expired
def test_nothing_is_found_whatever_has_expired(seed: int) -> None:
    """Retention drops the beginnings of any topics, compaction what it may."""
    draw = random.Random(seed)
    topics = written(seed, recover=draw.random() < 0.3).topics
    if draw.random() < 0.7:
        topics.compact(draw)
    expired = [name for name in [*INPUTS, *ANSWERS, "assigner-audit"] if draw.random() < 0.5]
    topics.expire(draw, expired)
    report = verify(topics.history())
    assert findings(report) == []
    begun = [place for place, begin in topics.begins.items() if begin and place[0] in ANSWERS]
    unchecked = "\n".join(report.unchecked())
    if report.labels:
        assert all(f"{name}/{partition} begins at" in unchecked for name, partition in begun)


def test_where_the_inputs_end_within_the_history_it_is_said_from_which_batch_on() -> None:
    """What was not checked must never pass for what was."""
    topics = sound(3, "whole").copy()
    read = [decoded(each).offsets.get(f"{PREFIX}topic-events", ()) for each in topics.logs[AUDIT]]
    first, part = next((number, parts[0]) for number, parts in enumerate(read) if parts)
    log = ("topic-events", part.partition)
    topics.logs[log] = [each for each in topics.logs[log] if each.offset > part.first]
    topics.begins[log] = part.first + 1
    assert first > 0
    report = verify(topics.history())
    assert findings(report) == []
    assert report.checked[How.REPLAYED] == first
    [line] = report.unchecked()
    assert line.startswith(f"batch {first} of checkpoint ")
    assert "not replayed: inputs expired: topic-events/" in line


def decoded(read: Read) -> CommitMarker:
    marker = decode_record(read.value or b"")
    assert isinstance(marker, CommitMarker)
    return marker


def with_markers(topics: Topics, change: Callable[[CommitMarker], CommitMarker]) -> Topics:
    """The topics with other markers, the same on both topics."""
    changed = topics.copy()
    for log in (AUDIT, COMMITS):
        changed.logs[log] = [
            read._replace(
                value=encode_record(change(decoded(read)), wire=wire_of(read.value or b""))
            )
            for read in topics.logs[log]
        ]
    return changed


def test_a_message_that_a_position_passes_over_is_found() -> None:
    """No batch names it, and the next one would begin behind it."""
    writer = written(3)
    writer.send([Outgoing.of_event(Events("c0", first=900).create("unread"), 0)])
    last = max(decoded(read).batch for read in writer.topics.logs[AUDIT])
    end = writer.topics.ends["topic-events", 0]

    def passing(marker: CommitMarker) -> CommitMarker:
        topic = f"{PREFIX}topic-events"
        parts = tuple(
            replace(each, next=end) if (marker.batch, each.partition) == (last, 0) else each
            for each in marker.positions[topic]
        )
        return replace(marker, positions={**marker.positions, topic: parts})

    assert findings(verify(writer.topics.history())) == []
    [found] = findings(verify(with_markers(writer.topics, passing).history()))
    assert found.startswith(f"INPUT {last} topic-events/0@")
    assert "a message that no batch has read" in found


def with_ids(topics: Topics, id_of: Callable[[CommitMarker], str]) -> Topics:
    """The topics with this id of the requests' topic in each marker."""
    name = f"{PREFIX}topic-events"
    return with_markers(topics, lambda each: replace(each, topic_ids={name: id_of(each)}))


def test_a_recreated_input_is_read_only_after_a_recovery() -> None:
    """By offsets its events cannot be told from those of the old one, so they are not compared."""
    topics = written(5, recover=True).topics
    assert findings(verify(with_ids(topics, lambda _: "one").history())) == []
    [found] = findings(
        verify(with_ids(topics, lambda each: "two" if each.batch == 1 else "one").history())
    )[:1]
    assert "id two of p-topic-events / one, as before" in found
    again = with_ids(topics, lambda each: "two" if "again" in each.checkpoint_id else "one")
    report = verify(again.history())
    assert findings(report) == []
    assert [line for line in report.unchecked() if "topic-events was deleted and recreated" in line]


def test_the_replay_goes_on_over_a_recovery() -> None:
    """The new checkpoint begins with the same state."""
    report = verify(written(5, recover=True).topics.history())
    assert findings(report) == []
    assert report.checked[How.REPLAYED] == 6
    assert len({label.checkpoint_id for label in report.labels}) == 2
    assert list(report.unchecked()) == []


def test_a_recovery_from_another_batch_than_the_last_is_found() -> None:
    """Batches between would be answered twice, or not at all."""

    def from_the_one_before(marker: CommitMarker) -> CommitMarker:
        if (last := marker.recovered_from) is None:
            return marker
        return replace(marker, recovered_from=replace(last, batch=last.batch - 1))

    topics = with_markers(written(5, recover=True).topics, from_the_one_before)
    [finding, *_] = verify(topics.history()).findings
    assert finding.kind is FindingKind.MARKER
    assert "batch -1, recovered from batch" in finding.found


@pytest.mark.parametrize(
    ("log", "kind"), [(AUDIT, FindingKind.MARKER), (COMMITS, FindingKind.COMMITS)]
)
def test_a_marker_whose_headers_say_otherwise_is_found(log: Log, kind: FindingKind) -> None:
    """Who routes by headers must not read of another batch than who reads the marker."""
    topics = written(5).topics
    read = topics.logs[log][1]
    headers = (*read.headers[:1], ("ce_id", b"elsewhere"), *read.headers[2:])
    topics.logs[log][1] = read._replace(headers=headers)
    finding, *_ = verify(topics.history()).findings
    assert finding.kind is kind
    assert "elsewhere" in finding.found


def test_batches_from_another_release_on_are_not_replayed() -> None:
    """Other bytes may be right there; but their digest holds."""
    writer, story = Writer(1), Story(1)
    writer.send(story.beginning())
    for release in (None, None, "0.2.9", None):
        writer.release = release
        writer.batch()
        writer.send(story.part(5))
    report = verify(writer.topics.history())
    assert findings(report) == []
    assert report.checked == {How.REPLAYED: 2, How.DIGEST: 2}
    [line] = report.unchecked()
    names = "batch 2 of checkpoint checkpoi to batch 3 of checkpoint checkpoi"
    assert line == f"{names}: not replayed: release 0.2.9 wrote batch 2"


def test_the_replay_divides_a_batch_into_the_markers_shards() -> None:
    """Where the clock steps back the order in a shard depends on what else the shard has."""
    differs = 0
    for number in range(HISTORIES):
        topics = with_markers(sound(number, "whole"), lambda marker: replace(marker, shards=5))
        differs += not verify(topics.history()).is_right
    assert differs > HISTORIES // 2


def test_what_comes_after_the_fixed_end_is_not_judged() -> None:
    """The job may run meanwhile; of its last batch only a part may have been seen."""
    topics = sound(2, "whole").copy()
    last = topics.logs[AUDIT][-1]
    log = next(log for log, reads in topics.logs.items() if log[0] == "assigner-state" and reads)
    topics.logs[log].pop()
    history = topics.history()
    history.end_offset = last.offset
    report = verify(history)
    assert findings(report) == []
    assert report.labels[-1].batch == decoded(last).batch - 1


def test_partitions_that_were_added_are_no_finding() -> None:
    """What was written before lies where its keys belonged then."""
    topics = written(0, batches=30).topics
    for log in [("topic-status", 2), ("topic-status", 3)]:
        topics.logs[log], topics.ends[log], topics.begins[log] = [], 0, 0
    report = verify(topics.history())
    assert findings(report) == []
    assert [line.partition(" does")[0] for line in report.unchecked()] == ["topic-status"]


def test_a_full_disk_is_reported_as_such(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is read goes to a temporary file, as large as the topics."""
    monkeypatch.setattr(verify_history, "_TABLES", f"{_TABLES} PRAGMA max_page_count = 6;")
    with pytest.raises(VerifyError, match=r"disk is full\); name a folder .* TMPDIR"):
        sound(0, "whole").history()


def test_another_querys_name_is_refused_and_the_right_one_named() -> None:
    """A slip of the pen must not end in a thousand findings; a job that has not begun is right."""
    with pytest.raises(VerifyError, match="no marker of query 'other'; expected one of q"):
        verify(sound(0, "whole").history(query="other"))
    report = verify(Topics.empty().history())
    assert (report.is_right, report.labels, list(report.unchecked())) == (True, [], [])
