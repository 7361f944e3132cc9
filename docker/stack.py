"""The containers of docker/compose.yaml: `make docker-build`, `docker-up` and `docker-down`.

    python docker/stack.py build [kafka] [job] build the images, or those that are named
    python docker/stack.py up                  build what is missing, start, play the scenario
    python docker/stack.py down [--volumes]    stop; with --volumes the data are gone, too

`up` may be repeated: what runs and is up to date stays as it is, and the scenario is played again.
Its exit status is 0 only if every map and answer was as expected. COMPOSE_PROJECT_NAME names
another project than `spu-assigner`, beside which the same may run on other ports.
"""

from __future__ import annotations

import argparse
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from typing import Final

from images import (
    BUILD,
    HERE,
    IMAGES,
    DockerError,
    check_engine,
    ensure_image,
    last_line,
    logged,
    report,
    said,
)
from spu_assigner.core.base.errors import AssignerError

LOOPBACK: Final = "127.0.0.1"
PROJECT: Final = os.environ.get("COMPOSE_PROJECT_NAME") or "spu-assigner"
SCENARIO: Final = "scenario"
WAIT_SECONDS_MAX: Final = 300.0  # for the scenario; it ends by itself before

# What is published: the variable that names another port, and the default of compose.yaml.
PORTS: Final[Mapping[str, tuple[str, int]]] = {
    "Kafka": ("KAFKA_PORT", 9092),
    "Spark UI of the master": ("SPARK_MASTER_UI_PORT", 8080),
    "Spark UI of the job": ("SPARK_UI_PORT", 4040),
    "metrics and health": ("METRICS_PORT", 4060),
}
PROFILES_VARIABLE: Final = "COMPOSE_PROFILES"
MONITORING: Final = "monitoring"
MONITORING_PORTS: Final[Mapping[str, tuple[str, int]]] = {
    "Prometheus": ("PROMETHEUS_PORT", 9090),
    "Grafana": ("GRAFANA_PORT", 3000),
}


def build(names: Iterable[str]) -> int:
    """Build these images; the exit status."""
    for name in names:
        if name not in IMAGES:
            raise DockerError(f"there is no image {name!r}; expected {' or '.join(IMAGES)}")
        ensure_image(name)
    return 0


def up() -> int:
    """Start everything, and print what the scenario's maps became; the exit status."""
    check_engine()
    command = _compose()
    ports = _free_ports()  # Before anything is built, which takes minutes.
    build(IMAGES)
    report("starting Kafka, Spark's master, two workers and the job; about a minute")
    fault = logged([*command, "up", "--detach", "--remove-orphans"], BUILD / "up.log")
    if fault is not None:
        raise DockerError(f"not everything started ({fault}){_unwell()}")
    status = _scenario()
    for what, port in ports.items():
        scheme = "" if what == "Kafka" else "http://"
        report(f"{what:<22}  {scheme}{LOOPBACK}:{port}")
    report("`make docker-down` stops it and keeps the data; VOLUMES=1 forgets them, too")
    return status


def down(*, volumes: bool) -> int:
    """Stop and remove the containers, and the data if asked to; the exit status."""
    check_engine()
    command = [*_compose(), "--profile", MONITORING, "down", "--remove-orphans"]
    done = said([*command, *(["--volumes"] if volumes else ())])
    if done.returncode != 0:
        raise DockerError(f"not everything was stopped: {last_line(done.stdout, done.stderr)}")
    report("stopped; the data are gone" if volumes else "stopped; the data stay on their volumes")
    return 0


def _compose() -> list[str]:
    """Compose on this project: version 2 as the client's plug-in, else 1.29."""
    if said(["docker", "compose", "version"]).returncode == 0:
        command = ["docker", "compose"]
    elif shutil.which("docker-compose") is not None:
        command = ["docker-compose"]
    else:
        raise DockerError(
            "Docker Compose is not there; install it (Debian: `apt-get install docker-compose`; "
            "others: the package docker-compose-plugin)"
        )
    return [*command, "--project-name", PROJECT, "--file", str(HERE / "compose.yaml")]


def _containers(*conditions: str) -> list[str]:
    """The names of the project's containers under these conditions of `docker ps`."""
    own = f"label=com.docker.compose.project={PROJECT}"
    filters = [word for condition in (own, *conditions) for word in ("--filter", condition)]
    listed = said(["docker", "ps", "--all", "--format", "{{.Names}}", *filters])
    return listed.stdout.split()


def _free_ports() -> dict[str, int]:
    """What is to be published where; raises DockerError if something else listens there."""
    wanted = dict(PORTS)
    if MONITORING in os.environ.get(PROFILES_VARIABLE, "").split(","):
        wanted |= MONITORING_PORTS
    ports = {}
    for what, (variable, default) in wanted.items():
        text = os.environ.get(variable) or str(default)
        if not text.isdecimal() or not 1 <= int(text) <= 65_535:
            raise DockerError(f"{variable} is {text!r}; expected a port, 1 to 65535")
        ports[what] = port = int(text)
        if _containers("status=running", f"publish={port}"):
            continue  # It is this project's own.
        with closing(socket.socket()) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((LOOPBACK, port))
            except OSError as reason:
                raise DockerError(
                    f"{LOOPBACK}:{port} cannot be had for {what} ({reason.strerror}); end "
                    f"what listens there, or name another port with {variable}"
                ) from reason
    return ports


def _scenario() -> int:
    """Wait for the scenario's end and print what it printed; its exit status."""
    names = _containers(f"label=com.docker.compose.service={SCENARIO}")
    if not names:
        raise DockerError("the scenario has no container; see `docker ps --all`")
    try:
        waited = said(["docker", "wait", names[0]], WAIT_SECONDS_MAX)
    except subprocess.TimeoutExpired as reason:
        raise DockerError(
            f"the scenario did not end within {WAIT_SECONDS_MAX:.0f} s{_unwell()}"
        ) from reason
    logs = said(["docker", "logs", names[0]])
    print(logs.stdout, end="", flush=True)
    status = waited.stdout.strip()
    if status not in {"0", "1"} or (status == "1" and not logs.stdout):
        raise DockerError(f"the scenario was not played: {last_line(logs.stderr)}")
    return int(status)


def _unwell() -> str:
    """The containers that are not as they should be, with what they said last."""
    names = {*_containers("health=unhealthy"), *_containers("status=restarting")}
    names |= set(_containers("status=exited")) - set(_containers("exited=0"))
    found = ""
    for name in sorted(names):
        logs = said(["docker", "logs", "--tail", "20", name])
        found += f"; {name} is not well: {last_line(logs.stdout, logs.stderr)[:300]}"
    return f"{found}; `docker logs NAME` shows more"


def main(arguments: Sequence[str]) -> int:
    """Do what is asked; the exit status."""
    parser = argparse.ArgumentParser(prog="docker/stack.py")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("build").add_argument("images", nargs="*", metavar="kafka|job")
    commands.add_parser("up")
    commands.add_parser("down").add_argument("--volumes", action="store_true")
    given = parser.parse_args(arguments)
    try:
        if given.command == "build":
            return build(given.images or IMAGES)
        return up() if given.command == "up" else down(volumes=given.volumes)
    except AssignerError as error:
        print(f"docker-{given.command}: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
