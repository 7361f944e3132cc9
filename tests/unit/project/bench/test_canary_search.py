"""The search for a secret finds it in every form: else that nothing was found would say nothing."""

from __future__ import annotations

import base64
import html
import json
import os
import subprocess
import sys
import urllib.parse
from pathlib import Path

import pytest
from support.events.canary import Canary
from support.kafka.sockets import family

_CANARY = Canary.hatch()
_VALUE = _CANARY.value


@pytest.mark.parametrize(
    "written",
    [
        _VALUE,
        _VALUE.upper(),
        json.dumps({"password": _VALUE}),
        html.escape(_VALUE),
        urllib.parse.quote(_VALUE, safe=""),
        repr(_VALUE.encode()),
        _VALUE.encode("utf-16-le").decode("latin-1"),
        _VALUE.encode().hex(),
        *(base64.b64encode(b"x" * lead + _VALUE.encode() + b"y").decode() for lead in range(3)),
        base64.urlsafe_b64encode(_VALUE.encode()).decode(),
        base64.b64encode(f"user\0{_VALUE}".encode()).decode(),
    ],
    ids=lambda _: "form",  # the secret is another one in each process, a test's name is not
)
def test_a_planted_secret_is_found_in_every_form(written: str, tmp_path: Path) -> None:
    """Also where it lies across the pieces in which a large file is read."""
    (tmp_path / "folder").mkdir()
    (tmp_path / "clean").write_bytes(os.urandom(1 << 16))
    place = tmp_path / "folder" / "planted"
    place.write_bytes(b"." * ((1 << 20) - 20) + written.encode("latin-1") + b".")
    assert _CANARY.files(tmp_path) == [place]


def test_a_secret_on_a_command_line_is_found() -> None:
    """Everybody on the machine reads those."""
    command = [sys.executable, "-c", "input(print(flush=True))", _VALUE]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe) as process:
        assert process.stdout is not None
        process.stdout.readline()  # until then the command line may be that of this process
        lines = family(os.getpid())
        process.communicate(b"\n")
    assert [number for number, line in lines.items() if _CANARY.is_in(line.encode())] == [
        process.pid
    ]
