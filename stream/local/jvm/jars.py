"""The jars that Spark and the broker need: fetched once, held against a lock of hashes.

`jars.lock.json` lists every jar with its SHA-256; a jar that differs is refused and deleted. They
come from Maven Central, or from the repository that `SPU_ASSIGNER_MAVEN_URL` names, through the
proxy of the environment, and with the authorities that this machine trusts.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import shutil
import ssl
import urllib.parse
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, get_args

from spu_assigner.core.base.errors import AssignerError
from spu_assigner.stream.common.printable import listed
from spu_assigner.stream.local.jvm.build_cache import (
    cache_home,
    key_of,
    locked,
    put_in_place,
    scratch,
)

LOCK_FILE: Final = Path(__file__).with_name("jars.lock.json")
# The Kafka source that waits for events, compiled from the Java beside it (`make jar`).
EXTENSION: Final = Path(__file__).with_name("spark_extension") / "spu-assigner-spark.jar"
REPOSITORY_VARIABLE: Final = "SPU_ASSIGNER_MAVEN_URL"
REPOSITORY: Final = "https://repo1.maven.org/maven2"
ANSWER_SECONDS_MAX: Final = 60.0  # of a repository that has gone silent
FETCHES: Final = 8  # at a time
NAMES_MAX: Final = 3  # of jars, in one message
BUNDLES: Final = (  # of the authorities that a machine trusts, where Python does not know it
    "/etc/ssl/certs/ca-certificates.crt",  # Debian, Alpine, Arch
    "/etc/pki/tls/certs/ca-bundle.crt",  # Fedora, RHEL
    "/etc/ssl/ca-bundle.pem",  # SUSE
    "/etc/ssl/cert.pem",  # macOS, BSD
)

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
class Jar:
    """One jar as the lock knows it."""

    coordinate: str
    sha256: str
    size: int

    @property
    def file_name(self) -> str:
        _, artifact, version = self.coordinate.split(":")
        return f"{artifact}-{version}.jar"

    @property
    def path(self) -> str:
        """Where a repository of Maven's has it."""
        organisation, artifact, version = self.coordinate.split(":")
        return f"{organisation.replace('.', '/')}/{artifact}/{version}/{self.file_name}"


class JarError(AssignerError):
    """Jars cannot be had, or are not what the lock says."""


def read_lock(path: Path = LOCK_FILE) -> dict[Group, tuple[Jar, ...]]:
    """Every group's jars, in class path order.

    Raises:
        JarError: the file is none.
    """
    try:
        groups = json.loads(path.read_text(encoding="utf-8"))["groups"]
        return {group: tuple(Jar(**jar) for jar in groups[group]) for group in GROUPS}
    except (OSError, ValueError, KeyError, TypeError) as reason:
        raise JarError(
            f"{path} is no lock of jars ({reason!r}); write it again with "
            "`python tests/support/project/jars_lock.py --write`"
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
    """The jars of several groups; safe in several processes at once.

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
        with locked(home):
            if missing := wanted():  # Another process may have brought them meanwhile.
                _fetch(home, missing, folders, environ=environ, report=report)
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
    return path.is_file() and path.stat().st_size == jar.size and sha256_of(path) == jar.sha256


def sha256_of(path: Path) -> str:
    """The SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _fetch(
    home: Path,
    wanted: Mapping[Group, Sequence[Jar]],
    folders: Mapping[Group, Path],
    *,
    environ: Mapping[str, str],
    report: Callable[[str], None],
) -> None:
    count = sum(len(jars) for jars in wanted.values())
    size = sum(jar.size for jars in wanted.values() for jar in jars)
    report(f"fetching {count} jars ({size / 1e6:.0f} MB) for {', '.join(wanted)} into {home}")
    with scratch(home) as folder:
        for group in wanted:
            (folder / group).mkdir()
        tasks = [(jar, folder / group / jar.file_name) for group in wanted for jar in wanted[group]]
        fetch = _fetcher(environ)
        with ThreadPoolExecutor(FETCHES) as pool:
            list(pool.map(lambda task: fetch(*task), tasks))
        for group in wanted:
            put_in_place(folder / group, folders[group])


def _fetcher(environ: Mapping[str, str]) -> Callable[[Jar, Path], None]:
    """Fetches a jar to a path, and checks it.

    Raises:
        JarError: it cannot be had, or is not what the lock says.
    """
    repository = urllib.parse.urlsplit(environ.get(REPOSITORY_VARIABLE) or REPOSITORY)
    place = repository._replace(netloc=repository.netloc.rpartition("@")[2]).geturl().rstrip("/")
    headers = {}
    if repository.username:
        user = urllib.parse.unquote(f"{repository.username}:{repository.password or ''}")
        headers["Authorization"] = f"Basic {base64.b64encode(user.encode()).decode()}"
    bundles = (each for each in (environ.get("SSL_CERT_FILE"), *BUNDLES) if each)
    trusted = ssl.create_default_context(cafile=next(filter(os.path.isfile, bundles), None))

    def fetch(jar: Jar, path: Path) -> None:
        try:
            request = urllib.request.Request(f"{place}/{jar.path}", headers=headers)
            with (
                urllib.request.urlopen(
                    request, timeout=ANSWER_SECONDS_MAX, context=trusted
                ) as answer,
                path.open("wb") as file,
            ):
                shutil.copyfileobj(answer, file)
        except (OSError, ValueError) as reason:
            raise JarError(
                f"{jar.coordinate} could not be fetched from {place} ({reason}); check the "
                f"network, or name your Maven mirror in {REPOSITORY_VARIABLE}"
            ) from reason
        if (found := sha256_of(path)) != jar.sha256:
            path.unlink()
            raise JarError(
                f"{jar.coordinate} has SHA-256 {found}, expected {jar.sha256}: deleted, nothing of "
                "its group is used; the repository or something on the way to it changed the file"
            )

    return fetch
