"""docker/ without an engine: what its files promise, and what is said where no engine is."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from support.project.locks import read_lock

ROOT = Path(__file__).parents[3]
DOCKER = ROOT / "docker"
IMAGES = ("kafka", "job")


def services() -> dict[str, dict[str, Any]]:
    text = (DOCKER / "compose.yaml").read_text(encoding="utf-8")
    found: dict[str, dict[str, Any]] = yaml.safe_load(text)["services"]
    return found


@pytest.mark.parametrize("command", ["up", "down", "build"])
def test_a_missing_engine_is_one_line_that_says_how_to_get_one(
    command: str, tmp_path: Path
) -> None:
    """Without Docker the message says so at once, and that it works without."""
    done = subprocess.run(
        [sys.executable, str(DOCKER / "stack.py"), command],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        env={**os.environ, "PATH": str(tmp_path)},
        check=False,
    )
    assert done.returncode == 1
    [line] = done.stderr.splitlines()
    assert re.match(r"docker-(up|down|build): the command `docker` is not there; install ", line)
    assert "make run" in line


_ENGINE = """\
#!/bin/sh
# A Docker engine without images that can build everything, and writes down what it is asked for.
echo "$*" >> "{log}"
case "$1 $2" in
  "version "*) echo amd64 ;;
  "image inspect") case "$3$4$5" in *Config*) exit 1 ;; esac ;;
esac
exit {status}
"""


def calls(engine: Path) -> list[str]:
    """What the engine was asked for."""
    return (engine / "log").read_text(encoding="utf-8").splitlines()


@pytest.fixture
def engine(tmp_path: Path) -> Path:
    """A folder with a command `docker` in it, for the PATH."""
    command = tmp_path / "docker"
    command.write_text(_ENGINE.format(log=tmp_path / "log", status=0), encoding="utf-8")
    command.chmod(0o755)
    return tmp_path


def test_a_port_that_is_taken_is_reported_before_anything_is_built(engine: Path) -> None:
    """A build takes five minutes, after which nothing could be started."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = subprocess.run(
            [sys.executable, str(DOCKER / "stack.py"), "up"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            env={**os.environ, "PATH": f"{engine}:/usr/bin:/bin", "KAFKA_PORT": str(port)},
            check=False,
        )
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        f"docker-up: 127.0.0.1:{port} cannot be had for Kafka (Address already in use); end what "
        "listens there, or name another port with KAFKA_PORT\n"
    )
    assert not [call for call in calls(engine) if call.startswith(("build", "image", "pull"))]


def test_every_published_port_is_on_the_loopback() -> None:
    """A line that is added later must not open a page that asks nobody who he is."""
    ports = [port for service in services().values() for port in service.get("ports", ())]
    assert len(ports) >= 3
    assert [port for port in ports if not port.startswith("127.0.0.1:")] == []


def test_every_container_of_the_jobs_image_is_confined() -> None:
    """Read-only root, no capabilities, no new rights, nothing of the host's mounted."""
    for name, service in services().items():
        if "SPU_ASSIGNER_IMAGE" not in service["image"]:
            continue
        assert service["read_only"] is True, name
        assert service["cap_drop"] == ["ALL"], name
        assert service["security_opt"] == ["no-new-privileges:true"], name
        assert not {"privileged", "network_mode", "user", "cap_add"} & service.keys(), name
        assert all(not volume.startswith((".", "/", "~")) for volume in service.get("volumes", ()))


@pytest.mark.parametrize("image", IMAGES)
def test_an_image_ends_as_a_user_without_rights_and_reports_its_health(image: str) -> None:
    """And is built on the base that is asked for."""
    lines = (DOCKER / f"{image}.Dockerfile").read_text(encoding="utf-8").splitlines()
    last = lines[max(i for i, line in enumerate(lines) if line.startswith("FROM ")) :]
    [user] = [line for line in last if line.startswith("USER ")]
    assert user not in {"USER root", "USER 0", "USER 0:0"}
    assert any(line.startswith("HEALTHCHECK ") for line in last)
    assert "FROM ${BASE} AS system" in lines or "FROM ${BASE}" in lines


def test_the_image_gets_what_the_product_needs_and_no_more() -> None:
    """Its lock names what the project's does, of the same versions, without the tools of tests."""
    mine, all_ = (read_lock((at / "requirements.lock").read_text()) for at in (DOCKER, ROOT))
    assert mine.items() <= all_.items()
    whole = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    project = whole["project"]
    wanted = [*project["dependencies"], *project["optional-dependencies"]["job"]]
    needed = {canonicalize_name(Requirement(each).name) for each in wanted}
    assert needed <= mine.keys()
    tools = {
        canonicalize_name(Requirement(each).name) for each in whole["dependency-groups"]["dev"]
    }
    assert not (tools - needed) & mine.keys()  # of a range that is needed, tests pin one version
