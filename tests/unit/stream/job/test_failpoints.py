"""Failpoints: off unless named, and they kill where they are named."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest
from spu_assigner.stream.job.failpoints import Armed, Failpoint, armed
from spu_assigner.stream.kafka.config.settings import SettingsError

PROGRAM = """
from spu_assigner.stream.job.failpoints import Failpoint, armed
for batch in range(5):
    for failpoint in Failpoint:
        armed().reach(failpoint, batch, settle=lambda: print("settled", flush=True))
        print(batch, failpoint, flush=True)
"""


def lines_until_death(failpoint: str) -> tuple[list[str], int]:
    result = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env={**os.environ, "SPU_ASSIGNER_FAILPOINT": failpoint},
        capture_output=True,
        text=True,
        check=False,
        start_new_session=True,  # it kills its process group
    )
    return result.stdout.splitlines(), result.returncode


def test_without_the_variable_nothing_is_armed() -> None:
    """In earnest the job passes all of them."""
    assert armed({}) == armed({"SPU_ASSIGNER_FAILPOINT": ""}) == Armed(failpoint=None)
    for failpoint in Failpoint:
        armed({}).reach(failpoint, 0)


def test_a_named_failpoint_kills_in_the_first_batch_that_is_late_enough() -> None:
    """The batches before pass; what the place wants settled first is settled."""
    lines, status = lines_until_death("after-commit:2")
    assert status == -signal.SIGKILL
    assert lines[-2:] == ["2 inside-transaction", "settled"]
    assert "1 after-commit" in lines
    assert lines_until_death("before-collect") == (["settled"], -signal.SIGKILL)


@pytest.mark.parametrize(
    "text", ["after", "after-commit:", "after-commit:-1", "after-commit:x", "AFTER-COMMIT", ":1"]
)
def test_an_unknown_failpoint_is_refused_at_the_start(text: str) -> None:
    """A trial that silently tries nothing would prove nothing."""
    with pytest.raises(SettingsError, match="expected one of before-collect, inside-transaction"):
        armed({"SPU_ASSIGNER_FAILPOINT": text})
