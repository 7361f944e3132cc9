"""How clients reach Kafka: said in one place, alike for librdkafka and Spark."""

from __future__ import annotations

from pathlib import Path

from spu_assigner.stream.kafka.config.connection import Connection, address
from spu_assigner.stream.kafka.config.settings import Settings

_ROOT = Path(__file__).parents[5]


def test_no_other_module_names_the_brokers_to_a_client() -> None:
    """A client made past the connection would reach Kafka without its security."""
    naming = [
        path.name
        for package in ("core", "schemas", "stream")
        for path in (_ROOT / package).glob("**/*.py")
        if "bootstrap.servers" in path.read_text(encoding="utf-8")
    ]
    assert naming == ["connection.py"]


def test_the_settings_give_both_clients_the_same_brokers() -> None:
    """A job that read from one cluster and wrote to another would answer nobody."""
    flags = {"bootstrap_servers": "a:1,b:2", "topic_prefix": "p."}
    connection = Settings.load(flags=flags, environ={}).connection()
    assert connection == Connection(bootstrap_servers="a:1,b:2", prefix="p.")
    assert connection.client() == {"bootstrap.servers": "a:1,b:2"}
    assert connection.spark() == {"kafka.bootstrap.servers": "a:1,b:2"}
    assert address(connection.client()) == "a:1,b:2"
