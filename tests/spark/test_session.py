"""What a session brings into the process that begins it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

BEGIN = """
import importlib.util, sys
from spu_assigner.stream.job.session import start_command_session
assert importlib.util.find_spec("pandas") and importlib.util.find_spec("pyarrow")
session = start_command_session(sys.argv[1], application="test")
print(session.range(3).count(), *sorted({"pandas", "pyarrow"} & set(sys.modules)))
import pyarrow
print(pyarrow.array([1]).type)
hadoop = session.sparkContext._jsc.hadoopConfiguration()
print(hadoop.size() < 100, hadoop.get("fs.permissions.umask-mode"))
session.stop()
"""


@pytest.mark.timeout(120)
def test_a_session_holds_neither_pandas_nor_arrow_nor_defaults_of_hadoop(tmp_path: Path) -> None:
    """PySpark would, by a module for tests, if they are there; afterwards they can be had."""
    done = subprocess.run(
        [sys.executable, "-c", BEGIN, str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout.split()) == (0, ["3", "int64", "True", "077"]), done.stderr
