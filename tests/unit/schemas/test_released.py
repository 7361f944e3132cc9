"""What releases from 1.0 on have written stays readable, under the schemas and ids of then.

The archives are those of `tests/data/make_release.py`; the job resumes them in
`tests/broker/job/test_upgrade.py`.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

import pytest
from spu_assigner.core.base.events import Policy
from spu_assigner.core.state.consistency_check import faults
from spu_assigner.schemas.avro.registry import Registry
from spu_assigner.schemas.messages.codec import EventKind, decode_event, decode_record, type_name_of
from spu_assigner.stream.job.shard.clusters import Clusters, map_key, state_key
from support.job.released import Left, archives, unpack

KINDS: dict[str, EventKind] = {"spu-events": "spu", "topic-events": "topic"}
STATE = {"replica-map": map_key, "assigner-state": state_key}


@dataclass(frozen=True, slots=True, kw_only=True)
class Released:
    messages: list[Left]
    schemas: Registry


@pytest.fixture(scope="module", params=archives())
def released(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Released:
    folder = tmp_path_factory.mktemp("released")
    messages = unpack(archives()[request.param], folder)
    return Released(messages=messages, schemas=Registry.load(folder))


def test_the_first_release_that_is_kept_is_1_0() -> None:
    """Nothing before it was published; from it on every one is resumed by the next."""
    assert next(iter(archives())) == "1.0.0"


def test_a_version_of_a_schema_keeps_its_id_and_its_number(released: Released) -> None:
    now = {entry.id: entry for entry in Registry.load().entries}
    for then in released.schemas.entries:
        found = now[then.id]
        assert (found.type_name, found.version) == (then.type_name, then.version)
        assert found.fingerprint == then.fingerprint


def test_every_message_of_a_release_is_read(released: Released) -> None:
    found: Counter[str] = Counter()
    for each in released.messages:
        if each.value is None:
            continue
        message: Any = (
            decode_event(each.value, kind=KINDS[each.topic])
            if each.topic in KINDS
            else decode_record(each.value)
        )
        found[type_name_of(message)] += 1
    unwritten = {"AppliedTopic", "MovesRun", "DeadLetter", "SpuUncordon", "SpuUndemote"}
    assert {*released.schemas.type_names} - {*found} == unwritten


def test_the_state_of_a_release_is_rebuilt_from_its_outputs(released: Released) -> None:
    """Maps and entries of then, taken over by the core of now."""
    clusters = Clusters()
    for each in released.messages:
        if each.topic in STATE:
            clusters.restore(STATE[each.topic](each.key or b""), each.value)
    assert sorted(clusters) == ["c1", "c2", "c3"]
    for state in clusters.values():
        assert [*faults(state)] == []
        policies = {topic.policy for topic in state.topics.values()}
        assert policies >= {*Policy} - {Policy.RENDEZVOUS}  # Its topic was released.
        assert set(state.waiting) == {"waits"}
