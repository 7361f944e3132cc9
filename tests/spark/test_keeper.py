"""Keepers as workers find them: processes that may end at any moment."""

from __future__ import annotations

import fcntl
import os
import subprocess
import threading
import time

import pytest
from spu_assigner.stream import keeper


def test_a_keeper_that_is_ending_is_waited_for_and_replaced(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It holds the lock to its very end but listens no more.

    The new one gives way to it, and without another attempt the worker would wait a minute for
    nobody. An executor that is lost takes its keepers with it just while others ask them.
    """
    started: list[subprocess.Popen[bytes]] = []
    start, secret = keeper._start, os.urandom(16).hex()

    def starting(secret: str, label: int) -> subprocess.Popen[bytes]:
        started.append(start(secret, label))
        return started[-1]

    monkeypatch.setattr(keeper, "_start", starting)
    folder = keeper._folder(secret)
    folder.mkdir(mode=0o700)
    lock = os.open(folder / "7.lock", os.O_RDWR | os.O_CREAT, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX)
    ending = threading.Timer(1.5, os.close, (lock,))  # long enough for a new one to be refused
    ending.start()
    begun = time.monotonic()
    connection = keeper._connect(secret, 7)
    try:
        assert 1.5 <= time.monotonic() - begun < keeper.START_SECONDS_MAX / 2
        assert [process.wait(1) for process in started[:-1]] == [0] * (len(started) - 1)
    finally:
        connection.close()
        ending.join()
        started[-1].terminate()
        assert started[-1].wait(10) == 0
    assert not folder.exists()
