"""Schemas in a Schema Registry, under the ids that messages carry."""

from __future__ import annotations

import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler

import pytest
from click.testing import CliRunner, Result
from spu_assigner.schemas.avro.registry import Registry
from spu_assigner.stream import cli
from spu_assigner.stream.client.registry_publish import (
    AUTH_VARIABLE,
    SchemaRegistryClient,
    SchemaRegistryError,
    publish,
    subject_of,
)
from support.kafka.registry_server import RegistryState, registry_server, serving

ENTRIES = Registry.load().entries
IDS = [entry.id for entry in ENTRIES]


@pytest.fixture
def state() -> Iterator[RegistryState]:
    state = RegistryState()
    with registry_server(state) as url:
        state.url = url
        yield state


def called(*words: str) -> Result:
    return CliRunner().invoke(cli.cli, ["schemas", "publish", *words], catch_exceptions=False)


def test_each_version_has_its_id_its_subject_and_its_number_and_stays(state: RegistryState) -> None:
    """Older messages name older versions; a deployment publishes again and again."""
    client = SchemaRegistryClient(state.url, {})
    assert [entry.id for entry in publish(client)[0]] == IDS
    assert state.versions == {(subject_of(each), each.version): each.id for each in ENTRIES}
    assert {number: json.loads(text) for number, text in state.schemas.items()} == {
        entry.id: entry.schema for entry in ENTRIES
    }
    assert set(state.modes.values()) == {"READWRITE"}
    state.asked.clear()
    missing, present = publish(client)
    assert ([entry.id for entry in present], missing) == (IDS, [])
    assert state.writes == []


def test_a_call_that_was_cut_off_is_finished_by_the_next(state: RegistryState) -> None:
    """Nothing half done that a second run would not finish; no subject is left open for imports."""
    state.writes_left = 5
    with pytest.raises(SchemaRegistryError, match=r"500 .*Error in the backend.*run this again"):
        publish(SchemaRegistryClient(state.url, {}))
    assert len(state.schemas) == 5
    assert set(state.modes.values()) == {"READWRITE"}
    state.writes_left = None
    assert len(publish(SchemaRegistryClient(state.url, {}))[0]) == len(IDS) - 5
    assert sorted(state.schemas) == IDS


def test_an_id_that_another_schema_has_is_refused_before_anything_is_written(
    state: RegistryState,
) -> None:
    """A reader would take our messages for something else, or the other's for ours."""
    state.schemas[IDS[-1]] = '{"type": "record", "name": "Order", "fields": []}'
    last = ENTRIES[-1]
    message = rf"{last.id} \({last.type_name} {last.version}\).*of this product's own"
    with pytest.raises(SchemaRegistryError, match=message):
        publish(SchemaRegistryClient(state.url, {}))
    assert state.writes == []


def test_the_command_reports_each_schema(state: RegistryState) -> None:
    done = called(state.url)
    assert done.exit_code == 0
    assert len(done.output.splitlines()) == len(IDS)
    again = called(state.url, "--output", "json")
    assert (again.exit_code, json.loads(again.output)) == (0, {"published": [], "unchanged": IDS})


def test_credentials_are_sent_and_asked_for(
    state: RegistryState, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the environment: a command line can be seen by others."""
    state.auth = "me:secret"
    monkeypatch.delenv(AUTH_VARIABLE, raising=False)
    refused = called(state.url)
    assert refused.exit_code == 1
    assert f"set {AUTH_VARIABLE} to user:password" in refused.output
    monkeypatch.setenv(AUTH_VARIABLE, "me:secret")
    assert called(state.url).exit_code == 0


@pytest.mark.parametrize(
    ("url", "auth", "said"),
    [
        ("http://registry.example:8081", "me:secret", "is not encrypted"),
        ("https://registry.example", "secret", "expected user:password"),
        ("ftp://registry.example", None, "no address of a Schema Registry"),
        ("https://me:secret@registry.example", None, "no address of a Schema Registry"),
    ],
)
def test_an_address_that_would_give_secrets_away_is_refused(
    url: str, auth: str | None, said: str
) -> None:
    """And the secret is not in the message."""
    with pytest.raises(SchemaRegistryError, match=said) as refused:
        SchemaRegistryClient(url, {AUTH_VARIABLE: auth} if auth else {})
    assert auth is None or auth not in str(refused.value)


def test_an_unreachable_registry_is_reported_in_one_line() -> None:
    """With what to do."""
    with pytest.raises(SchemaRegistryError, match=r"^the .* at http://127.0.0.1:9 cannot be reach"):
        publish(SchemaRegistryClient("http://127.0.0.1:9", {}))


class _Elsewhere(BaseHTTPRequestHandler):
    """Sends everybody to another address."""

    def do_GET(self) -> None:
        self.send_response(302)
        self.send_header("Location", "http://127.0.0.1:1/")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Nothing is to be said of a request."""


def test_credentials_do_not_follow_a_redirect() -> None:
    client = {AUTH_VARIABLE: "me:secret"}
    said = "refused GET /schemas/ids/1: 302"
    with serving(_Elsewhere) as url, pytest.raises(SchemaRegistryError, match=said):
        publish(SchemaRegistryClient(url, client))
