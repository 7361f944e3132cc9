"""The embedded broker: a real Kafka 4.2 in a process of its own, for one machine and for tests.

Without a data folder it keeps its data in a temporary one and leaves nothing behind. With one, the
next broker on that folder resumes with the same records, on the same ports where they are free.
"""

from __future__ import annotations

import base64
import re
import shutil
import socket
import tempfile
import uuid
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final, Self

from spu_assigner.stream.common.private_files import private_folder
from spu_assigner.stream.local.broker.process import (
    BROKER_SETTINGS,
    HOST,
    BrokerError,
    BrokerProcess,
    Ports,
)
from spu_assigner.stream.local.jvm.jars import ensure
from spu_assigner.stream.local.jvm.java import ensure_java

__all__ = ["BrokerError", "EmbeddedBroker"]

DEFAULT_PORT: Final = 9092  # of Kafka's own documents, and of the clients here
# Kafka's features at their latest versions, as its storage tool writes them; a test compares both.
BOOTSTRAP: Final = Path(__file__).with_name("bootstrap.checkpoint")


def new_cluster_id() -> str:
    """16 random bytes as Kafka writes them; a leading dash would read as an option."""
    return f"S{base64.urlsafe_b64encode(uuid.uuid4().bytes).decode()[1:22]}"


def format_data(data: Path, *, cluster_id: str, node_id: str | int) -> None:
    """Make a new data folder as Kafka's storage tool does, which needs a JVM and 2 s for it."""
    data.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(BOOTSTRAP, data / BOOTSTRAP.name)
    text = f"version=1\nnode.id={node_id}\ncluster.id={cluster_id}\n"
    (data / "meta.properties").write_text(text, encoding="utf-8")


class EmbeddedBroker(BrokerProcess):
    """A broker that lives as long as this process at most.

    Args:
        data_dir: where data, settings and log are kept; None for a temporary folder.
        port: the client port; None for what `_choose_ports` finds.
        settings: further lines of `server.properties`.
    """

    def __init__(
        self,
        data_dir: Path | None = None,
        *,
        port: int | None = None,
        preferred_port: int | None = None,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        folder = data_dir or Path(tempfile.mkdtemp(prefix="spu-assigner-broker-"))
        folder = folder.absolute()
        private_folder(folder)
        self._is_temporary = data_dir is None
        self._has_run = port is not None  # on its ports: it keeps them
        super().__init__(
            java=ensure_java(),
            jars=ensure("broker"),
            folder=folder,
            ports=_choose_ports(folder, port, preferred_port),
            settings=dict(settings or {}),
        )

    def start(self) -> Self:
        """Start, and wait until the broker answers, 2 s; after a `stop` on the same ports."""
        if self.is_running:
            raise BrokerError(
                f"the broker already runs on {self.bootstrap_servers}; stop it, or use that one"
            )
        self.kill()  # It may have ended by itself: its pipes are closed here.
        if not (self.data / "meta.properties").exists():
            node_id = BROKER_SETTINGS["node.id"]
            format_data(self.data, cluster_id=new_cluster_id(), node_id=node_id)
        try:
            super().start()
        except BrokerError as reason:
            if self._has_run or "in use" not in str(reason):
                raise
            self.ports = _free_ports()  # Another process took one meanwhile.
            super().start()
        self._has_run = True
        return self

    def close(self) -> None:
        """Stop, and remove the data folder if it was a temporary one."""
        self.stop()
        if self._is_temporary:
            shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self) -> Self:
        return self if self.is_running else self.start()

    def __exit__(self, *_: object) -> None:
        self.close()


def _choose_ports(folder: Path, port: int | None, preferred_port: int | None) -> Ports:
    """The port asked for, else those the folder remembers, else the preferred one, else any. All
    but the first only where they are free."""
    free = _free_ports()
    if port is not None:
        if not _is_free(port):
            raise BrokerError(f"port {port} of {HOST} is taken; stop what listens there")
        return Ports(client=port, controller=free.controller)
    with suppress(OSError):
        text = (folder / "server.properties").read_text(encoding="utf-8")
        if match := re.search(r"^listeners=PLAINTEXT://\S+?:(\d+),\S+:(\d+)$", text, re.MULTILINE):
            remembered = Ports(client=int(match[1]), controller=int(match[2]))
            if _is_free(remembered.client) and _is_free(remembered.controller):
                return remembered
    if preferred_port is not None and _is_free(preferred_port):
        return Ports(client=preferred_port, controller=free.controller)
    return free


def _is_free(port: int) -> bool:
    with suppress(OSError), socket.create_server((HOST, port)):
        return True
    return False


def _free_ports() -> Ports:
    """Two different free ports: both are held until both are known."""
    with socket.create_server((HOST, 0)) as client, socket.create_server((HOST, 0)) as controller:
        return Ports(client=client.getsockname()[1], controller=controller.getsockname()[1])
