"""The schemas put into a Schema Registry, under the ids that messages carry.

For readers whose deserializer requires a registry. Each version of each schema goes to the subject
of its record's name (RecordNameStrategy), with its own version and id, which a registry permits in
mode IMPORT alone. What is there already is left alone.

Source: Confluent Schema Registry API reference (subjects, modes, schemas by id).
"""

from __future__ import annotations

import base64
import json
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from http.client import HTTPException
from typing import Any, Final
from urllib.error import HTTPError
from urllib.parse import quote, urlsplit
from urllib.request import HTTPRedirectHandler, HTTPSHandler, Request, build_opener

from fastavro.schema import SchemaParseException
from spu_assigner.core.base.errors import AssignerError
from spu_assigner.schemas.avro.registry import Registered, Registry, fingerprint_of
from spu_assigner.stream.common.printable import printable

AUTH_VARIABLE: Final = "SPU_ASSIGNER_REGISTRY_AUTH"  # `user:password`
SECONDS_MAX: Final = 10.0  # of one request
ANSWER_SIZE_MAX: Final = 1024 * 1024  # bytes; the largest schema of ours has a hundredth
_MEDIA_TYPE: Final = "application/vnd.schemaregistry.v1+json"
_LOG_IN: Final = f"set {AUTH_VARIABLE} to user:password of a user who may write subjects and modes"
_AGAIN: Final = "run this again: what is done is not done twice"
_LOOPBACK: Final = ("127.0.0.1", "::1", "localhost")


class SchemaRegistryError(AssignerError):
    """The registry cannot be reached, refuses, or holds something else under an id of ours."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedSchemas:
    """What a registry holds of ours, and what it does not."""

    present: list[Registered]
    missing: list[Registered]


class _NoRedirects(HTTPRedirectHandler):
    """Credentials are for the address that was given, and no other."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None


class SchemaRegistryClient:
    """The part of a registry's REST interface that is needed here.

    Args:
        url: `http(s)://host:port[/path]`.
        environ: may hold the credentials; `SSL_CERT_FILE` names other authorities to trust.

    Raises:
        SchemaRegistryError: the address is none, or credentials would be sent unencrypted.
    """

    def __init__(self, url: str, environ: Mapping[str, str]) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname or "@" in parts.netloc:
            raise SchemaRegistryError(
                f"{printable(url)!r} is no address of a Schema Registry; expected http://host:8081 "
                f"or https://…, with credentials in {AUTH_VARIABLE} if it asks for any"
            )
        self._url = url.rstrip("/")
        self._headers = {"Accept": _MEDIA_TYPE, "Content-Type": _MEDIA_TYPE}
        if auth := environ.get(AUTH_VARIABLE):
            if ":" not in auth or not auth.isprintable():
                raise SchemaRegistryError(f"{AUTH_VARIABLE} is set; expected user:password")
            if parts.scheme == "http" and parts.hostname not in _LOOPBACK:
                raise SchemaRegistryError(
                    f"{AUTH_VARIABLE} is set and {printable(url)} is not encrypted; use https://…"
                )
            token = base64.b64encode(auth.encode()).decode()
            self._headers["Authorization"] = f"Basic {token}"
        self._open = build_opener(
            _NoRedirects(), HTTPSHandler(context=ssl.create_default_context())
        ).open

    def schema(self, schema_id: int) -> Any:
        """The schema under an id; None if there is none."""
        found = self._request("GET", f"/schemas/ids/{schema_id}")
        if found is None:
            return None
        try:
            return json.loads(found["schema"])
        except (KeyError, TypeError, ValueError) as reason:
            raise self._no_registry(f"schema {schema_id} is answered without a schema") from reason

    def put_mode(self, subject: str, mode: str) -> None:
        """Let the subject be written to in this mode, also where it has versions already."""
        self._write("PUT", f"/mode/{quote(subject, safe='')}?force=true", {"mode": mode})

    def register(self, subject: str, entry: Registered) -> None:
        """One version of a schema, under its id."""
        body = {
            "schemaType": "AVRO",
            "schema": json.dumps(entry.schema),
            "version": entry.version,
            "id": entry.id,
        }
        self._write("POST", f"/subjects/{quote(subject, safe='')}/versions", body)

    def _write(self, method: str, path: str, body: object) -> None:
        if self._request(method, path, body) is None:
            raise self._no_registry(f"it does not know {method} {path}")

    def _request(self, method: str, path: str, body: object = None) -> Any:
        """The answer; None where there is nothing (404)."""
        data = None if body is None else json.dumps(body).encode()
        request = Request(self._url + path, data, self._headers, method=method)
        try:
            with self._open(request, timeout=SECONDS_MAX) as answer:
                return json.loads(answer.read(ANSWER_SIZE_MAX + 1))
        except HTTPError as refusal:
            with refusal:
                said = _said(refusal.read(ANSWER_SIZE_MAX))
            if refusal.code == HTTPStatus.NOT_FOUND:
                return None
            is_login = refusal.code in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN)
            raise SchemaRegistryError(
                f"the Schema Registry at {self._url} refused {method} {path}: {refusal.code} "
                f"{said}; {_LOG_IN if is_login else f'correct that, and {_AGAIN}'}"
            ) from refusal
        except (OSError, HTTPException) as reason:
            why = getattr(reason, "reason", reason)
            raise SchemaRegistryError(
                f"the Schema Registry at {self._url} cannot be reached: {printable(str(why))}; "
                f"check the address, and {_AGAIN}"
            ) from reason
        except ValueError as reason:
            raise self._no_registry(f"{method} {path} is not answered in JSON") from reason

    def _no_registry(self, found: str) -> SchemaRegistryError:
        return SchemaRegistryError(
            f"{self._url} does not answer as a Schema Registry does: {found}; "
            "expected Confluent's REST interface, v1"
        )


def compare(client: SchemaRegistryClient) -> PublishedSchemas:
    """Which versions a registry holds under their ids.

    Raises:
        SchemaRegistryError: an id belongs to another schema there, or the request fails.
    """
    present, missing, others = [], [], []
    for entry in Registry.load().entries:
        found = client.schema(entry.id)
        if found is None:
            missing.append(entry)
        elif _is_same(found, entry):
            present.append(entry)
        else:
            others.append(entry)
    if others:
        listed = ", ".join(f"{each.id} ({each.type_name} {each.version})" for each in others)
        raise SchemaRegistryError(
            f"other schemas have these ids in the registry: {listed}; the messages' ids are "
            "permanent: use a registry, or a context (…/contexts/:.spu:), of this product's own"
        )
    return PublishedSchemas(present=present, missing=missing)


def publish(client: SchemaRegistryClient) -> PublishedSchemas:
    """Put into a registry what is missing; returns what was there before and what was missing.

    Raises:
        SchemaRegistryError: as `compare`, before anything is written; or the registry refuses a
            write: the next call resumes.
    """
    found = compare(client)
    for type_name in dict.fromkeys(entry.type_name for entry in found.missing):
        of_type = [entry for entry in found.missing if entry.type_name == type_name]
        subject = subject_of(of_type[0])
        client.put_mode(subject, "IMPORT")
        try:
            for entry in of_type:
                client.register(subject, entry)
        finally:
            client.put_mode(subject, "READWRITE")
    return found


def subject_of(entry: Registered) -> str:
    """The full name of the record."""
    return f"{entry.schema['namespace']}.{entry.schema['name']}"


def _is_same(found: Any, entry: Registered) -> bool:
    try:
        return fingerprint_of(found) == entry.fingerprint
    except (SchemaParseException, KeyError, TypeError, ValueError):
        return False


def _said(raw: bytes) -> str:
    try:
        message = json.loads(raw)["message"]
    except (KeyError, TypeError, ValueError):
        message = raw[:200].decode(errors="replace")
    return printable(str(message)[:500])
