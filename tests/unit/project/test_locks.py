"""Dependencies are locked: exact versions with hashes, all that the package asks for."""

from __future__ import annotations

import subprocess
import tomllib
from itertools import chain

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from spu_assigner.stream.local.jvm.jars import read_lock as read_jars
from support.project.locks import ROOT, read_lock

_LOCKS = subprocess.run(
    ["git", "ls-files", "*.lock"], cwd=ROOT, capture_output=True, text=True, check=True
).stdout.split()


@pytest.mark.parametrize("name", [each for each in _LOCKS if "/jvm/" not in each])
def test_each_package_has_an_exact_version_and_hashes(name: str) -> None:
    """pip installs nothing else from it."""
    assert read_lock((ROOT / name).read_text(encoding="utf-8"))


@pytest.mark.parametrize("line", ["numpy==2.0", "numpy", "numpy>=2.0 --hash=sha256:" + "a" * 64])
def test_a_line_without_version_or_hash_is_refused(line: str) -> None:
    """A lock with a range locks nothing."""
    with pytest.raises(ValueError, match="no exact version"):
        read_lock(line)


def test_what_the_package_asks_for_is_locked_within_its_ranges() -> None:
    """What is tested is what a user may get."""
    locked = read_lock((ROOT / "requirements.lock").read_text(encoding="utf-8"))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    asked = chain(project["dependencies"], project["optional-dependencies"]["job"])
    for each in map(Requirement, asked):
        if each.marker is None or each.marker.evaluate():
            assert locked[canonicalize_name(each.name)] in each.specifier


def test_each_jar_has_a_hash() -> None:
    """A file of another content is not taken."""
    assert all(len(jar.sha256) == 64 for jars in read_jars().values() for jar in jars)
