"""The embedded broker: a real Kafka 4.2 in a process of its own, for one machine and for tests.

    with EmbeddedBroker() as broker:
        ...  # clients connect to broker.bootstrap_servers

Without a data folder it keeps its data in a temporary one and leaves nothing behind. With one, the
next broker on that folder resumes with the same records, on the same ports where they are free.
"""

from __future__ import annotations

import re
import shutil
import socket
import tempfile
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from spu_assigner.stream.common.private_files import private_folder
from spu_assigner.stream.local.broker.class_archive import (
    HEAP_MB,
    copy_data,
    ensure_image,
    jvm_options,
)
from spu_assigner.stream.local.broker.process import HOST, BrokerError, BrokerProcess, Ports
from spu_assigner.stream.local.jvm.jars import ensure
from spu_assigner.stream.local.jvm.java import Java, ensure_java

__all__ = ["BrokerError", "EmbeddedBroker", "prepare"]

DEFAULT_PORT: Final = 9092  # of Kafka's own documents, and of the clients here
PORT_TRIES_MAX: Final = 3  # between finding a free port and using it another process may take it


def prepare(
    environ: Mapping[str, str] | None = None,
    report: Callable[[str], None] = lambda message: None,
) -> tuple[Java, list[Path], Path]:
    """Java, jars and start image of the broker, brought or made where they are missing.

    Raises:
        JavaError, JarError: what it runs on cannot be had.
        BrokerError: the run that makes the image failed.
    """
    java = ensure_java(environ)
    jars = ensure("broker", environ)
    image = ensure_image(java, jars, ports=_free_ports(), environ=environ, report=report)
    return java, jars, image


class EmbeddedBroker:
    """A broker that lives as long as this process at most.

    Args:
        data_dir: where data, settings and log are kept; None for a temporary folder.
        port: the client port; None for the one the folder remembers if free, else the preferred
            one if free, else any free one.
        preferred_port: see `port`; None for none.
        heap_mb: the JVM's heap.
        settings: further lines of `server.properties`.
    """

    def __init__(
        self,
        data_dir: Path | None = None,
        *,
        port: int | None = None,
        preferred_port: int | None = None,
        heap_mb: int = HEAP_MB,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        self._data_dir = data_dir
        self._port = port
        self._preferred_port = preferred_port
        self._heap_mb = heap_mb
        self._settings = dict(settings or {})
        self._process: BrokerProcess | None = None

    @property
    def bootstrap_servers(self) -> str:
        """`127.0.0.1:port`; the same after a restart."""
        return self._begun().bootstrap_servers

    @property
    def pid(self) -> int | None:
        """The JVM's process id; None while the broker is stopped."""
        return self._begun().pid

    @property
    def log_path(self) -> Path:
        """Where the broker logs."""
        return self._begun().log

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.is_running

    def start(self) -> Self:
        """Start, wait until the broker answers, 1 s; after `stop` or `kill` on the same ports.

        Raises:
            BrokerError: it does not come up; the message says why and names its log.
            JavaError, JarError: what it runs on cannot be had.
            FolderError: others can write to its data folder.
        """
        if self.is_running:
            raise BrokerError(
                f"the broker already runs on {self.bootstrap_servers}; stop it, or use that one"
            )
        if self._process is not None:
            self._process.kill()  # It may have ended by itself: its pipes are closed here.
            self._process.start()
            return self
        java, jars, image = prepare()
        folder = self._data_dir or Path(tempfile.mkdtemp(prefix="spu-assigner-broker-"))
        folder = folder.absolute()
        private_folder(folder)
        for tries in range(1, PORT_TRIES_MAX + 1):
            process = BrokerProcess(
                java=java,
                jars=jars,
                folder=folder,
                ports=_choose_ports(folder, self._port, self._preferred_port),
                heap_mb=self._heap_mb,
                settings=self._settings,
                jvm_options=jvm_options(image),
            )
            if not (process.data / "meta.properties").exists():
                copy_data(image, process.data)
            try:
                process.start()
            except BrokerError as reason:
                if tries == PORT_TRIES_MAX or "in use" not in str(reason):
                    raise
            else:
                break
        self._process = process
        return self

    def stop(self) -> None:
        """End cleanly: nothing that was acknowledged is lost, and the next start is fast."""
        if self._process is not None:
            self._process.stop()

    def kill(self) -> None:
        """End as a crash would."""
        self._begun().kill()

    def restart(self) -> Self:
        """Stop cleanly and start again on the same data and ports."""
        self.stop()
        return self.start()

    def close(self) -> None:
        """Stop, and remove the data folder if it was a temporary one."""
        self.stop()
        if self._process is not None and self._data_dir is None:
            shutil.rmtree(self._process.folder, ignore_errors=True)
        self._process = None

    def __enter__(self) -> Self:
        return self if self.is_running else self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _begun(self) -> BrokerProcess:
        if self._process is None:
            raise BrokerError("the broker has not been started; call `start` first")
        return self._process


def _choose_ports(folder: Path, port: int | None, preferred_port: int | None) -> Ports:
    """The port asked for, else those the folder remembers if both are free, else the preferred
    one if it is free, else any free ones.
    """
    if port is not None:
        if not _is_free(port):
            raise BrokerError(f"port {port} of {HOST} is taken; stop what listens there")
        return Ports(client=port, controller=_free_ports().controller)
    with suppress(OSError):
        text = (folder / "server.properties").read_text(encoding="utf-8")
        if match := re.search(r"^listeners=PLAINTEXT://\S+?:(\d+),\S+:(\d+)$", text, re.MULTILINE):
            remembered = Ports(client=int(match[1]), controller=int(match[2]))
            if _is_free(remembered.client) and _is_free(remembered.controller):
                return remembered
    if preferred_port is not None and _is_free(preferred_port):
        return Ports(client=preferred_port, controller=_free_ports().controller)
    return _free_ports()


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
        return True


def _free_ports() -> Ports:
    """Two different free ports: both are held until both are known."""
    with ExitStack() as stack:
        probes = [stack.enter_context(socket.socket()) for _ in range(2)]
        for probe in probes:
            probe.bind((HOST, 0))
        client, controller = (int(probe.getsockname()[1]) for probe in probes)
    return Ports(client=client, controller=controller)
