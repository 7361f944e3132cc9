"""`spu-assigner doctor`: settings, what is installed on this machine, and what a job uses of it."""

from __future__ import annotations

import errno
import importlib
import importlib.util
import os
import pkgutil
import re
import shlex
import shutil
import socket
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from importlib import metadata
from pathlib import Path
from typing import Final

from spu_assigner.stream.audit.doctor.checks import Check, Unchecked
from spu_assigner.stream.common.printable import listed
from spu_assigner.stream.common.release import RELEASE
from spu_assigner.stream.job.checkpoint.files import absolute, is_local, is_on_s3
from spu_assigner.stream.job.checkpoint.local_files import local_path
from spu_assigner.stream.kafka.acls import Role
from spu_assigner.stream.kafka.config.setting_spec import SettingsError
from spu_assigner.stream.kafka.config.settings import Settings
from spu_assigner.stream.local.jvm import java as java_module
from spu_assigner.stream.local.jvm.jars import Group, JarError, absent

DISTRIBUTION: Final = "spu-assigner"
OWN_PACKAGES: Final = tuple(f"spu_assigner.{part}" for part in ("core", "schemas", "stream"))
LOOPBACK: Final = "127.0.0.1"
SPARK_UI: Final = "Spark's UI"
NAMES_MAX: Final = 3  # of jars, in one message
FREE_LEAST: Final = 256 * 1024**2  # bytes; a batch of 50,000 creates writes some 20 MiB of state
FREE_LOW: Final = 2 * 1024**3

_REQUIRED: Final = re.compile(r"\s*([A-Za-z0-9._-]+)\s*([=<>][^;]*)(?:;\s*extra == .job.)?")
_BOUND: Final = re.compile(r"\s*(==|>=|<)\s*([^\s,]+)\s*")
_LEAST: Final = re.compile(r"\s*>=\s*(\d+)\.(\d+)\s*")
_SPARK_CORE: Final = re.compile(r"spark-core_[\d.]+-(.+)\.jar")


def check_settings(check: Check) -> Settings:
    """Whether they can be used."""
    settings = check.target.settings
    if isinstance(settings, SettingsError):
        check.report("D001", str(settings), f"correct {settings.source}")
        raise Unchecked("the settings cannot be used")
    check.summary = f"query {settings.query_name!r}, topic prefix {settings.topic_prefix!r}"
    return settings


def check_python(check: Check) -> None:
    """This interpreter, and the one that Spark's workers run in."""
    environ = check.target.environ
    found = sys.version_info[:2]
    check.summary = f"{'.'.join(map(str, sys.version_info[:3]))} ({sys.executable})"
    try:
        required = metadata.metadata(DISTRIBUTION)["Requires-Python"] or ""
    except metadata.PackageNotFoundError:
        required = ""  # A finding of the packages.
    least = _LEAST.fullmatch(required)
    if least is not None and found < (int(least[1]), int(least[2])):
        check.report("D110", f"Python {check.summary}, expected {required.strip()}")
    named = environ.get("PYSPARK_PYTHON")
    if check.target.role is not Role.JOB or not named:
        return
    program = shutil.which(named, path=environ.get("PATH"))
    if program is None:
        check.report("D114", f"PYSPARK_PYTHON is {named!r}, and no such program is found")
    elif os.path.abspath(program) != os.path.abspath(sys.executable):
        said = f"PYSPARK_PYTHON is {named!r} ({program}), and this is {sys.executable}"
        check.report("D115", said)


def check_packages(check: Check) -> None:
    """The packages that the installed distribution asks for, at versions that it accepts."""
    try:
        installed = metadata.distribution(DISTRIBUTION)
    except metadata.PackageNotFoundError:
        check.report("D111", f"{DISTRIBUTION} itself is not installed, only its code is")
        raise Unchecked("the required packages are not known") from None
    if installed.version != RELEASE:
        check.report("D113", f"release {RELEASE} runs, and {installed.version} is installed here")
    needed = dict(_required(installed.requires or ()))
    unfit: list[tuple[str, str, str]] = []
    wanted: list[str] = []
    for name, bounds in needed.items():
        expected = ", ".join(bound.removeprefix("==") for bound in bounds)
        try:
            found = metadata.version(name)
        except metadata.PackageNotFoundError:
            unfit.append(("D111", f"{name} is missing", expected))
        else:
            if all(is_within(found, bound) for bound in bounds):
                continue
            unfit.append(("D112", f"{name} is {found}", expected))
        wanted.append(shlex.quote(f"{name}{','.join(bounds)}"))
    for code, said, expected in unfit:
        fix = f"run `pip install {' '.join(wanted)}` (in a checkout `make setup`)"
        check.report(code, f"{said}, expected {expected}", fix)
    broken: dict[str, list[str]] = {}
    for name, reason in broken_modules(OWN_PACKAGES):
        broken.setdefault(reason, []).append(name)
    for reason, names in broken.items():
        said = f"{reason}, so {listed(names, NAMES_MAX)} cannot be imported"
        check.report("D116", said, f"install {DISTRIBUTION} again")
    check.summary = f"{DISTRIBUTION} {installed.version}, {len(needed)} packages checked"


def broken_modules(packages: Iterable[str]) -> Iterator[tuple[str, str]]:
    """The modules of these packages that cannot be imported, each with why.

    A module that lacks a package of others is left out: that package is a finding of its own.
    """
    for package in packages:
        names = [package]
        for name in names:  # which grows: a package that can be imported names what is in it
            try:
                module = importlib.import_module(name)
            except ModuleNotFoundError as error:
                if (error.name or "").startswith(package.partition(".")[0]):
                    yield name, str(error)
            except Exception as error:  # whatever a damaged file raises
                yield name, f"{type(error).__name__}: {error}"
            else:
                found = pkgutil.iter_modules(getattr(module, "__path__", ()), f"{name}.")
                names += (each.name for each in found)


def _required(requirements: Iterable[str]) -> Iterator[tuple[str, list[str]]]:
    """Names, and the bounds of versions, of what the package and its extra `job` need."""
    for requirement in requirements:
        required = _REQUIRED.fullmatch(requirement)
        if required is not None:
            bounds = [each.strip() for each in required[2].split(",")]
            yield required[1], sorted(bounds, reverse=True)  # the least version first


def is_within(version: str, bound: str) -> bool:
    """Whether a version meets one bound: equal to it, or compared by its numbers."""
    match = _BOUND.fullmatch(bound)
    if match is None:
        return False
    if match[1] == "==":
        return version == match[2]
    is_less = _numbers(version) < _numbers(match[2])
    return is_less if match[1] == "<" else not is_less


def _numbers(version: str) -> list[int]:
    return [int(each) for each in re.findall(r"\d+", version)]


def check_java(check: Check) -> None:
    """A Java that Spark runs on, and that starts."""
    java, unfit = java_module.find_java(check.target.environ, search=java_module.SEARCH_PATTERNS)
    if java is None:
        code, found = ("D102", f"only Java {', '.join(unfit)}") if unfit else ("D101", "no Java")
        check.report(code, f"found {found}, expected {java_module.EXPECTED}")
        return
    check.summary = f"{java.version}, found by {java.source}: {java.home}"
    _, runs = java_module.probed(java.executable)
    if runs is None:
        check.report("D103", f"{java.executable} (Java {java.version}) does not run")
    elif runs[0] != java.version:
        said = f"{java.executable} is Java {runs[0]}, and its release file says {java.version}"
        check.report("D103", said)


def check_jars(check: Check) -> None:
    """The locked jars, and Spark's own."""
    environ = check.target.environ
    groups: list[Group] = ["spark-kafka", "spark-local"]
    if not check.target.is_broker_named:  # `run` starts a broker of its own then.
        groups.append("broker")
    settings = check.target.settings
    if isinstance(settings, Settings) and is_on_s3(settings.checkpoint):
        groups.append("spark-s3")
    _check_spark(check, environ)
    try:
        missing, damaged = absent(groups, environ)
    except JarError as reason:
        check.report("D123", str(reason))
        return
    if missing:
        fix = "run `python -m spu_assigner.stream.setup --s3`" if "spark-s3" in groups else None
        check.report("D121", f"not there: {listed(missing, NAMES_MAX)}", fix)
    if damaged:
        check.report("D122", f"not as the lock says: {listed(damaged, NAMES_MAX)}")
    check.summary = f"those of {', '.join(groups)} are as the lock says"


def _check_spark(check: Check, environ: Mapping[str, str]) -> None:
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
        check.report(
            "D125",
            f"{home / 'jars'} has {has}, expected {expected}",
            f"`pip install --force-reinstall pyspark=={expected}`",
        )
    if named := environ.get("SPARK_HOME"):
        found = _spark_version(Path(named))
        if found != expected:
            has = "no Spark" if found is None else f"Spark {found}"
            check.report("D124", f"SPARK_HOME is {named!r}, with {has}, expected {expected}")


def _spark_version(home: Path) -> str | None:
    for path in home.glob("jars/spark-core_*.jar"):
        if (match := _SPARK_CORE.fullmatch(path.name)) is not None:
            return match[1]
    return None


def check_ports(check: Check, *, settings: Settings) -> None:
    """Whether the ports of Spark's UI and of the metrics are available."""
    wanted = []
    if settings.ui_port:
        wanted.append((LOOPBACK, settings.ui_port, SPARK_UI))
    if settings.metrics_port is not None:
        wanted.append((settings.metrics_host, settings.metrics_port, "metrics"))
    for host, port, use in wanted:
        if (reason := _refused(host, port)) is not None:
            is_taken = use == SPARK_UI or reason.errno == errno.EADDRINUSE
            said = f"{host}:{port} for {use} is not available: {reason.strerror}"
            check.report("D131" if is_taken else "D134", said)
    listed = ", ".join(f"{host}:{port} for {use}" for host, port, use in wanted)
    check.summary = listed or "none is configured"


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


def check_disk(check: Check, *, settings: Settings) -> None:
    """Free space where the job writes."""
    local = check.target.environ.get("SPARK_LOCAL_DIRS", "").split(",")
    places = [Path(each).absolute() for each in [*local, tempfile.gettempdir()] if each]
    checkpoint = absolute(settings.checkpoint)
    if is_local(checkpoint):
        places.insert(0, local_path(checkpoint))
    summary: list[str] = []
    seen: set[int] = set()
    for place in places:
        there = next(each for each in (place, *place.parents) if each.exists())
        if (device := there.stat().st_dev) in seen:
            continue
        seen.add(device)
        found = os.statvfs(there)
        free = found.f_bavail * found.f_frsize
        summary.append(f"{free / 1024**3:,.1f} GiB at {there}")
        said = f"{free / 1024**2:,.0f} MiB free at {there}"
        if found.f_files and not found.f_favail:
            check.report("D132", f"{there} has no space for another file (no inode is free)")
        elif free < FREE_LEAST:
            check.report("D132", f"{said}, expected {FREE_LEAST / 1024**2:,.0f}")
        elif free < FREE_LOW:
            check.report("D133", f"{said}, better {FREE_LOW / 1024**2:,.0f}")
    check.summary = ", ".join(summary)
