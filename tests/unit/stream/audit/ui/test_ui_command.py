"""`spu-assigner ui`: which Kafka clusters the page is about."""

from __future__ import annotations

from typing import Any

import pytest
from click.testing import CliRunner
from spu_assigner.stream.audit.ui import live
from spu_assigner.stream.cli import cli
from spu_assigner.stream.kafka.errors import ClientError


class Noted:
    """Stands for what reads, and notes what it is to read."""

    given: tuple[Any, Any]

    def __init__(self, connection: Any, *, moved: Any) -> None:
        type(self).given = connection, moved

    def __enter__(self) -> None:
        raise ClientError("enough is known")

    def __exit__(self, *_: object) -> None:
        pass


@pytest.mark.parametrize(
    ("environ", "servers"),
    [
        ({}, "jobs:9092"),
        ({"SPU_ASSIGNER_TARGET_BOOTSTRAP_SERVERS": "others:9092"}, "others:9092"),
    ],
    ids=["one cluster", "two clusters"],
)
def test_moves_are_read_from_the_cluster_of_the_topics(
    environ: dict[str, str], servers: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Under the prefix of the job, as `apply --moves` records them."""
    monkeypatch.setattr(live, "Live", Noted)
    asked = ["ui", "--port", "0", "-b", "jobs:9092", "--topic-prefix", "p-"]
    assert "enough is known" in CliRunner().invoke(cli, asked, env=environ).stderr
    connection, moved = Noted.given
    assert (connection.bootstrap_servers, connection.prefix) == ("jobs:9092", "p-")
    assert (moved.bootstrap_servers, moved.prefix) == (servers, "p-")
