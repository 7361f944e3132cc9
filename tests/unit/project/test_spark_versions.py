"""Which Spark the package runs on: what is accepted, what is tested, and what is said of it."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from packaging.requirements import Requirement
from support.project.locks import read_lock
from support.project.set_up import SPARKS

ROOT = Path(__file__).parents[3]
DOCUMENT = ROOT / "docs/upgrading.md"


def locked(path: Path) -> str:
    """The version of PySpark in a lock, which has nothing that is not exact and hashed."""
    return read_lock(path.read_text(encoding="utf-8"))["pyspark"]


def test_each_spark_that_is_accepted_by_name_is_locked_and_documented() -> None:
    """Those of `make test SPARK=…` and the one of all other tests, each within the range."""
    others = list(SPARKS)
    assert [locked(ROOT / f"tests/spark/pyspark-{each}.lock") for each in others] == others
    assert len(list((ROOT / "tests/spark").glob("*.lock"))) == len(others)
    main = {locked(ROOT / name) for name in ("requirements.lock", "docker/requirements.lock")}
    tested = [*main, *others]
    _, section = DOCUMENT.read_text(encoding="utf-8").split("\n## To another Spark\n")
    assert re.findall(r"^\| (\d[\d.]*) \|", section, re.MULTILINE) == tested
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    (range_,) = (
        each.specifier
        for each in map(Requirement, project["optional-dependencies"]["job"])
        if each.name == "pyspark"
    )
    assert all(each in range_ for each in tested)
    assert "4.4.0" not in range_  # untested
