"""A misspelt cluster: the message names those that there are."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
from spu_assigner.stream.audit import cluster_report
from spu_assigner.stream.clusters.plan import sources
from spu_assigner.stream.job.shard import published
from spu_assigner.stream.kafka.config.connection import Connection
from spu_assigner.stream.kafka.errors import ClusterUnknownError

CONNECTION = Connection(bootstrap_servers="127.0.0.1:9092", prefix="p-")


@contextmanager
def reader_of_keys(*_: object, **__: object) -> Iterator[SimpleNamespace]:
    """As `Reader`; nobody reads the values."""

    def message(key: bytes) -> tuple[str, SimpleNamespace]:
        return "replica-map", SimpleNamespace(key=lambda: key, value=lambda: None)

    keys = (b"test/orders", b"prod/orders", b"prod/logs")
    yield SimpleNamespace(drain_messages=lambda: map(message, keys))


@pytest.mark.parametrize(
    "read",
    [
        lambda: sources.read_maps(CONNECTION, "prdo", lambda _: True),
        lambda: published.read_cluster_state(CONNECTION, "prdo"),
        lambda: cluster_report.read_topic(CONNECTION, "prdo", "orders"),
    ],
)
def test_an_unknown_cluster_is_reported_with_those_that_are_there(
    read: Callable[[], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of `plan`, `plan --desired` and `explain`: the name is what a person mistypes most."""
    monkeypatch.setattr(published, "Reader", reader_of_keys)
    with pytest.raises(ClusterUnknownError, match="no cluster 'prdo' on p-replica-map") as found:
        read()
    assert str(found.value).endswith(
        "; it has prod, test; check the name, the brokers and the prefix"
    )


def test_where_nothing_is_published_the_job_is_named() -> None:
    """No name can be wrong where there is none."""
    assert str(ClusterUnknownError("prod", "replica-map", ())) == (
        "no cluster 'prod' on replica-map; it has no other; check that the job runs, that SPUs "
        "have joined, the brokers and the prefix; `spu-assigner adopt` takes over what a Kafka "
        "cluster has"
    )
