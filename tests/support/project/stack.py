"""The containers of docker/compose.yaml, in a project of the tests' own on ports of their own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from support.kafka.ports import free_ports

ROOT = Path(__file__).parents[3]
COMMANDS = ROOT / "docker"
WAIT_SECONDS_MAX = 300.0  # Spark's start in several containers on few cores


def docker(*arguments: str) -> str:
    """What the engine's client printed; fails if it refuses."""
    done = subprocess.run(
        ["docker", *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"docker {' '.join(arguments)}: {done.stderr}"
    return done.stdout


def eventually(is_so: Callable[[], bool], what: str) -> None:
    """Wait until it is so; fails past a generous deadline."""
    deadline = time.monotonic() + WAIT_SECONDS_MAX
    while not is_so():
        assert time.monotonic() < deadline, f"not within {WAIT_SECONDS_MAX:.0f} s: {what}"
        time.sleep(0.2)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stack:
    """A project; `environ` is what its commands are given beside this process's environment."""

    project: str
    environ: Mapping[str, str]

    @classmethod
    def fresh(cls, **given: str) -> Stack:
        """A project that nobody else has."""
        project = f"spu-assigner-test-{os.getpid()}"
        kafka, master, ui, metrics = free_ports(4)
        environ = {
            "COMPOSE_PROJECT_NAME": project,
            "KAFKA_PORT": str(kafka),
            "SPARK_MASTER_UI_PORT": str(master),
            "SPARK_UI_PORT": str(ui),
            "METRICS_PORT": str(metrics),
            **given,
        }
        return cls(project=project, environ=environ)

    @property
    def bootstrap_servers(self) -> str:
        return f"127.0.0.1:{self.environ['KAFKA_PORT']}"

    def command(self, *arguments: str, **given: str) -> subprocess.CompletedProcess[str]:
        """Run `docker/stack.py` as make does."""
        return subprocess.run(
            [sys.executable, str(COMMANDS / "stack.py"), *arguments],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            env={**os.environ, **self.environ, **given},
            check=False,
        )

    def inspect(self) -> dict[str, dict[str, Any]]:
        """What the engine knows of each container, by service."""
        own = f"label=com.docker.compose.project={self.project}"
        ids = docker("ps", "--all", "--quiet", "--filter", own).split()
        found = json.loads(docker("inspect", *ids)) if ids else []
        label = "com.docker.compose.service"
        return {each["Config"]["Labels"][label]: each for each in found}

    def container(self, service: str) -> str:
        """The id of a service's container."""
        return str(self.inspect()[service]["Id"])

    def health(self, service: str) -> str:
        return str(self.inspect()[service]["State"].get("Health", {}).get("Status"))

    def await_health(self, service: str) -> None:
        """Wait until a service is healthy."""
        eventually(lambda: self.health(service) == "healthy", f"{service} is healthy")

    def verified(self) -> dict[str, Any]:
        """What `spu-assigner verify` says of all the job has written; fails if it finds fault."""
        command = [sys.executable, "-m", "spu_assigner.stream.cli", "verify", "--strict"]
        done = subprocess.run(
            [*command, "--output", "json", "--bootstrap-servers", self.bootstrap_servers],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        found: dict[str, Any] = json.loads(done.stdout)
        return found
