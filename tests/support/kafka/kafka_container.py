"""The broker that tests share, in a container: KRaft Kafka by testcontainers, on the loopback.

It has the embedded broker's settings and runs in any image that is started and configured as
apache/kafka is. Three things are done our own way:
- nothing is pulled or built behind the user's back: an image has to be there;
- its clients are given the port that the engine chose, so the broker starts when that is known: the
  container waits for it on its standard input;
- that input is held open as long as the tests run. When they end, however they end, it closes, the
  broker ends and the engine removes the container; testcontainers' reaper, an image of its own, is
  not needed.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Mapping
from contextlib import closing, suppress
from typing import Any

import docker
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from docker.errors import APIError, DockerException, ImageNotFound, NotFound
from spu_assigner.core.base.errors import AssignerError
from spu_assigner.stream.local.broker.process import BROKER_SETTINGS, READY_SECONDS_MAX
from testcontainers.core.config import testcontainers_config
from testcontainers.core.container import DockerContainer

IMAGE_VARIABLE = "SPU_ASSIGNER_KAFKA_IMAGE"
IMAGES = ("spu-assigner-kafka", "apache/kafka:4.2.0")  # ours (`make docker-build`), the official
HOST_VARIABLE = "TESTCONTAINERS_HOST_OVERRIDE"  # where an engine elsewhere publishes its ports
LOOPBACK = "127.0.0.1"
PORT = 9092
ENGINE_SECONDS_MAX = 2.0  # an engine at hand answers in milliseconds
REMOVE_SECONDS_MAX = 20.0
_POLL_SECONDS = 0.05
_LOG_SIZE = 64 * 1024  # bytes

# The first line of the input is the address for clients; then nothing comes until the end.
_SCRIPT = """\
read -r KAFKA_ADVERTISED_LISTENERS && export KAFKA_ADVERTISED_LISTENERS || exit 1
exec 3<&0
/etc/kafka/docker/run </dev/null &
broker=$!
{ cat <&3 >/dev/null; kill -9 $broker; } &
wait $broker
"""


class ContainerError(AssignerError):
    """There is no engine, no image, or no Kafka came up in it."""


def find_image(environ: Mapping[str, str] = os.environ) -> str:
    """The image to run: the one that the environment names, else the first of IMAGES that is here.

    Raises:
        ContainerError: no engine answers within ENGINE_SECONDS_MAX, or it has no such image.
    """
    try:
        client = docker.from_env(timeout=ENGINE_SECONDS_MAX, environment=dict(environ))
    except DockerException as reason:
        raise ContainerError(
            f"no Docker engine answers ({reason}); start one, or run the tests on the embedded "
            "broker: BROKER=embedded"
        ) from reason
    named = environ.get(IMAGE_VARIABLE)
    wanted = (named,) if named else IMAGES
    with closing(client):
        for image in wanted:
            with suppress(ImageNotFound):
                client.images.get(image)
                return image
    raise ContainerError(
        f"the Docker engine has no image {' or '.join(wanted)}; build ours with "
        f"`make docker-build`, or pull one and name it with {IMAGE_VARIABLE}"
    )


class KafkaContainer(DockerContainer):
    """A broker that lives as long as this process at most.

    Args:
        image: one that is there.
        settings: further lines of `server.properties`.
    """

    def __init__(self, image: str, *, settings: Mapping[str, str] | None = None) -> None:
        testcontainers_config.ryuk_disabled = True
        self._host = os.environ.get(HOST_VARIABLE) or LOOPBACK
        self._said = b""  # the end of its log
        self._log = threading.Thread(target=self._keep_log, daemon=True)
        self._input: Any = None
        super().__init__(
            image,
            command=["bash", "-c", _SCRIPT],  # type: ignore[arg-type]  # passed on as it is
            env=_environment(settings or {}),
            stdin_open=True,
            auto_remove=True,
        )
        # Without a password it must not be reached from the network, as the embedded one.
        self.ports[f"{PORT}/tcp"] = (LOOPBACK,) if self._host == LOOPBACK else None  # type: ignore[assignment]  # docker's own form

    @property
    def bootstrap_servers(self) -> str:
        container = self.get_wrapped_container()
        deadline = time.monotonic() + READY_SECONDS_MAX
        while not (bound := container.ports.get(f"{PORT}/tcp")):
            if time.monotonic() > deadline:
                raise ContainerError(f"the engine published no port of {container.short_id}")
            container.reload()
        return f"{self._host}:{bound[0]['HostPort']}"

    def start(self) -> KafkaContainer:
        """Start, and wait until the broker answers; what does not come up is removed.

        Raises:
            ContainerError: it does not come up; the message says why.
        """
        try:
            self._start()
        except BaseException:  # Ctrl-C too.
            self.stop()
            raise
        return self

    def __enter__(self) -> KafkaContainer:
        return self if self._container is not None else self.start()

    def stop(self, force: bool = True, delete_volume: bool = True) -> None:
        """End and remove it; back when it is gone."""
        if self._container is not None:
            container = self.get_wrapped_container()
            with suppress(APIError):  # It may just be removed by the engine.
                container.remove(force=force, v=delete_volume)
            deadline = time.monotonic() + REMOVE_SECONDS_MAX
            with suppress(NotFound):
                while time.monotonic() < deadline:
                    container.reload()
                    time.sleep(_POLL_SECONDS)
            self._container = None
        if self._input is not None:
            self._input.close()
            self._input = None
        super().stop()

    def _start(self) -> None:
        try:
            super().start()
            container = self.get_wrapped_container()
            self._input = container.attach_socket(params={"stdin": 1, "stream": 1})
            self._log.start()
            line = f"PLAINTEXT://{self.bootstrap_servers},BROKER://localhost:{PORT + 2}\n"
            self._input._sock.sendall(line.encode())
            self._wait_until_ready()
        except NotFound as reason:
            self._log.join(REMOVE_SECONDS_MAX)  # Its last words may still be on their way.
            raise ContainerError(f"{self.image} ended at once{self._last_words()}") from reason
        except APIError as reason:
            raise ContainerError(f"{self.image} cannot be started: {reason}") from reason

    def _wait_until_ready(self) -> None:
        with AdminClient({"bootstrap.servers": self.bootstrap_servers, "log_level": 0}) as admin:
            deadline = time.monotonic() + READY_SECONDS_MAX
            while time.monotonic() < deadline:
                self.get_wrapped_container().reload()  # raises NotFound when it has ended
                with suppress(KafkaException):
                    if admin.list_topics(timeout=2.0).brokers:
                        return
                time.sleep(_POLL_SECONDS)
            waited = f"{self.image} did not answer within {READY_SECONDS_MAX:.0f} s"
            raise ContainerError(f"{waited}{self._last_words()}")

    def _keep_log(self) -> None:
        with suppress(DockerException, OSError):  # The end of the container is the log's end.
            for piece in self.get_wrapped_container().attach(stream=True, logs=True):
                self._said = (self._said + piece)[-_LOG_SIZE:]

    def _last_words(self) -> str:
        lines = self._said.decode(errors="replace").splitlines()
        errors = [line for line in lines if "Exception" in line or line.startswith("kafka: ")]
        words = next(iter(errors or lines[-1:]), "it said nothing")
        return f": {words.strip()[:300]}"


def _environment(settings: Mapping[str, str]) -> dict[str, str]:
    """The embedded broker's settings as the official image takes them.

    The broker talks to itself, too (it writes the markers of transactions): not by the address for
    clients, which is no address inside the container.
    """
    lines = {
        **BROKER_SETTINGS,
        "listeners": f"PLAINTEXT://:{PORT},CONTROLLER://localhost:{PORT + 1},"
        f"BROKER://localhost:{PORT + 2}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,"
        "BROKER:PLAINTEXT",
        "inter.broker.listener.name": "BROKER",
        "controller.quorum.voters": f"{BROKER_SETTINGS['node.id']}@localhost:{PORT + 1}",
        **settings,
    }
    return {f"KAFKA_{name.upper().replace('.', '_')}": value for name, value in lines.items()}
