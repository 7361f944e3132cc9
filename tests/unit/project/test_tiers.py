"""The tiers of tests: nothing that `make test` leaves out is lost."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from support.project import tiers


def test_the_table_of_tiers_is_that_of_the_tests() -> None:
    """`make tiers` writes it; a test that moves to another tier shows in the review."""
    page = tiers.PAGE.read_text(encoding="utf-8")
    assert tiers.table() in page
    assert tiers.written(page) == page


def test_each_package_that_has_heavy_tests_has_one_in_the_quick_tier() -> None:
    """Else a fault there would be found before a release only."""
    functions = list(tiers.heavy_tests())
    folders = {each.place.rpartition("/")[0] for each in functions}
    assert {each.place.rpartition("/")[0] for each in functions if each.is_smoke} == folders


@pytest.mark.thorough
def test_a_group_of_tests_goes_to_one_worker(tmp_path: Path) -> None:
    """pytest 9.2.0 ignores the groups of pytest-xdist 3.8.0 in silence: each worker then starts
    what a file's tests share, and `make test` takes half as long again.
    """
    file = tmp_path / "test_groups.py"
    file.write_text(
        "import os, pytest\n"
        "@pytest.mark.parametrize('number', range(24))\n"
        "def test_it(number):\n"
        "    name = f'{number % 3}-{number}'\n"
        f"    open({str(tmp_path)!r} + '/' + name, 'w').write(os.environ['PYTEST_XDIST_WORKER'])\n",
        encoding="utf-8",
    )
    (tmp_path / "conftest.py").write_text(
        "import pytest\n"
        "@pytest.hookimpl(tryfirst=True)\n"
        "def pytest_collection_modifyitems(items):\n"
        "    for item in items:\n"
        "        group = str(item.callspec.params['number'] % 3)\n"
        "        item.add_marker(pytest.mark.xdist_group(group))\n",
        encoding="utf-8",
    )
    command = [sys.executable, "-m", "pytest", "-q", "-n", "2", "--dist", "loadgroup"]
    place = ["-p", "no:cacheprovider", "--rootdir", str(tmp_path), str(tmp_path)]
    subprocess.run([*command, *place], cwd=tmp_path, check=True, capture_output=True)
    workers: dict[str, set[str]] = {}
    for each in tmp_path.glob("[0-9]-*"):
        workers.setdefault(each.name[0], set()).add(each.read_text(encoding="utf-8"))
    assert sorted(map(len, workers.values())) == [1, 1, 1]
