"""Imported by Python at its start where this folder is on its path: see `support.failpoints`."""

import os
import signal
import sys

_NAME, _, _NUMBER = os.environ.get("SPU_ASSIGNER_FAILPOINT", "").partition(":")


def _die(event: str, args: tuple) -> None:
    """`args`: the number of a batch or wave, then what is to be called before."""
    if event == f"spu_assigner.{_NAME}" and args[0] >= int(_NUMBER or 0):
        for settle in args[1:]:
            settle()
        os.killpg(os.getpgrp(), signal.SIGKILL)


if _NAME:
    sys.addaudithook(_die)
