"""`spu-assigner doctor`: what is installed on this machine, and what a job takes up of it."""

from __future__ import annotations

import errno
import importlib.util
import os
import re
import shutil
import socket
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any, Final

from spu_assigner.stream.common.release import RELEASE
from spu_assigner.stream.config.settings import Settings
from spu_assigner.stream.doctor.check_runner import Check, Unchecked
from spu_assigner.stream.doctor.rules import (
    ADDRESS,
    DISK_FULL,
    DISK_LOW,
    JAR_DAMAGED,
    JAR_LOCK,
    JAR_MISSING,
    JAVA_BROKEN,
    JAVA_MISSING,
    JAVA_UNFIT,
    PACKAGE_MISSING,
    PACKAGE_VERSION,
    PORT_TAKEN,
    PYTHON,
    RELEASE_MIXED,
    SPARK_HOME,
    SPARK_JARS,
    WORKERS_OTHER,
    WORKERS_PYTHON,
)
from spu_assigner.stream.jvm import java as java_module
from spu_assigner.stream.jvm.jars import Group, JarError, absent

DISTRIBUTION: Final = "spu-assigner"
LOOPBACK: Final = "127.0.0.1"
NAMES_MAX: Final = 3  # of jars, in one message
FREE_LEAST: Final = 256 * 1024**2  # bytes; a batch of 50,000 creates writes some 20 MiB of state
FREE_LOW: Final = 2 * 1024**3

_PINNED: Final = re.compile(r"\s*([A-Za-z0-9._-]+)\s*==\s*([^\s;,]+)\s*")
_LEAST: Final = re.compile(r"\s*>=\s*(\d+)\.(\d+)\s*")
_SPARK_CORE: Final = re.compile(r"spark-core_[\d.]+-(.+)\.jar")


def check_python(check: Check[Any], environ: Mapping[str, str], *, is_job: bool) -> None:
    """This interpreter, and the one that Spark's workers run in."""
    found = sys.version_info[:2]
    check.summary = f"{'.'.join(map(str, sys.version_info[:3]))} ({sys.executable})"
    try:
        required = metadata.metadata(DISTRIBUTION)["Requires-Python"] or ""
    except metadata.PackageNotFoundError:
        required = ""  # told of the packages
    least = _LEAST.fullmatch(required)
    if least is not None and found < (int(least[1]), int(least[2])):
        check.tell(PYTHON, f"Python {check.summary}, expected {required.strip()}")
    named = environ.get("PYSPARK_PYTHON")
    if not is_job or not named:
        return
    program = shutil.which(named, path=environ.get("PATH"))
    if program is None:
        check.tell(WORKERS_PYTHON, f"PYSPARK_PYTHON is {named!r}, and no such program is found")
    elif os.path.abspath(program) != os.path.abspath(sys.executable):
        said = f"PYSPARK_PYTHON is {named!r} ({program}), and this is {sys.executable}"
        check.tell(WORKERS_OTHER, said)


def check_packages(check: Check[Any]) -> None:
    """The packages that the installed distribution asks for, at the very versions."""
    try:
        installed = metadata.distribution(DISTRIBUTION)
    except metadata.PackageNotFoundError:
        check.tell(PACKAGE_MISSING, f"{DISTRIBUTION} itself is not installed, only its code is")
        raise Unchecked("nothing tells which packages are needed") from None
    if installed.version != RELEASE:
        check.tell(
            RELEASE_MIXED, f"release {RELEASE} runs, and {installed.version} is installed here"
        )
    needed = dict(_pinned(installed.requires or ()))
    for name, version in needed.items():
        try:
            found = metadata.version(name)
        except metadata.PackageNotFoundError:
            check.tell(
                PACKAGE_MISSING,
                f"{name} is missing, expected {version}",
                f"run `make setup`, or `pip install {name}=={version}`",
            )
            continue
        if found != version:
            check.tell(
                PACKAGE_VERSION,
                f"{name} is {found}, expected {version}",
                f"run `make setup`, or `pip install {name}=={version}`",
            )
    check.summary = f"{DISTRIBUTION} {installed.version}, {len(needed)} packages looked at"


def _pinned(requirements: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Names and versions; what is for developers alone is left out."""
    for requirement in requirements:
        pinned = _PINNED.fullmatch(requirement)
        if pinned is not None:
            yield pinned[1], pinned[2]


def check_java(check: Check[Any], environ: Mapping[str, str]) -> None:
    """A Java that fits, and that runs."""
    java, unfit = java_module.find_java(environ, search=java_module.SEARCH_PATTERNS)
    if java is None and not unfit:
        check.tell(JAVA_MISSING, f"no Java was found, expected {java_module.EXPECTED}")
        return
    if java is None:
        found = f"found only Java {', '.join(unfit)}"
        check.tell(JAVA_UNFIT, f"{found}, expected {java_module.EXPECTED}")
        return
    check.summary = f"{java.version}, found by {java.source}: {java.home}"
    _, runs = java_module.probed(java.executable)
    if runs is None:
        check.tell(JAVA_BROKEN, f"{java.executable} (Java {java.version}) does not run")
    elif runs[0] != java.version:
        said = f"{java.executable} is Java {runs[0]}, and its release file says {java.version}"
        check.tell(JAVA_BROKEN, said)


def check_jars(check: Check[Any], environ: Mapping[str, str], groups: Sequence[Group]) -> None:
    """The locked jars, and those of Spark's own."""
    _check_spark(check, environ)
    try:
        missing, damaged = absent(groups, environ)
    except JarError as reason:
        check.tell(JAR_LOCK, str(reason))
        return
    if missing:
        check.tell(JAR_MISSING, f"not there: {_some(missing)}")
    if damaged:
        check.tell(JAR_DAMAGED, f"not as the lock says: {_some(damaged)}")
    check.summary = f"those of {', '.join(groups)} held against the lock"


def _some(paths: Sequence[Path]) -> str:
    named = ", ".join(map(str, paths[:NAMES_MAX]))
    more = len(paths) - NAMES_MAX
    return f"{named}{f' and {more} more' if more > 0 else ''}"


def _check_spark(check: Check[Any], environ: Mapping[str, str]) -> None:
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        check.left_out.append("Spark's own jars: pyspark is not installed")
        return
    try:
        expected = metadata.version("pyspark")
    except metadata.PackageNotFoundError:
        check.left_out.append("Spark's own jars: pyspark's version is not known")
        return
    home = Path(spec.origin).parent
    if (found := _spark_version(home)) != expected:
        has = "no spark-core" if found is None else f"spark-core {found}"
        check.tell(
            SPARK_JARS,
            f"{home / 'jars'} has {has}, expected {expected}",
            f"`pip install --force-reinstall pyspark=={expected}`",
        )
    if named := environ.get("SPARK_HOME"):
        found = _spark_version(Path(named))
        if found != expected:
            has = "no Spark" if found is None else f"Spark {found}"
            check.tell(SPARK_HOME, f"SPARK_HOME is {named!r}, with {has}, expected {expected}")


def _spark_version(home: Path) -> str | None:
    for path in home.glob("jars/spark-core_*.jar"):
        if (match := _SPARK_CORE.fullmatch(path.name)) is not None:
            return match[1]
    return None


def check_ports(check: Check[Any], settings: Settings) -> None:
    """Whether the ports of Spark's UI and of the metrics can be had."""
    told: list[str] = []
    if settings.ui_port:
        told.append(f"{LOOPBACK}:{settings.ui_port} for Spark's UI")
        if (reason := _refused(LOOPBACK, settings.ui_port)) is not None:
            check.tell(PORT_TAKEN, f"{told[-1]} cannot be had: {reason.strerror}")
    if settings.metrics_port is not None:
        told.append(f"{settings.metrics_host}:{settings.metrics_port} for metrics")
        reason = _refused(settings.metrics_host, settings.metrics_port)
        if reason is not None:
            rule = PORT_TAKEN if reason.errno == errno.EADDRINUSE else ADDRESS
            check.tell(rule, f"{told[-1]} cannot be had: {reason.strerror}")
    check.summary = ", ".join(told) or "none is asked for"


def _refused(host: str, port: int) -> OSError | None:
    """Why a port cannot be taken; nobody can connect to it meanwhile."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
    except OSError as reason:
        return reason
    return None


def check_disk(
    check: Check[Any],
    places: Sequence[Path],
    *,
    least: int = FREE_LEAST,
    low: int = FREE_LOW,
) -> None:
    """Room where the job writes."""
    told: list[str] = []
    seen: set[int] = set()
    for place in places:
        there = next(each for each in (place, *place.parents) if each.exists())
        if (device := there.stat().st_dev) in seen:
            continue
        seen.add(device)
        found = os.statvfs(there)
        free = found.f_bavail * found.f_frsize
        told.append(f"{free / 1024**3:,.1f} GiB at {there}")
        if found.f_files and not found.f_favail:
            check.tell(DISK_FULL, f"{there} has no room for another file (no inode is free)")
        elif free < least:
            said = f"{free / 1024**2:,.0f} MiB free at {there}, expected {least / 1024**2:,.0f}"
            check.tell(DISK_FULL, said)
        elif free < low:
            said = f"{free / 1024**2:,.0f} MiB free at {there}, better {low / 1024**2:,.0f}"
            check.tell(DISK_LOW, said)
    check.summary = ", ".join(told)


def written_places(environ: Mapping[str, str], checkpoint: Path | None) -> list[Path]:
    """Where a job writes on this machine."""
    local = [Path(each) for each in environ.get("SPARK_LOCAL_DIRS", "").split(",") if each]
    own = [] if checkpoint is None else [checkpoint]
    return [*own, *(each.absolute() for each in local), Path(tempfile.gettempdir())]
