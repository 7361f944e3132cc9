"""The images of docker/: `make docker-build`, or `python docker/images.py [kafka] [job]`.

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

IMAGES: Final[Mapping[str, str]] = {"kafka": "spu-assigner-kafka", "job": "spu-assigner"}
IMAGE_VARIABLES: Final = {"kafka": "KAFKA_IMAGE", "job": "SPU_ASSIGNER_IMAGE"}
BASE_VARIABLE: Final = "DOCKER_BASE"
BASE: Final = (
    "debian:bookworm-slim"  # its Python and C library are those that wheels are chosen for
)
PYTHON: Final = "3.11"
GLIBC_MINOR: Final = 36
ARCHITECTURES: Final = {"amd64": "x86_64", "arm64": "aarch64"}
PROXIES: Final = ("http_proxy", "https_proxy", "no_proxy")

JOB_JARS: Final[tuple[Group, ...]] = ("spark-kafka", "spark-local", "spark-s3")
KAFKA_JARS: Final[tuple[Group, ...]] = ("broker", "kafka-tools")


class DockerError(AssignerError):
    """The engine, an image, a port or a container is not as it has to be."""


def said(command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )


def last_line(*texts: str) -> str:
    lines = [line.strip() for text in texts for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else "it said nothing"


def check_engine() -> str:
    """The architecture of the engine's machine, in Python's word.

    Raises:
        DockerError: no client, no engine, or one of an architecture there are no packages for.
    """
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


def compose() -> list[str]:
    """Compose: version 2 as the client's plug-in, else 1.29.

    Raises:
        DockerError: neither is there.
    """
    if said(["docker", "compose", "version"]).returncode == 0:
        command = ["docker", "compose"]
    elif shutil.which("docker-compose") is not None:
        command = ["docker-compose"]
    else:
        raise DockerError(
            "Docker Compose is not there; install it (Debian: `apt-get install docker-compose`; "
            "others: the package docker-compose-plugin)"
        )
    return command


def ensure_image(name: str) -> str:
    """Build one of IMAGES, of which Docker makes again what has changed; its name.

    An image that the user names with KAFKA_IMAGE or SPU_ASSIGNER_IMAGE is pulled if it is missing.

    Raises:
        DockerError: it cannot be had; the message says why.
    """
    architecture = check_engine()
    if (named := os.environ.get(IMAGE_VARIABLES[name])) and named != IMAGES[name]:
        if said(["docker", "image", "inspect", named]).returncode != 0:
            report(f"image {named}: pulling it, {IMAGE_VARIABLES[name]} names it")
            _run(["docker", "pull", "--quiet", named], f"image {named} cannot be pulled")
        return named
    base = os.environ.get(BASE_VARIABLE) or BASE
    if said(["docker", "image", "inspect", base]).returncode != 0:
        why = f"the base image {base} is not there and cannot be pulled; name another with "
        _run(["docker", "pull", "--quiet", base], f"{why}{BASE_VARIABLE}")
    report(f"image {IMAGES[name]}: gathering what goes in")
    folder = _gather_kafka() if name == "kafka" else _gather_job(architecture)
    report(f"image {IMAGES[name]}: building what has changed, the first time some minutes")
    proxies = [value for proxy in PROXIES for value in _build_argument(proxy)]
    command = [
        *("docker", "build", "--file", str(HERE / f"{name}.Dockerfile"), "--tag", IMAGES[name]),
        *("--build-arg", f"BASE={base}", *proxies, str(folder)),
    ]
    with (BUILD / f"{name}.log").open("wb") as log:
        status = subprocess.call(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT
        )
    if status != 0:
        text = (BUILD / f"{name}.log").read_text(encoding="utf-8", errors="replace")
        raise DockerError(
            f"image {IMAGES[name]} could not be built ({last_line(text)}); the whole output is in "
            f"{BUILD / f'{name}.log'}"
        )
    return IMAGES[name]


def _build_argument(proxy: str) -> list[str]:
    """Docker knows these arguments by itself and keeps them out of the image."""
    value = os.environ.get(proxy) or os.environ.get(proxy.upper())
    return ["--build-arg", f"{proxy}={value}"] if value else []


def _gather_kafka() -> Path:
    folder = _emptied(BUILD / "kafka")
    (folder / "jars").mkdir()
    for jars in ensure_all(KAFKA_JARS, report=report).values():
        for jar in jars:
            shutil.copy2(jar, folder / "jars")
    shutil.copy2(HERE / "kafka-run", folder / "run")
    shutil.copy2(HERE / "kafka-tool", folder)
    shutil.copy2(HERE / "kafka-tools-log4j2.properties", folder / "tools-log4j2.properties")
    shutil.copy2(HERE / "kafka-log4j2.properties", folder / "log4j2.properties")
    return folder


def _gather_job(architecture: str) -> Path:
    wheels = _wheels(architecture)
    folder = _emptied(BUILD / "job")
    shutil.copytree(wheels, folder / "wheels", copy_function=_linked)
    for jars in ensure_all(JOB_JARS, report=report).values():
        shutil.copytree(jars[0].parent, folder / "jars" / jars[0].parent.name)
    shutil.copy2(HERE / "requirements.lock", folder)
    shutil.copy2(ROOT / "requirements-build.lock", folder)
    shutil.copy2(HERE / "job-entry", folder / "entry")
    shutil.copy2(HERE / "job_health.py", folder / "health")
    wheel = ["-m", "hatchling", "build", "--target", "wheel", "--directory"]
    _python([*wheel, str(folder / "product")], "the wheel cannot be built")
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
    pip = ["-m", "pip", "--disable-pip-version-check", "--no-input", "--quiet", "download"]
    download = [*pip, "--no-deps", "--no-build-isolation", "--require-hashes"]
    target = ["--implementation", "cp", "--python-version", PYTHON, *chosen]
    what = "pip could not bring what goes into the image"
    _python([*download, *target, "--dest", str(fresh), *needed], what)
    fresh.rename(folder)
    return folder


def _linked(source: str, target: str) -> str:
    """A hard link: what would be copied is large."""
    os.link(source, target)
    return target


def _emptied(folder: Path) -> Path:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder


def _python(arguments: Sequence[str], why: str) -> None:
    """Run this Python, which has the build tools of requirements-build.lock."""
    _run([sys.executable, *arguments], why)


def _run(command: Sequence[str], why: str) -> None:
    done = subprocess.run(
        command, cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise DockerError(f"{why}: {last_line(done.stdout, done.stderr)}")


def report(message: str) -> None:
    print(message, flush=True)


def main(names: Sequence[str]) -> int:
    """Build what is named, or all; the exit status."""
    try:
        for name in names or IMAGES:
            if name not in IMAGES:
                raise DockerError(f"there is no image {name!r}; expected {' or '.join(IMAGES)}")
            ensure_image(name)
    except AssignerError as error:
        print(f"docker-build: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
