"""A Schema Registry's REST interface as Confluent documents it, for schemas with given ids.

An id is taken in mode IMPORT alone, and has one schema.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any
from urllib.parse import unquote, urlsplit

from confluent_kafka.schema_registry import SchemaRegistryClient


@dataclass
class RegistryState:
    """What it holds, and how it behaves."""

    schemas: dict[int, str] = field(default_factory=dict)
    versions: dict[tuple[str, int], int] = field(default_factory=dict)  # (subject, version): id
    modes: dict[str, str] = field(default_factory=dict)
    auth: str | None = None  # user:password
    writes_left: int | None = None  # then it refuses
    asked: list[str] = field(default_factory=list)
    url: str = ""

    @property
    def writes(self) -> list[str]:
        return [each for each in self.asked if not each.startswith("GET")]

    def answer(self, method: str, path: str, body: Any) -> tuple[int, Any]:
        parts = [unquote(each) for each in urlsplit(path).path.strip("/").split("/")]
        match method, parts:
            case "GET", ["schemas", "ids", number]:
                if int(number) not in self.schemas:
                    return 404, {"error_code": 40403, "message": f"Schema {number} not found"}
                return 200, {"schema": self.schemas[int(number)]}
            case "PUT", ["mode", subject]:
                self.modes[subject] = body["mode"]
                return 200, {"mode": body["mode"]}
            case "POST", ["subjects", subject, "versions"]:
                return self._register(subject, body)
            case _:
                return 404, {"error_code": 404, "message": "HTTP 404 Not Found"}

    def _register(self, subject: str, body: Any) -> tuple[int, Any]:
        if self.modes.get(subject) != "IMPORT":
            return 422, {"error_code": 42205, "message": f"Subject {subject} is not in import mode"}
        if self.writes_left is not None:
            if not self.writes_left:
                return 500, {"error_code": 50001, "message": "Error in the backend data store"}
            self.writes_left -= 1
        if self.schemas.setdefault(body["id"], body["schema"]) != body["schema"]:
            return 409, {"error_code": 409, "message": f"id {body['id']} has another schema"}
        self.versions[subject, body["version"]] = body["id"]
        return 200, {"id": body["id"]}


@contextmanager
def registry_server(state: RegistryState) -> Iterator[str]:
    """It listens; its address."""

    class Handler(BaseHTTPRequestHandler):
        def _handle(self) -> None:
            size = int(self.headers.get("Content-Length") or 0)
            body = json.loads(self.rfile.read(size)) if size else None
            state.asked.append(f"{self.command} {self.path}")
            if state.auth is not None:
                token = "Basic " + base64.b64encode(state.auth.encode()).decode()
                if self.headers.get("Authorization") != token:
                    self._reply(401, {"error_code": 401, "message": "Unauthorized"})
                    return
            self._reply(*state.answer(self.command, self.path, body))

        do_GET = do_PUT = do_POST = _handle  # noqa: N815 — named by the library

        def _reply(self, status: int, answer: Any) -> None:
            data = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: object) -> None:
            """Nothing is to be said of a request."""

    with serving(Handler) as url:
        yield url


@contextmanager
def serving(handler: type[BaseHTTPRequestHandler]) -> Iterator[str]:
    """A server on a free port of this machine; its address."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@contextmanager
def registry_client(schemas: Mapping[int, Any]) -> Iterator[SchemaRegistryClient]:
    """A stock client of a registry that holds these schemas under their ids."""
    state = RegistryState({number: json.dumps(schema) for number, schema in schemas.items()})
    with registry_server(state) as url:
        yield SchemaRegistryClient({"url": url})
