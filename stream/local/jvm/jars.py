"""The jars that Spark and the broker need: fetched once, held against a lock of hashes.

`jars.lock.json` lists every jar with its SHA-256; a jar that differs is refused and deleted. They
come from Maven Central, or from the repository that `SPU_ASSIGNER_MAVEN_URL` names, through the
proxy of the environment, and with the authorities that this machine trusts.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import starmap
from pathlib import Path
from ssl import create_default_context
from typing import Final, Literal, get_args
from urllib.parse import unquote, urlsplit
from urllib.request import Request, urlopen

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
        """The jar's name in a folder."""
        _, artifact, version = self.coordinate.split(":")
        return f"{artifact}-{version}.jar"

    @property
    def path(self) -> str:
        """Where a repository of Maven's has it."""
        organisation, artifact, version = self.coordinate.split(":")
        return f"{organisation.replace('.', '/')}/{artifact}/{version}/{self.file_name}"


class JarError(AssignerError):
    """Jars cannot be had, or are not what the lock says."""


def read_lock() -> dict[Group, tuple[Jar, ...]]:
    """Every group's jars, in class path order."""
    groups = json.loads(LOCK_FILE.read_text(encoding="utf-8"))["groups"]
    return {group: tuple(Jar(**jar) for jar in groups[group]) for group in GROUPS}


def ensure(group: Group, environ: Mapping[str, str] | None = None) -> list[Path]:
    """The jars of one group."""
    return ensure_all([group], environ)[group]


def ensure_all(
    groups: Sequence[Group],
    environ: Mapping[str, str] | None = None,
    *,
    lock: Mapping[Group, Sequence[Jar]] | None = None,
    report: Callable[[str], None] = lambda message: None,
) -> dict[Group, list[Path]]:
    """The jars of groups, each checked; fetched if the cache lacks them or holds a damaged one.
    Cost: hashing, about 0.1 s for all groups when nothing is fetched."""
    environ = os.environ if environ is None else environ
    lock = read_lock() if lock is None else lock
    home = cache_home(environ)
    wanted = {group: _places(home, group, lock[group]) for group in groups}

    def missing() -> list[Group]:
        return [group for group in groups if not all(starmap(_is_right, wanted[group]))]

    if missing():
        with locked(home):
            if lacking := missing():  # Another process may have brought them meanwhile.
                _fetch(home, {group: wanted[group] for group in lacking}, environ, report)
    return {group: [path for _, path in places] for group, places in wanted.items()}


def require_jars(groups: Sequence[Group], environ: Mapping[str, str] | None = None) -> None:
    """Return if all jars of these groups are there as the lock says; nothing is fetched."""
    lock, home = read_lock(), cache_home(environ)
    places = [place for group in groups for place in _places(home, group, lock[group])]
    if wrong := [path for jar, path in places if not _is_right(jar, path)]:
        option = " --s3" if "spark-s3" in groups else ""
        raise JarError(
            f"jars are missing, or differ from the lock: {listed(wrong, NAMES_MAX)}; run "
            f"`python -m spu_assigner.stream.setup{option}`, which fetches them, as a start of the "
            "job does"
        )


def _places(home: Path, group: Group, jars: Sequence[Jar]) -> list[tuple[Jar, Path]]:
    """Where a group's jars are: a folder named for what is in it, so a new lock gets a new one."""
    key = key_of(f"{jar.coordinate} {jar.sha256}" for jar in jars)
    folder = home / "jars" / f"{group}-{key[:12]}"
    return [(jar, folder / jar.file_name) for jar in jars]


def _is_right(jar: Jar, path: Path) -> bool:
    """Whether a jar is there as the lock says."""
    return path.is_file() and path.stat().st_size == jar.size and sha256_of(path) == jar.sha256


def sha256_of(path: Path) -> str:
    """The SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _fetch(
    home: Path,
    wanted: Mapping[Group, Sequence[tuple[Jar, Path]]],
    environ: Mapping[str, str],
    report: Callable[[str], None],
) -> None:
    places = [place for group in wanted.values() for place in group]
    size = sum(jar.size for jar, _ in places) / 1e6
    report(f"fetching {len(places)} jars ({size:.0f} MB) for {', '.join(wanted)} into {home}")
    repository = _Repository(environ)
    with scratch(home) as folder:
        for group in wanted:
            (folder / group).mkdir()
        tasks = [
            (jar, folder / group / jar.file_name) for group in wanted for jar, _ in wanted[group]
        ]
        with ThreadPoolExecutor(FETCHES) as pool:
            list(pool.map(repository.fetch, *zip(*tasks, strict=True)))
        for group, ((_, path), *_) in wanted.items():
            put_in_place(folder / group, path.parent)


class _Repository:
    """A repository of Maven's, with the user that its address may name."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        parts = urlsplit(environ.get(REPOSITORY_VARIABLE) or REPOSITORY)
        self._place = parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl().rstrip("/")
        self._headers = {}
        if parts.username:
            user = unquote(f"{parts.username}:{parts.password or ''}")
            self._headers["Authorization"] = f"Basic {b64encode(user.encode()).decode()}"
        bundles = (each for each in (environ.get("SSL_CERT_FILE"), *BUNDLES) if each)
        self._trusted = create_default_context(cafile=next(filter(os.path.isfile, bundles), None))

    def fetch(self, jar: Jar, path: Path) -> None:
        """Fetch a jar to a path, and check it."""
        try:
            request = Request(f"{self._place}/{jar.path}", headers=self._headers)
            with (
                urlopen(request, timeout=ANSWER_SECONDS_MAX, context=self._trusted) as answer,
                path.open("wb") as file,
            ):
                shutil.copyfileobj(answer, file)
        except (OSError, ValueError) as reason:
            raise JarError(
                f"{jar.coordinate} could not be fetched from {self._place} ({reason}); check the "
                f"network, or name your Maven mirror in {REPOSITORY_VARIABLE}"
            ) from reason
        if (found := sha256_of(path)) != jar.sha256:
            path.unlink()
            raise JarError(
                f"{jar.coordinate} has SHA-256 {found}, expected {jar.sha256}: deleted, nothing of "
                "its group is used; the repository or something on the way to it changed the file"
            )
