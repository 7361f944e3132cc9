"""A misspelt cluster: the message names those that there are."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Self

import pytest
from spu_assigner.stream.audit import topic_history
from spu_assigner.stream.clusters.plan import wanted_maps
from spu_assigner.stream.job.shard import published
from spu_assigner.stream.kafka.config.connection import Connection
from spu_assigner.stream.kafka.errors import ClusterUnknownError

CONNECTION = Connection(bootstrap_servers="127.0.0.1:9092", prefix="p-")


class KeyedMessage:
    """A message of a map; nobody reads its value."""

    def __init__(self, key: bytes) -> None:
        self._key = key

    def key(self) -> bytes:
        return self._key

    def value(self) -> bytes | None:
        return None


class KeysReader:
    """Gives messages with these keys, as `Reader` does."""

    keys: tuple[bytes, ...] = ()

    def __init__(self, *_: object, **__: object) -> None:
        pass

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def drain_messages(self) -> Iterator[tuple[str, KeyedMessage]]:
        return (("replica-map", KeyedMessage(key)) for key in self.keys)

    def spans(self) -> dict[tuple[str, int], tuple[int, int]]:
        return {}


@pytest.mark.parametrize(
    ("module", "read"),
    [
        (published, lambda: wanted_maps.read_maps(CONNECTION, "prdo", lambda _: True)),
        (published, lambda: published.read_published_cluster(CONNECTION, "prdo")),
        (published, lambda: topic_history.read_cluster(CONNECTION, "prdo", "orders")),
    ],
)
def test_an_unknown_cluster_is_reported_with_those_that_are_there(
    module: Any, read: Callable[[], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of `plan`, `plan --desired` and `explain`: the name is what a person mistypes most."""
    monkeypatch.setattr(module, "Reader", KeysReader)
    monkeypatch.setattr(KeysReader, "keys", (b"test/orders", b"prod/orders", b"prod/logs"))
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
