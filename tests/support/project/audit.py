"""The audit of what the project depends on: `make audit`.

Every Python package and every jar is locked by an exact version and a hash; what is installed is
what is locked; each licence is one that was agreed to; and no known advisory speaks of them, as far
as the database of advisories (OSV) can be reached. Where it cannot, that is said, and fails only
under AUDIT=strict. What is agreed to stands in `audit.toml`. The rest asks nobody: two seconds.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
import tomllib
import urllib.request
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from importlib import metadata
from itertools import chain
from pathlib import Path
from typing import Any

from packaging.markers import Marker
from packaging.utils import canonicalize_name
from spu_assigner.stream.local.jvm.build_cache import cache_home
from spu_assigner.stream.local.jvm.jars import Group, Jar, JarError, read_lock

sys.path.insert(0, str(Path(__file__).parents[2]))  # for `support`, as pytest does
from support.bench.preparing import environment_packages
from support.project.jars_lock import ROOTS

ROOT = Path(__file__).parents[3]
DECIDED = Path(__file__).with_name("audit.toml")
ADVISORIES = "https://api.osv.dev/v1/querybatch"
ADVISORY_SECONDS_MAX = 3.0
OWN = "spu-assigner"
LOCKS = ("*.lock", "stream/local/jvm/*.lock", "docs/*.lock", "tests/spark/*.lock")
NEEDED = {"requirements.lock", "requirements-build.lock"}  # what other locks hold may be absent
UNLOCKED = frozenset({"pip"})  # it comes with Python, and is what reads the locks
APART = "tests/bench/neighbours/*.lock"  # of environments of their own, which hold nothing else
UNLOCKED_APART = UNLOCKED | {"setuptools"}  # Python 3.11 brings it into an environment

_REQUIREMENT = re.compile(
    r"(?P<name>[A-Za-z0-9][A-Za-z0-9._-]*)==(?P<version>[0-9][A-Za-z0-9.!+_-]*)"
    r"(?:\s*;\s*(?P<marker>[^\\]*?))?(?P<hashes>(?:\s+--hash=sha256:[0-9a-f]{64})+)"
)
_SHA256 = re.compile(r"[0-9a-f]{64}")
_COORDINATE = re.compile(r"[\w.-]+:[\w.-]+:\d[\w.-]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Locked:
    """A line of a lock."""

    name: str  # canonical
    version: str
    marker: str | None

    @property
    def is_for_here(self) -> bool:
        return self.marker is None or Marker(self.marker).evaluate()


def read_requirements(text: str) -> tuple[list[Locked], list[str]]:
    """The requirements of a lock, and what is wrong with others."""
    locked, faults = [], []
    plain = "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("#"))
    for line in re.sub(r"\\\n", " ", plain).splitlines():
        if not line.strip():
            continue
        match = _REQUIREMENT.fullmatch(line.strip())
        if match is None:
            faults.append(f"{line.split()[0]!r} has no exact version with SHA-256 hashes")
            continue
        name = canonicalize_name(match["name"])
        locked.append(Locked(name=name, version=match["version"], marker=match["marker"]))
    return locked, faults


def installed_faults(
    locked: Iterable[Locked],
    optional: Iterable[Locked],
    installed: Mapping[str, str],
    unlocked: Container[str] = UNLOCKED,
) -> list[str]:
    """How what is installed differs from what is locked."""
    wanted = {each.name: each.version for each in locked if each.is_for_here}
    known = {each.name: each.version for each in optional if each.is_for_here} | wanted
    faults = [
        f"{name} {version} is locked and not installed; run `make setup`"
        for name, version in wanted.items()
        if name not in installed
    ]
    for name, version in installed.items():
        if name in unlocked or name == OWN:
            continue
        if name not in known:
            faults.append(f"{name} {version} is installed and not locked; `make clean setup`")
        elif known[name] != version:
            faults.append(f"{name} {version} is installed, {known[name]} is locked; `make setup`")
    return faults


def lock_faults(lock: Mapping[Group, Sequence[Jar]]) -> list[str]:
    """What is wrong with the lock of jars."""
    faults = []
    for group, jars in lock.items():
        coordinates = {jar.coordinate for jar in jars}
        faults += [
            f"{root.coordinate} is a root of {group} and not in its lock"
            for root in ROOTS[group]
            if root.coordinate not in coordinates
        ]
        faults += [
            f"{jar.coordinate} has no exact version with a SHA-256"
            for jar in jars
            if not _COORDINATE.fullmatch(jar.coordinate) or not _SHA256.fullmatch(jar.sha256)
        ]
    return faults


def jar_faults(folder: Path, jars: Sequence[Jar]) -> list[str]:
    """How a group's folder differs from its lock."""
    wanted = {jar.file_name: jar for jar in jars}
    found = {path.name: path for path in folder.iterdir()}
    faults = [f"{folder / name} is in no lock" for name in found.keys() - wanted.keys()]
    faults += [f"{folder / name} is missing" for name in wanted.keys() - found.keys()]
    for name in found.keys() & wanted.keys():
        with found[name].open("rb") as file:
            sha256 = hashlib.file_digest(file, "sha256").hexdigest()
        if sha256 != wanted[name].sha256:
            faults.append(f"{found[name]} has SHA-256 {sha256}, locked {wanted[name].sha256}")
    return sorted(faults)


def declared_licences(package: metadata.PackageMetadata) -> list[str]:
    """The words of a package's licence, as it declares them itself."""
    if expression := package.get("License-Expression"):
        return [word for word in re.split(r"\s+(?:AND|OR|WITH)\s+|[()]", expression) if word]
    classifiers = [
        line.rpartition(" :: ")[2]
        for line in package.get_all("Classifier") or ()
        if line.startswith("License :: ")
    ]
    return classifiers or (package.get("License") or "").strip().splitlines()[:1]


def licence_faults(name: str, words: Sequence[str], decided: Mapping[str, Any]) -> list[str]:
    """What of a package's licence nobody has agreed to."""
    exception = decided["packages"].get(name)
    allowed = set(decided["allowed"]) | ({exception["licence"]} if exception else set())
    if not words and exception is None:
        return [f"{name} declares no licence"]
    return [
        f"{name} is under {word!r}, which nobody has agreed to; see {DECIDED.name}"
        for word in words
        if word not in allowed
    ]


def jar_licence_faults(jars: Iterable[Jar], decided: Mapping[str, Any]) -> list[str]:
    """The jars of which the table has no licence, or one that nobody has agreed to."""
    faults = []
    for coordinate in sorted({jar.coordinate for jar in jars}):
        fits = [each for each in decided["jars"] if coordinate.startswith(each)]
        licence = decided["jars"][max(fits, key=len)] if fits else None
        if licence not in decided["allowed"]:
            faults.append(f"{coordinate} is under {licence!r}; see {DECIDED.name}")
    return faults


def advisory_faults(
    found: Mapping[tuple[str, str], Sequence[str]],
    decided: Sequence[Mapping[str, Any]],
    today: date,
) -> list[str]:
    """The advisories that nobody has looked at, or not since their day.

    Args:
        found: by package and version the ids of advisories.
    """
    passed = {(each["package"], name): each["until"] for each in decided for name in each["ids"]}
    faults = []
    for (package, version), names in found.items():
        for name in names:
            until = passed.get((package, name))
            if until is None:
                faults.append(f"{package} {version}: {name}; take a newer one, or say why not")
            elif until < today:
                faults.append(f"{package} {version}: {name} was let pass until {until}; look again")
    return faults


def ask_advisories(
    packages: Sequence[tuple[str, str, str]], url: str = ADVISORIES
) -> dict[tuple[str, str], list[str]]:
    """The known advisories of packages (ecosystem, name, version), in one question.

    Raises:
        OSError, ValueError: the database cannot be reached, or does not answer as it should.
    """
    queries = [
        {"package": {"ecosystem": ecosystem, "name": name}, "version": version}
        for ecosystem, name, version in packages
    ]
    request = urllib.request.Request(  # the address is a constant above
        url,
        data=json.dumps({"queries": queries}).encode(),
        headers={"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=ADVISORY_SECONDS_MAX) as answer:
        results = json.load(answer)["results"]
    if len(results) != len(queries):
        raise ValueError(f"{len(results)} answers to {len(queries)} questions")
    return {
        (name, version): [each["id"] for each in result["vulns"]]
        for (_, name, version), result in zip(packages, results, strict=True)
        if result.get("vulns")
    }


def _python(decided: Mapping[str, Any]) -> tuple[list[Locked], list[str]]:
    """All locks, what is installed, and its licences."""
    locks: dict[Path, list[Locked]] = {}
    faults: list[str] = []
    for path in sorted(chain.from_iterable(ROOT.glob(pattern) for pattern in LOCKS)):
        locks[path], wrong = read_requirements(path.read_text(encoding="utf-8"))
        faults += [f"{path.relative_to(ROOT)}: {fault}" for fault in wrong]
    needed = [each for path in locks if path.name in NEEDED for each in locks[path]]
    known = list(chain.from_iterable(locks.values()))
    distributions = by_name(metadata.distributions())
    versions = {name: each.version for name, each in distributions.items()}
    faults += installed_faults(needed, known, versions)
    faults += packages_licence_faults(known, distributions, decided)
    checked = subprocess.run(
        [sys.executable, "-m", "pip", "--disable-pip-version-check", "check"],
        capture_output=True,
        text=True,
        check=False,
    )
    if checked.returncode:
        faults += [f"pip check: {line}" for line in checked.stdout.splitlines()]
    print(f"audit: {len({each.name for each in known})} Python packages in {len(locks)} locks")
    return known, faults


def _apart(decided: Mapping[str, Any]) -> tuple[list[Locked], list[str]]:
    """The locks of environments apart from the project's, and the environments that were made."""
    known, faults = [], []
    for path in sorted(ROOT.glob(APART)):
        locked, wrong = read_requirements(path.read_text(encoding="utf-8"))
        folder = environment_packages(path)
        if folder is not None:
            wrong += apart_faults(locked, folder, decided)
        faults += [f"{path.relative_to(ROOT)}: {fault}" for fault in wrong]
        known += locked
        made = "made" if folder is not None else "not made"
        print(
            f"audit: {len(locked)} Python packages in {path.name}; its environment is {made} here"
        )
    return known, faults


def apart_faults(locked: Sequence[Locked], folder: Path, decided: Mapping[str, Any]) -> list[str]:
    """How the packages in a folder differ from their lock, and which licences nobody agreed to."""
    distributions = by_name(metadata.distributions(path=[str(folder)]))
    versions = {name: each.version for name, each in distributions.items()}
    faults = [
        f"{fault.partition(';')[0]}; remove its environment, {folder.parents[2]}"
        for fault in installed_faults(locked, (), versions, UNLOCKED_APART)
    ]
    return faults + packages_licence_faults(locked, distributions, decided)


def by_name(
    distributions: Iterable[metadata.Distribution],
) -> dict[str, metadata.Distribution]:
    return {canonicalize_name(each.name): each for each in distributions}


def packages_licence_faults(
    known: Iterable[Locked],
    distributions: Mapping[str, metadata.Distribution],
    decided: Mapping[str, Any],
) -> list[str]:
    """What nobody has agreed to of the licences of those that are locked and installed."""
    names = {each.name for each in known}
    return [
        fault
        for name, distribution in sorted(distributions.items())
        if name in names
        for fault in licence_faults(
            name, declared_licences(distribution.metadata), decided["licences"]
        )
    ]


def _jars(decided: Mapping[str, Any]) -> tuple[list[Jar], list[str]]:
    """The lock of jars, the jars that were fetched, and their licences."""
    try:
        lock = read_lock()
    except JarError as reason:
        return [], [str(reason)]
    jars = [jar for group in lock.values() for jar in group]
    faults = lock_faults(lock) + jar_licence_faults(jars, decided["licences"])
    fetched = []
    for group, members in lock.items():
        content = "\n".join(f"{jar.coordinate} {jar.sha256}" for jar in members)
        name = f"{group}-{hashlib.sha256(content.encode()).hexdigest()[:12]}"
        folder = cache_home() / "jars" / name
        if folder.is_dir():
            fetched.append(group)
            faults += jar_faults(folder, members)
    print(f"audit: {len(jars)} jars in {len(lock)} groups; fetched here: {', '.join(fetched)}")
    return jars, faults


def _advisories(
    known: Iterable[Locked], jars: Iterable[Jar], decided: Mapping[str, Any]
) -> list[str]:
    packages = {("PyPI", each.name, each.version) for each in known}
    for jar in jars:
        name, version = jar.coordinate.rsplit(":", 1)
        packages.add(("Maven", name, version))
    try:
        found = ask_advisories(sorted(packages))
    except (OSError, ValueError, KeyError) as reason:
        line = f"advisories not looked at: cannot reach {ADVISORIES} ({reason})"
        if os.environ.get("AUDIT") == "strict":
            return [line]
        print(f"audit: {line}")
        return []
    print(f"audit: {len(packages)} packages and jars held against {ADVISORIES}")
    return advisory_faults(found, decided["advisories"], datetime.now(UTC).date())


def main() -> int:
    decided = tomllib.loads(DECIDED.read_text(encoding="utf-8"))
    known, faults = _python(decided)
    apart, apart_wrong = _apart(decided)
    jars, jars_wrong = _jars(decided)
    faults += apart_wrong + jars_wrong
    faults += _advisories([*known, *apart], jars, decided)
    for fault in faults:
        print(f"audit: {fault}", file=sys.stderr)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
