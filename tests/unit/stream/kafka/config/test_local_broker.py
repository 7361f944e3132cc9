"""Which broker a command asks that is given no address."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from spu_assigner.stream.kafka.config.command_options import load_client_settings
from spu_assigner.stream.kafka.config.local_broker import ADDRESS_FILE, announced, local_broker
from spu_assigner.stream.local.broker.embedded import _choose_ports

NONE_NAMED = {"bootstrap_servers": None, "topic_prefix": None}


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("KAFKA_BOOTSTRAP_SERVERS", raising=False)
    monkeypatch.delenv("SPU_ASSIGNER_CONFIG", raising=False)


@pytest.fixture
def listening() -> Iterator[str]:
    """An address at which something listens, as a broker does."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


def asked(**flags: str) -> str:
    return load_client_settings({**NONE_NAMED, **flags}).bootstrap_servers


def test_a_client_finds_the_broker_of_its_folder(listening: str) -> None:
    """The first command of a newcomer names no address, and 9092 may have been taken."""
    with announced(listening):
        assert asked() == listening
    assert asked() == "127.0.0.1:9092"
    assert not ADDRESS_FILE.parent.exists()


def test_an_address_that_is_named_wins(listening: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker of one's own is never passed over."""
    with announced(listening):
        assert asked(bootstrap_servers="mine:9092") == "mine:9092"
        monkeypatch.setenv("KAFKA_BOOTSTRAP_SERVERS", "yours:9092")
        assert asked() == "yours:9092"


def test_a_broker_that_was_killed_is_not_asked() -> None:
    """It left its address behind, and nothing listens there."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
    for text in (address, "no address", ""):
        ADDRESS_FILE.parent.mkdir(exist_ok=True)
        ADDRESS_FILE.write_text(text, "utf-8")
        assert local_broker() is None
        assert asked() == "127.0.0.1:9092"


def test_the_address_of_a_broker_started_since_stays(listening: str) -> None:
    """The one that ends first removes its own alone."""
    with announced("127.0.0.1:1"):
        ADDRESS_FILE.write_text(listening, "utf-8")
    assert asked() == listening


def test_the_preferred_port_is_taken_where_it_is_free(tmp_path: Path) -> None:
    """9092 is where clients look that are told nothing; another process may have it."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        taken = _choose_ports(tmp_path, None, port)
        assert taken.client not in (port, taken.controller)
    assert _choose_ports(tmp_path, None, port).client == port
