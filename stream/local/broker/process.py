"""One Kafka broker process on a data folder and ports that are given: start, wait, stop, kill.

The broker listens on the loopback only, is broker and controller in one, and runs in a session of
its own: a Ctrl-C in the terminal reaches the product, which stops the broker after the job.
"""

from __future__ import annotations

import fcntl
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Final, Self

from spu_assigner.core.base.errors import AssignerError
from spu_assigner.stream.common.private_files import MASK, open_private
from spu_assigner.stream.local.jvm.java import Java

HOST: Final = "127.0.0.1"
HEAP_MB: Final = 512  # 8 MiB messages and the cleaner's buffer fit many times
READY_SECONDS_MAX: Final = 60.0  # it takes 2 to 3 s; a machine under load may need ten times that
STOP_SECONDS_MAX: Final = 20.0  # a clean stop takes 0.5 s
LOCK_SECONDS_MAX: Final = 3.0  # a broker whose product was killed is gone within one
POLL_SECONDS: Final = 0.02
SUPERVISE: Final = Path(__file__).with_name("supervise.py")
LOG_SETTINGS: Final = Path(__file__).with_name("log4j2.properties")

# One broker for one machine: what Kafka's defaults spread over three brokers or fifty partitions
# is kept once, which also starts faster.
BROKER_SETTINGS: Final[Mapping[str, str]] = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "inter.broker.listener.name": "PLAINTEXT",
    "auto.create.topics.enable": "false",  # a typing error must not make a topic
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    # After a crash the next broker waits until the old one's session is over: 3 s, not 9.
    "broker.heartbeat.interval.ms": "500",
    "broker.session.timeout.ms": "3000",
    "metadata.max.idle.interval.ms": "5000",  # an idle broker need not write twice a second
    "group.initial.rebalance.delay.ms": "0",  # a consumer alone in its group need not wait 3 s
    "log.cleaner.dedupe.buffer.size": "16777216",  # of a small heap; the default is 128 MiB
}

_STARTED: Final = "Kafka Server started"  # logged when other nodes know it and clients are served
_EXCEPTION: Final = re.compile(r"[\w.$]+(?:Exception|Error)(?:: |$)")


class BrokerError(AssignerError):
    """The embedded broker did not start, or ended by itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ports:
    """Where a broker listens."""

    client: int
    controller: int


@dataclass(slots=True, kw_only=True)
class BrokerProcess:
    """A broker's process; the folder holds its data, settings and log."""

    java: Java
    jars: Sequence[Path]
    folder: Path
    ports: Ports
    heap_mb: int = HEAP_MB
    settings: Mapping[str, str] = field(default_factory=dict)
    pid: int | None = None  # the JVM's, while it runs
    _supervisor: subprocess.Popen[bytes] | None = None

    @property
    def data(self) -> Path:
        """Where the broker stores topics."""
        return self.folder / "data"

    @property
    def log_path(self) -> Path:
        """Where the broker logs."""
        return self.folder / "broker.log"

    @property
    def bootstrap_servers(self) -> str:
        """`127.0.0.1:port`; the same after a restart."""
        return f"{HOST}:{self.ports.client}"

    @property
    def is_running(self) -> bool:
        """Whether the broker's supervisor has not ended."""
        return self._supervisor is not None and self._supervisor.poll() is None

    def java_command(self, *arguments: str) -> list[str]:
        """Java with the broker's class path."""
        return [
            str(self.java.executable),
            f"-Xmx{self.heap_mb}m",
            "-XX:+UseSerialGC",  # a small heap: less memory and a faster start than G1
            "-XX:TieredStopAtLevel=1",  # Spark shares these cores: no C2 compiler threads
            "-XX:-UsePerfData",
            "-Xlog:disable",
            "-Xlog:all=error:stderr",
            "-Djava.awt.headless=true",
            "-Dlog4j2.disableJmx=true",
            f"-Dlog4j2.configurationFile={LOG_SETTINGS}",
            "-cp",
            os.pathsep.join(map(str, self.jars)),
            *arguments,
        ]

    def write_settings(self) -> Path:
        """Write `server.properties`; its path."""
        self.data.mkdir(parents=True, exist_ok=True)
        client = f"PLAINTEXT://{self.bootstrap_servers}"
        controller = f"{HOST}:{self.ports.controller}"
        settings = {
            **BROKER_SETTINGS,
            "listeners": f"{client},CONTROLLER://{controller}",
            "advertised.listeners": client,
            "controller.quorum.voters": f"{BROKER_SETTINGS['node.id']}@{controller}",
            "log.dirs": str(self.data),
            **self.settings,
        }
        path = self.folder / "server.properties"
        lines = (f"{name}={value}\n" for name, value in settings.items())
        path.write_text("".join(lines), encoding="utf-8")
        return path

    def start(self) -> Self:
        """Start and wait until the broker serves clients."""
        with self._folder_lock() as lock, open_private(self.log_path) as log:
            command = self.java_command("kafka.Kafka", str(self.write_settings()))
            begin = log.tell()
            supervise = [sys.executable, "-I", "-S", "-B", str(SUPERVISE), str(STOP_SECONDS_MAX)]
            self._supervisor = subprocess.Popen(
                [*supervise, *command],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                pass_fds=[lock.fileno()],  # The folder is locked as long as the broker lives.
                start_new_session=True,
                umask=MASK,
            )
        try:
            with self._supervisor.stdout as pipe:  # type: ignore[union-attr]  # it is a pipe
                self.pid = int(pipe.readline() or 0) or None
            self._wait_until_started(begin)
            return self
        except BaseException:  # Ctrl-C too: no process may be left behind.
            self.kill()
            raise

    def stop(self) -> None:
        """Let the broker end cleanly: nothing acknowledged is lost. Past a time it is killed."""
        if self._supervisor is None:
            return
        self._close_pipe()
        try:
            self._supervisor.wait(STOP_SECONDS_MAX + 5.0)
        except subprocess.TimeoutExpired:
            self.kill()
        self._supervisor = self.pid = None

    def kill(self) -> None:
        """End the broker as a crash would, and wait until it is gone."""
        if self._supervisor is None:
            return
        for kill, number in ((os.kill, self.pid), (os.killpg, self._supervisor.pid)):
            if number is not None and self._supervisor.poll() is None:
                with suppress(ProcessLookupError):
                    kill(number, signal.SIGKILL)
        self._supervisor.wait()
        self._close_pipe()
        self._supervisor = self.pid = None

    def _close_pipe(self) -> None:
        """The supervisor's sign to end the broker."""
        with suppress(BrokenPipeError):
            self._supervisor.stdin.close()  # type: ignore[union-attr]  # it is a pipe

    def _folder_lock(self) -> IO[str]:
        """Lock the folder, or find that another broker runs on it, or is still about to end."""
        self.folder.mkdir(parents=True, exist_ok=True)
        lock = (self.folder / ".lock").open("w", encoding="utf-8")
        deadline = time.monotonic() + LOCK_SECONDS_MAX
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return lock
            except BlockingIOError as reason:
                if time.monotonic() > deadline:
                    lock.close()
                    raise BrokerError(
                        f"another broker runs on {self.folder}; stop it or name another folder"
                    ) from reason
                time.sleep(POLL_SECONDS)

    def _wait_until_started(self, log_begin: int) -> None:
        deadline = time.monotonic() + READY_SECONDS_MAX
        while time.monotonic() < deadline:
            is_running = self.is_running  # Asked before the log is read: what it said last counts.
            said = self._said(log_begin)
            if _STARTED in said:
                return
            if not is_running:
                raise BrokerError(f"the broker ended at once; its log says why{self._cause(said)}")
            time.sleep(POLL_SECONDS)
        waited = f"the broker did not start within {READY_SECONDS_MAX:.0f} s"
        raise BrokerError(f"{waited}{self._cause(self._said(log_begin))}")

    def _said(self, log_begin: int) -> str:
        with self.log_path.open("rb") as log:
            log.seek(log_begin)
            return log.read().decode(errors="replace")

    def _cause(self, said: str) -> str:
        """The first exception of a log, or else error; and where the log is."""
        lines = said.splitlines()
        exceptions = [line for line in lines if _EXCEPTION.match(line)]
        errors = [line for line in lines if " ERROR " in line or line.startswith("Error: ")]
        words = next(iter(exceptions or errors or lines[-1:]), "its log is empty")
        return f": {words.strip()[:300]}; its log is {self.log_path}"
