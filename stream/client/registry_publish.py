"""The schemas put into a Schema Registry, under the ids that messages carry.

For readers whose deserializer requires a registry. Each version of each schema goes to the subject
of its record's name (RecordNameStrategy), with its own version and id, which a registry permits in
mode IMPORT alone. What is there already is left alone.

Source: Confluent Schema Registry API reference (subjects, modes, schemas by id).
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Mapping
from http import HTTPStatus
from http.client import HTTPException
from typing import Any, Final
from urllib.error import HTTPError
from urllib.parse import quote, urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

from fastavro.schema import SchemaParseException
from spu_assigner.core.base.errors import AssignerError
from spu_assigner.schemas.avro.registry import Registered, Registry, fingerprint_of
from spu_assigner.stream.common.printable import printable

AUTH_VARIABLE: Final = "SPU_ASSIGNER_REGISTRY_AUTH"  # `user:password`
SECONDS_MAX: Final = 10.0  # of one request
ANSWER_SIZE_MAX: Final = 1024 * 1024  # bytes; the largest schema of ours has a hundredth
_MEDIA_TYPE: Final = "application/vnd.schemaregistry.v1+json"
_LOG_IN: Final = f"set {AUTH_VARIABLE} to user:password of a user who may write subjects and modes"
_LOOPBACK: Final = ("127.0.0.1", "::1", "localhost")


class SchemaRegistryError(AssignerError):
    """The registry cannot be reached, refuses, or holds something else under an id of ours."""


class _NoRedirects(HTTPRedirectHandler):
    """Credentials are for the address that was given, and no other."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None


class SchemaRegistryClient:
    """A registry's REST interface.

    Args:
        url: `http(s)://host:port[/path]`.
        environ: may hold the credentials. OpenSSL's own SSL_CERT_FILE names other authorities.
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
            self._headers["Authorization"] = f"Basic {b64encode(auth.encode()).decode()}"
        self._open = build_opener(_NoRedirects()).open

    def request(self, method: str, path: str, body: object = None) -> Any:
        """The answer; None where there is nothing (404) to read."""
        data = None if body is None else json.dumps(body).encode()
        request = Request(self._url + path, data, self._headers, method=method)
        at = f"the Schema Registry at {self._url}"
        try:
            with self._open(request, timeout=SECONDS_MAX) as answer:
                return json.loads(answer.read(ANSWER_SIZE_MAX + 1))
        except HTTPError as refusal:
            with refusal:
                said = printable(refusal.read(500).decode(errors="replace"))
            if refusal.code == HTTPStatus.NOT_FOUND and method == "GET":
                return None
            is_login = refusal.code in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN)
            raise SchemaRegistryError(
                f"{at} refused {method} {path}: {refusal.code} {said}; "
                f"{_LOG_IN if is_login else 'correct that, and run this again'}"
            ) from refusal
        except (OSError, HTTPException) as reason:
            why = printable(str(getattr(reason, "reason", reason)))
            raise SchemaRegistryError(
                f"{at} cannot be reached: {why}; check the address, and run this again"
            ) from reason
        except ValueError as reason:
            raise SchemaRegistryError(
                f"{at} does not answer {method} {path} in JSON; expected Confluent's REST "
                "interface, v1"
            ) from reason


def publish(client: SchemaRegistryClient) -> tuple[list[Registered], list[Registered]]:
    """Put into a registry what is missing; returns what was missing, and what was there.

    Raises:
        SchemaRegistryError: an id belongs to another schema there, before anything is written; or
            the registry cannot be asked, or refuses a write: the next call resumes.
    """
    present, missing, others = [], [], []
    for entry in Registry.load().entries:
        found = client.request("GET", f"/schemas/ids/{entry.id}")
        if found is None:
            missing.append(entry)
        elif _is_same(found, entry):
            present.append(entry)
        else:
            others.append(f"{entry.id} ({entry.type_name} {entry.version})")
    if others:
        raise SchemaRegistryError(
            f"other schemas have these ids in the registry: {', '.join(others)}; the messages' ids "
            "are permanent: use a registry, or a context (…/contexts/:.spu:), of this product's own"
        )
    for entry in missing:
        subject = quote(subject_of(entry), safe="")
        mode = f"/mode/{subject}?force=true"  # also where it has versions already
        client.request("PUT", mode, {"mode": "IMPORT"})
        try:
            schema = {"schemaType": "AVRO", "schema": json.dumps(entry.schema)}
            named = {**schema, "version": entry.version, "id": entry.id}
            client.request("POST", f"/subjects/{subject}/versions", named)
        finally:
            client.request("PUT", mode, {"mode": "READWRITE"})
    return missing, present


def subject_of(entry: Registered) -> str:
    """The full name of the record."""
    return f"{entry.schema['namespace']}.{entry.schema['name']}"


def _is_same(found: Any, entry: Registered) -> bool:
    try:
        return fingerprint_of(json.loads(found["schema"])) == entry.fingerprint
    except (SchemaParseException, KeyError, TypeError, ValueError):
        return False
