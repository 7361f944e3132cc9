"""The jars that Spark and the broker need: fetched once through Ivy, held against a lock of hashes.

Ivy comes with PySpark, so no Maven is needed. `jars.lock.json` lists every jar with its SHA-256; a
jar that differs is refused and deleted. `python -m spu_assigner.stream.local.jvm.jars --write`
resolves ROOTS again and writes that file.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import re
import subprocess
import sys
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, get_args
from xml.sax.saxutils import quoteattr

from spu_assigner.core.base.errors import AssignerError
from spu_assigner.stream.common.child_processes import run_to_end
from spu_assigner.stream.common.printable import listed
from spu_assigner.stream.local.jvm.build_cache import (
    cache_home,
    key_of,
    locked,
    put_in_place,
    scratch,
)
from spu_assigner.stream.local.jvm.java import Java, ensure_java
from spu_assigner.stream.local.jvm.trust_store import PASSWORD, machine_bundle, trust_store

LOCK_FILE: Final = Path(__file__).with_name("jars.lock.json")
# The Kafka source that waits for events, compiled from the Java beside it (`make jar`).
EXTENSION: Final = Path(__file__).with_name("spark_extension") / "spu-assigner-spark.jar"
SETTINGS_VARIABLE: Final = "SPU_ASSIGNER_IVY_SETTINGS"
NAMES_MAX: Final = 3  # of jars, in one message
FETCH_SECONDS_MAX: Final = 900.0  # 55 MB over a slow line; Ivy itself waits without end

Group = Literal[
    "spark-kafka",
    "spark-local",
    "spark-s3",
    "broker",
    "kafka-placer",
    "kafka-tools",
    "kafka-streams",
]
GROUPS: Final[tuple[Group, ...]] = get_args(Group)


@dataclass(frozen=True, slots=True, kw_only=True)
class Root:
    """What a group is resolved from; `whole` brings what the artifact depends on, too."""

    coordinate: str  # organisation:artifact:version
    whole: bool = False
    without: tuple[str, ...] = ()  # organisations whose artifacts Spark brings itself


_WITH_KAFKA: Final = (
    # Kafka logs through SLF4J 1.7; without this its log stays empty.
    Root(coordinate="org.apache.logging.log4j:log4j-slf4j-impl:2.25.5"),
    # Newer than Kafka 4.2.1 asks for: CVE-2026-49844; CVE-2026-54512 to 54518, 68494.
    Root(coordinate="org.apache.logging.log4j:log4j-core:2.25.5"),
    Root(coordinate="org.apache.logging.log4j:log4j-api:2.25.5"),
    Root(coordinate="com.fasterxml.jackson.core:jackson-core:2.21.5"),
    Root(coordinate="com.fasterxml.jackson.core:jackson-databind:2.21.5"),
)

_AWS_SDK: Final = "2.35.4"  # that Hadoop 3.5.0 is built with
_SPARK_BRINGS: Final = (
    *("commons-codec", "commons-logging", "io.netty"),
    *("org.apache.httpcomponents", "org.slf4j"),
)

ROOTS: Final[Mapping[Group, tuple[Root, ...]]] = {
    "spark-kafka": (
        Root(coordinate="org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0"),
        Root(coordinate="org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.2.0"),
        Root(coordinate="org.apache.kafka:kafka-clients:3.9.2"),
        Root(coordinate="org.apache.commons:commons-pool2:2.13.1"),
    ),
    "spark-local": (Root(coordinate="com.globalmentor:hadoop-bare-naked-local-fs:0.1.0"),),
    # Of the Hadoop that PySpark brings. It names all of Amazon's SDK as one jar of 686 MB; these
    # are the modules that a checkpoint's file system uses.
    "spark-s3": (
        Root(coordinate="org.apache.hadoop:hadoop-aws:3.5.0"),
        Root(coordinate="software.amazon.s3.analyticsaccelerator:analyticsaccelerator-s3:1.3.1"),
        *(
            Root(
                coordinate=f"software.amazon.awssdk:{module}:{_AWS_SDK}",
                whole=True,
                without=_SPARK_BRINGS,
            )
            for module in ("s3", "s3-transfer-manager", "sts")
        ),
    ),
    "broker": (
        Root(coordinate="org.apache.kafka:kafka_2.13:4.2.1", whole=True),
        *_WITH_KAFKA,
    ),
    "kafka-placer": (Root(coordinate="org.apache.kafka:kafka-server-common:4.0.0", whole=True),),
    # `kafka-reassign-partitions`, to be run with the broker's jars.
    "kafka-tools": (Root(coordinate="org.apache.kafka:kafka-tools:4.2.1"),),
    # A neighbour that the job is measured against; large, because of RocksDB.
    "kafka-streams": (
        Root(coordinate="org.apache.kafka:kafka-streams:4.2.1", whole=True),
        *_WITH_KAFKA,
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Jar:
    """One jar as the lock knows it."""

    coordinate: str
    sha256: str
    size: int

    @property
    def file_name(self) -> str:
        _, artifact, version = self.coordinate.split(":")
        return f"{artifact}-{version}.jar"


class JarError(AssignerError):
    """Jars cannot be had, or are not what the lock says."""


def read_lock(path: Path = LOCK_FILE) -> dict[Group, tuple[Jar, ...]]:
    """Every group's jars, in class path order.

    Raises:
        JarError: the file is not what `--write` makes.
    """
    try:
        groups = json.loads(path.read_text(encoding="utf-8"))["groups"]
        return {group: tuple(Jar(**jar) for jar in groups[group]) for group in GROUPS}
    except (OSError, ValueError, KeyError, TypeError) as reason:
        raise JarError(
            f"{path} is no lock of jars ({reason!r}); write it again with "
            "`python -m spu_assigner.stream.local.jvm.jars --write`"
        ) from reason


def ensure(group: Group, environ: Mapping[str, str] | None = None) -> list[Path]:
    """The group's jars, each checked; fetched if the cache lacks them or holds a damaged one."""
    return ensure_all([group], environ)[group]


def ensure_all(
    groups: Sequence[Group],
    environ: Mapping[str, str] | None = None,
    *,
    lock: Mapping[Group, Sequence[Jar]] | None = None,
    report: Callable[[str], None] = lambda message: None,
) -> dict[Group, list[Path]]:
    """The jars of several groups with one run of Ivy; safe in several processes at once.

    Cost: hashing, about 0.1 s for all groups when nothing is fetched.

    Raises:
        JarError: an artifact cannot be fetched, or what came is not what the lock says.
    """
    environ = os.environ if environ is None else environ
    lock = read_lock() if lock is None else lock
    home = cache_home(environ)
    folders = {group: _folder(home, group, lock[group]) for group in groups}

    def wanted() -> dict[Group, Sequence[Jar]]:
        return {
            group: lock[group]
            for group in groups
            if not all(_is_right(folders[group] / jar.file_name, jar) for jar in lock[group])
        }

    if wanted():
        java = ensure_java(environ)  # Takes the lock itself, so before it is held here.
        with locked(home):
            if missing := wanted():  # Another process may have brought them meanwhile.
                _fetch(home, missing, folders, java=java, environ=environ, report=report)
    return {group: [folders[group] / jar.file_name for jar in lock[group]] for group in groups}


def require_jars(groups: Sequence[Group], environ: Mapping[str, str] | None = None) -> None:
    """Return if all jars of these groups are there as the lock says; nothing is fetched.

    Raises:
        JarError: they are not; it names some.
    """
    lock, home = read_lock(), cache_home(environ)
    wrong = [
        path
        for group in groups
        for jar in lock[group]
        if not _is_right(path := _folder(home, group, lock[group]) / jar.file_name, jar)
    ]
    if wrong:
        option = " --s3" if "spark-s3" in groups else ""
        raise JarError(
            f"jars are missing, or differ from the lock: {listed(wrong, NAMES_MAX)}; run "
            f"`python -m spu_assigner.stream.setup{option}`, which fetches them, as a start of the "
            "job does"
        )


def _folder(home: Path, group: Group, jars: Sequence[Jar]) -> Path:
    """Where a group's jars are: a folder named for what is in it, so a new lock gets a new one."""
    key = key_of(f"{jar.coordinate} {jar.sha256}" for jar in jars)
    return home / "jars" / f"{group}-{key[:12]}"


def _is_right(path: Path, jar: Jar) -> bool:
    """Whether a jar is there as the lock says."""
    return path.is_file() and path.stat().st_size == jar.size and _sha256(path) == jar.sha256


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _fetch(
    home: Path,
    wanted: Mapping[Group, Sequence[Jar]],
    folders: Mapping[Group, Path],
    *,
    java: Java,
    environ: Mapping[str, str],
    report: Callable[[str], None],
) -> None:
    count = sum(len(jars) for jars in wanted.values())
    size = sum(jar.size for jars in wanted.values() for jar in jars)
    report(f"fetching {count} jars ({size / 1e6:.0f} MB) for {', '.join(wanted)} into {home}")
    roots = {
        group: [Root(coordinate=jar.coordinate) for jar in jars] for group, jars in wanted.items()
    }
    with scratch(home) as folder:
        pattern = "[artifact]-[revision].[ext]"
        run_ivy(roots, folder=folder, pattern=pattern, java=java, environ=environ)
        for group, jars in wanted.items():
            for jar in jars:
                _check(folder / "jars" / group / jar.file_name, jar, home / "ivy.log")
            put_in_place(folder / "jars" / group, folders[group])


def _check(path: Path, jar: Jar, log: Path) -> None:
    if not path.is_file():
        raise JarError(f"{jar.coordinate} did not come with the others; Ivy's output is in {log}")
    if (found := _sha256(path)) != jar.sha256:
        path.unlink()
        raise JarError(
            f"{jar.coordinate} has SHA-256 {found}, expected {jar.sha256}: deleted, nothing of its "
            "group is used; the repository or something on the way to it changed the file"
        )


def run_ivy(
    roots: Mapping[Group, Iterable[Root]],
    *,
    folder: Path,
    pattern: str,
    java: Java,
    environ: Mapping[str, str],
) -> None:
    """Fetch the groups into `folder/jars/<group>/<pattern>`, with the user's Ivy settings if named.

    Raises:
        JarError: something could not be fetched; the message names the first such artifact.
    """
    module = folder / "ivy.xml"
    module.write_text(_ivy_module(roots), encoding="utf-8")
    command = [
        *(str(java.executable), *proxy_options(environ), *_trust_options(java, folder, environ)),
        *("-jar", str(_ivy_jar()), "-warn"),
        *("-cache", str(folder / "ivy"), "-ivy", str(module)),
        *("-retrieve", str(folder / "jars" / "[conf]" / pattern)),
    ]
    if settings := environ.get(SETTINGS_VARIABLE):
        if not Path(settings).is_file():
            raise JarError(f"{SETTINGS_VARIABLE} is {settings!r}; expected a file")
        command += ["-settings", settings]
    log = cache_home(environ) / "ivy.log"
    try:
        with log.open("wb") as output:
            status = run_to_end(command, output=output, seconds_max=FETCH_SECONDS_MAX)
    except subprocess.TimeoutExpired as reason:
        raise JarError(
            f"fetching jars took longer than {FETCH_SECONDS_MAX:.0f} s; try again on a better line"
        ) from reason
    if status != 0:
        raise JarError(_why_ivy_failed(log))


def _why_ivy_failed(log: Path) -> str:
    text = log.read_text(encoding="utf-8", errors="replace")
    missing = re.search(r":: ([^#\s]+)#([^;\s]+);([^:\s]+): (.*)", text)
    reason = re.search(
        r"(Host \S+ not found)|Server access error at url \S+ \((.*)\)|\((java\.\S+Exception.*)\)",
        text,
    )
    what = ":".join(missing.groups()[:3]) if missing else "a jar"
    why = next((found for found in reason.groups() if found), "") if reason else ""
    why = why or (missing[4] if missing else "see the log")
    return (
        f"{what} could not be fetched ({why}); check the network, or name an Ivy settings file "
        f"with your Maven mirror in {SETTINGS_VARIABLE}; Ivy's output is in {log}"
    )


def _ivy_module(roots: Mapping[Group, Iterable[Root]]) -> str:
    confs = "".join(f"<conf name={quoteattr(group)}/>" for group in roots)
    lines = []
    for group, members in roots.items():
        for root in members:
            organisation, artifact, version = map(quoteattr, root.coordinate.split(":"))
            without = "".join(f"<exclude org={quoteattr(each)}/>" for each in root.without)
            target = quoteattr(f"{group}->{'default' if root.whole else 'master'}")
            lines.append(
                f"<dependency org={organisation} name={artifact} rev={version} conf={target} "
                f'transitive="{str(root.whole).lower()}">{without}</dependency>'
            )
    return (
        '<ivy-module version="2.0"><info organisation="spu-assigner" module="jars"/>'
        f"<configurations>{confs}</configurations>"
        f"<dependencies>{''.join(lines)}</dependencies></ivy-module>"
    )


def _ivy_jar() -> Path:
    spec = importlib.util.find_spec("pyspark")
    found = sorted(Path(spec.origin).parent.glob("jars/ivy-*.jar")) if spec and spec.origin else []
    if not found:
        raise JarError("PySpark's own jars lack Ivy; install pyspark again")
    return found[-1]


def proxy_options(environ: Mapping[str, str]) -> list[str]:
    """The proxy that curl and pip take from the environment, said to Java, which does not look."""
    options = []
    for scheme in ("http", "https"):
        name = f"{scheme}_proxy"
        proxy = urllib.parse.urlsplit(environ.get(name) or environ.get(name.upper()) or "")
        if proxy.hostname:
            options += [
                f"-D{scheme}.proxyHost={proxy.hostname}",
                f"-D{scheme}.proxyPort={proxy.port or 80}",
            ]
    return options


def _trust_options(java: Java, folder: Path, environ: Mapping[str, str]) -> list[str]:
    """A Java of the machine's has the machine's trust; the packaged one is given it."""
    bundle = machine_bundle(environ)
    if not java.source.startswith("package") or bundle is None:
        return []
    store = folder / "trust.p12"
    store.write_bytes(trust_store(bundle))
    return [
        f"-Djavax.net.ssl.trustStore={store}",
        f"-Djavax.net.ssl.trustStorePassword={PASSWORD}",
    ]


def write_lock(path: Path = LOCK_FILE, environ: Mapping[str, str] | None = None) -> None:
    """Resolve ROOTS again and write what came, with hashes, as the lock."""
    environ = os.environ if environ is None else environ
    home = cache_home(environ)
    java = ensure_java(environ)
    with locked(home), scratch(home) as folder:
        pattern = "[organisation]~[artifact]~[revision].[ext]"
        run_ivy(ROOTS, folder=folder, pattern=pattern, java=java, environ=environ)
        groups = {
            group: [
                {
                    "coordinate": jar.stem.replace("~", ":"),
                    "sha256": _sha256(jar),
                    "size": jar.stat().st_size,
                }
                for jar in sorted((folder / "jars" / group).glob("*.jar"))
            ]
            for group in GROUPS
        }
    text = json.dumps({"groups": groups}, indent=1)
    path.write_text(f"{text}\n", encoding="utf-8")


if __name__ == "__main__":
    if sys.argv[1:] != ["--write"]:
        sys.exit("usage: python -m spu_assigner.stream.local.jvm.jars --write")
    write_lock()
