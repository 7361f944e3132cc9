"""Which broker the tests share: what is asked for is had, or it is said why not."""

from __future__ import annotations

import socket
import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest
from support.kafka import kafka_container
from support.kafka.kafka_container import IMAGE_VARIABLE, ContainerError, find_image
from support.kafka.shared_broker import VARIABLE, ChoiceError, shared_broker


@contextmanager
def _engine_without_images(path: Path) -> Iterator[list[str]]:
    """The engine's protocol as far as it is asked here; yields the requests it gets."""
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.requestline)
            found = self.path == "/version"
            body = b'{"ApiVersion": "1.41"}' if found else b'{"message": "No such image"}'
            self.send_response(200 if found else 404)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def do_POST(self) -> None:
            asked.append(self.requestline)
            self.send_error(500)

        def log_message(self, *_: object) -> None:
            """Nothing: its clients are the tests."""

    class Server(socketserver.UnixStreamServer):
        def get_request(self) -> tuple[socket.socket, tuple[str, int]]:
            return self.socket.accept()[0], ("a test", 0)

    with Server(str(path), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield asked
        finally:
            server.shutdown()


def test_a_word_that_is_no_choice_is_refused() -> None:
    """A typing error must not pass for a run in containers."""
    with (
        pytest.raises(ChoiceError, match="is 'docker'; expected auto, container, embedded"),
        shared_broker({VARIABLE: "docker"}),
    ):
        pass


def test_a_container_without_an_engine_is_a_failure(tmp_path: Path) -> None:
    """Who asks for containers wants no other broker; the error says what to do."""
    environ = {VARIABLE: "container", "DOCKER_HOST": f"unix://{tmp_path / 'no-engine.sock'}"}
    with (
        pytest.raises(ContainerError, match=r"no Docker engine answers .*BROKER=embedded"),
        shared_broker(environ),
    ):
        pass


def test_an_image_that_is_not_there_is_not_pulled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half a gigabyte is not fetched because somebody runs the tests."""
    monkeypatch.setattr(kafka_container, "ENGINE_SECONDS_MAX", 60.0)  # It does answer.
    path = tmp_path / "engine.sock"
    with _engine_without_images(path) as asked:
        with pytest.raises(ContainerError, match=r"has no image nobody/kafka:9; .*docker-build"):
            find_image({"DOCKER_HOST": f"unix://{path}", IMAGE_VARIABLE: "nobody/kafka:9"})
        assert [line for line in asked if line.startswith("POST")] == []
        assert any("/images/nobody/kafka:9/json" in line for line in asked)
