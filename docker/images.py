"""The images of docker/, for `docker/stack.py`.

Docker's own cache knows what has changed since the last build. What goes into an image is gathered
here: packages and jars come by this machine's pip and Python, with its mirrors, proxies and
certificates, of which nothing must get into an image, and are checked against the locks here and
once more in the build. The build itself asks the network for the packages of the base image's own
distribution alone. It needs neither BuildKit nor Compose version 2, and both will do.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from spu_assigner.core.base.errors import AssignerError
from spu_assigner.stream.local.jvm.jars import Group, ensure_all

ROOT: Final = Path(__file__).resolve().parents[1]
HERE: Final = ROOT / "docker"
BUILD: Final = ROOT / "build" / "docker"

# Each with the variable by which a user names another one.
IMAGES: Final[Mapping[str, tuple[str, str]]] = {
    "kafka": ("spu-assigner-kafka", "KAFKA_IMAGE"),
    "job": ("spu-assigner", "SPU_ASSIGNER_IMAGE"),
}
BASE_VARIABLE: Final = "DOCKER_BASE"
BASE: Final = "debian:bookworm-slim"  # wheels are chosen for its Python and C library
PYTHON: Final = "3.11"
GLIBC_MINOR: Final = 36
ARCHITECTURES: Final = {"amd64": "x86_64", "arm64": "aarch64"}
PROXIES: Final = ("http_proxy", "https_proxy", "no_proxy")

JOB_JARS: Final[tuple[Group, ...]] = ("spark-kafka", "spark-local", "spark-s3")
KAFKA_JARS: Final[tuple[Group, ...]] = ("broker", "kafka-tools")


class DockerError(AssignerError):
    """The engine, an image, a port or a container is not as it has to be."""


def said(
    command: Sequence[str], seconds_max: float | None = None
) -> subprocess.CompletedProcess[str]:
    """What a command prints, run in this repository."""
    return subprocess.run(
        command,
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=seconds_max,
        check=False,
    )


def logged(command: Sequence[str], log: Path) -> str | None:
    """Run a command whose output goes to a file; if it fails, its last line."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("wb") as output:
        status = subprocess.call(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT
        )
    return last_line(log.read_text(encoding="utf-8", errors="replace")) if status else None


def last_line(*texts: str) -> str:
    lines = [line.strip() for text in texts for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else "it said nothing"


def check_engine() -> str:
    """The architecture of the engine's machine, in Python's word, if there are packages for it."""
    if shutil.which("docker") is None:
        raise DockerError(
            "the command `docker` is not there; install Docker Engine (Debian: `apt-get install "
            "docker.io docker-compose`; others: Docker's own packages or Docker Desktop), or do "
            "without containers: `make run`"
        )
    done = said(["docker", "version", "--format", "{{.Server.Arch}}"])
    if done.returncode != 0:
        raise DockerError(
            f"no Docker engine answers ({last_line(done.stderr)}); start it (`systemctl start "
            "docker`, or Docker Desktop) and see that your user may use it, or do without "
            "containers: `make run`"
        )
    found = done.stdout.strip()
    if found not in ARCHITECTURES:
        expected = " or ".join(ARCHITECTURES)
        raise DockerError(f"the Docker engine's machine is {found}; expected {expected}")
    return ARCHITECTURES[found]


def ensure_image(name: str) -> None:
    """Build one of IMAGES, of which Docker makes again what has changed.

    Another image that the user names is pulled if it is missing.
    """
    architecture, (image, variable) = check_engine(), IMAGES[name]
    if (named := os.environ.get(variable)) and named != image:
        if said(["docker", "image", "inspect", named]).returncode != 0:
            report(f"image {named}: pulling it, {variable} names it")
            _run(["docker", "pull", "--quiet", named], f"image {named} cannot be pulled")
        return
    base = os.environ.get(BASE_VARIABLE) or BASE
    if said(["docker", "image", "inspect", base]).returncode != 0:
        why = f"the base image {base} is not there and cannot be pulled; name another with "
        _run(["docker", "pull", "--quiet", base], f"{why}{BASE_VARIABLE}")
    report(f"image {image}: gathering what goes in")
    folder = _gather_kafka() if name == "kafka" else _gather_job(architecture)
    report(f"image {image}: building what has changed, the first time some minutes")
    arguments = {"BASE": base}
    for proxy in PROXIES:  # Docker knows these by itself and keeps them out of the image.
        if value := os.environ.get(proxy) or os.environ.get(proxy.upper()):
            arguments[proxy] = value
    command = ["docker", "build", "--file", str(HERE / f"{name}.Dockerfile"), "--tag", image]
    command += [f"--build-arg={each}={value}" for each, value in arguments.items()]
    log = BUILD / f"{name}.log"
    if (fault := logged([*command, str(folder)], log)) is not None:
        raise DockerError(
            f"image {image} could not be built ({fault}); the whole output is in {log}"
        )


def _gather_kafka() -> Path:
    folder = _emptied(BUILD / "kafka")
    (folder / "jars").mkdir()
    for jars in ensure_all(KAFKA_JARS, report=report).values():
        for jar in jars:
            shutil.copy2(jar, folder / "jars")
    shutil.copy2(HERE / "kafka-tool", folder)
    for name in ("run", "tools-log4j2.properties", "log4j2.properties"):
        shutil.copy2(HERE / f"kafka-{name}", folder / name)
    return folder


def _gather_job(architecture: str) -> Path:
    wheels = _wheels(architecture)
    folder = _emptied(BUILD / "job")
    # Hard links: what would be copied is large.
    shutil.copytree(wheels, folder / "wheels", copy_function=os.link)
    for jars in ensure_all(JOB_JARS, report=report).values():
        shutil.copytree(jars[0].parent, folder / "jars" / jars[0].parent.name)
    shutil.copy2(HERE / "requirements.lock", folder)
    shutil.copy2(ROOT / "requirements-build.lock", folder)
    shutil.copy2(HERE / "job-entry", folder / "entry")
    shutil.copy2(HERE / "job_health.py", folder / "health")
    # This Python has the build tools of requirements-build.lock.
    wheel = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory"]
    _run([*wheel, str(folder / "product")], "the wheel cannot be built")
    return folder


def _wheels(architecture: str) -> Path:
    """What the locks name, for the image's Python and machine; brought once for each lock."""
    locks = [HERE / "requirements.lock", ROOT / "requirements-build.lock"]
    content = "".join(lock.read_text(encoding="utf-8") for lock in locks)
    key = hashlib.sha256(f"{architecture}\n{content}".encode()).hexdigest()[:12]
    folder = BUILD / f"wheels-{key}"
    if folder.is_dir():
        return folder
    report("  bringing the Python packages, every one checked against its lock (about 700 MB)")
    for old in BUILD.glob("wheels-*"):
        shutil.rmtree(old)
    fresh = _emptied(BUILD / "wheels.part")
    platforms = [f"manylinux_2_{minor}_{architecture}" for minor in range(GLIBC_MINOR, 4, -1)]
    platforms.append(f"manylinux2014_{architecture}")
    chosen = [word for platform in platforms for word in ("--platform", platform)]
    needed = [word for lock in locks for word in ("--requirement", str(lock))]
    # PySpark is served as a source archive alone: the tools of its build are installed.
    pip = [
        sys.executable,
        "-m",
        "pip",
        "--disable-pip-version-check",
        "--no-input",
        "--quiet",
        "download",
    ]
    download = [*pip, "--no-deps", "--no-build-isolation", "--require-hashes"]
    target = ["--implementation", "cp", "--python-version", PYTHON, *chosen]
    what = "pip could not bring what goes into the image"
    _run([*download, *target, "--dest", str(fresh), *needed], what)
    fresh.rename(folder)
    return folder


def _emptied(folder: Path) -> Path:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder


def _run(command: Sequence[str], why: str) -> None:
    done = said(command)
    if done.returncode != 0:
        raise DockerError(f"{why}: {last_line(done.stdout, done.stderr)}")


def report(message: str) -> None:
    print(message, flush=True)
