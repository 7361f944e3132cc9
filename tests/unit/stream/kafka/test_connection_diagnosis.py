"""Why no broker answers: a name that is in no name service is said to be the reason.

Names are under `.invalid`, which no name service has (RFC 2606).
"""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner
from spu_assigner.stream.cli import cli
from spu_assigner.stream.kafka import connection_diagnosis
from spu_assigner.stream.kafka.connection_diagnosis import (
    DiagnosedAdmin,
    UnreachableError,
    WaitLimits,
)
from spu_assigner.stream.kafka.errors import ClientError

SOON = WaitLimits(request=0.3, refused=0.2, probe=0.3)  # a lookup under .invalid takes milliseconds
CLOSED = "127.0.0.1:1"  # nobody listens there
UNKNOWN = "host name 'brokr.invalid' was not found ("


def why_not(servers: str) -> str:
    """What is said of brokers that do not answer."""
    admin = DiagnosedAdmin({"bootstrap.servers": servers})
    with admin, pytest.raises(UnreachableError) as caught:
        admin.metadata(SOON)
    return str(caught.value)


@pytest.mark.parametrize(
    ("servers", "begin", "end"),
    [
        # "Broker transport failure" sends the user to the network instead of to his spelling.
        (
            "brokr.invalid:9092",
            f": {UNKNOWN}",
            "; check bootstrap servers and this machine's name service",
        ),
        (
            f"brokr.invalid:9092,{CLOSED}",
            f": {UNKNOWN}",
            f"; check bootstrap servers, and that {CLOSED} runs",
        ),
        (CLOSED, " (", "; check the address and that it runs"),
    ],
)
def test_a_broker_that_is_down_and_a_name_that_is_unknown_are_told_apart(
    servers: str, begin: str, end: str
) -> None:
    said = why_not(servers)
    assert said.startswith(f"no Kafka broker answers at {servers}{begin}")
    assert said.endswith(end)


@pytest.mark.parametrize("reported", [(), ("one.invalid",), ("one.invalid", "two.invalid")])
def test_of_several_brokers_each_that_fails_is_named(
    reported: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client may have reported none, some or all of the names when the time is over."""
    found = dict.fromkeys(reported, "Name or service not known")
    monkeypatch.setattr(DiagnosedAdmin, "unknown_hosts", lambda _self: found)
    said = why_not("one.invalid:9092,two.invalid:9093")
    assert "host names 'one.invalid', 'two.invalid' were not found (" in said


def test_settings_that_librdkafka_refuses_are_reported() -> None:
    """In one line, as all that a user can set."""
    with pytest.raises(ClientError, match="Kafka's client refuses its settings: No such conf"):
        DiagnosedAdmin({"bootstrap.servers": CLOSED, "no.such.setting": "1"})


@pytest.mark.parametrize(
    "command",
    [
        "topics create",
        "topics check",
        "produce spu-joined --cluster c1 --spu-id 1",
        "watch",
        "explain c1 t",
        "plan --cluster c1",
        "apply --cluster c1",
        "drain 1 --cluster c1",
        "follow --cluster c1 --once",
        "adopt --cluster c1",
        "verify",
        "ui --port 0",
        "run --checkpoint UNUSED",
        "recover --checkpoint UNUSED --dry-run",
        "doctor",
    ],
)
def test_every_command_names_an_unknown_host(
    command: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Each reaches Kafka in its own way; `doctor` with limits of its own."""
    monkeypatch.setattr(connection_diagnosis, "WAIT_LIMITS", SOON)
    given = command.replace("UNUSED", str(tmp_path)).split()
    done = CliRunner().invoke(cli, [*given, "-b", "brokr.invalid:9092"])
    assert done.exit_code == (2 if command == "verify" else 1)
    assert "host name 'brokr.invalid' was not found" in " ".join(done.output.split())
