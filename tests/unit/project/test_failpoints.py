"""Places where tests kill a program: the product reports each, and only the named one kills."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys

import pytest
from support.failpoints import Failpoint, dying_at
from support.project.environments import ROOT

PROGRAM = """
import sys
for batch in range(5):
    for name in ("before-collect", "inside-transaction", "after-commit"):
        sys.audit(f"spu_assigner.{name}", batch, lambda: print("settled", flush=True))
        print(batch, name, flush=True)
"""


def lines_until_death(failpoint: str) -> tuple[list[str], int]:
    result = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env={**os.environ, **dying_at(failpoint)},
        capture_output=True,
        text=True,
        check=False,
        start_new_session=True,  # it kills its process group
    )
    return result.stdout.splitlines(), result.returncode


def test_a_named_failpoint_kills_in_the_first_batch_that_is_late_enough() -> None:
    """The batches before pass; what the place wants settled first is settled."""
    lines, status = lines_until_death("after-commit:2")
    assert status == -signal.SIGKILL
    assert lines[-2:] == ["2 inside-transaction", "settled"]
    assert "1 after-commit" in lines
    assert lines_until_death("before-collect") == (["settled"], -signal.SIGKILL)


def test_without_a_name_every_place_is_passed() -> None:
    lines, status = lines_until_death("")
    assert (len(lines), status) == (15, 0)


@pytest.mark.parametrize("text", ["after", "after-commit:", "after-commit:x", ":1"])
def test_an_unknown_failpoint_is_refused(text: str) -> None:
    """A trial that silently tries nothing would prove nothing."""
    with pytest.raises(AssertionError):
        dying_at(text)


def test_the_product_reports_each_place_that_tests_name() -> None:
    """By the calls in its source: what one of them does, the tests with real brokers show."""
    called: set[str] = set()
    for file in ROOT.glob("stream/**/*.py"):
        source = file.read_text(encoding="utf-8")
        called |= {*re.findall(r'sys\.audit\("spu_assigner\.([a-z-]+)"', source)}
        if "spu_assigner.wave-" in source:
            called |= {f"wave-{name}" for name in re.findall(r'reach\("([a-z]+)"\)', source)}
    assert called == {*Failpoint}
