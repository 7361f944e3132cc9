"""That a command waits, said by what waits, which does not know the command.

with waits_told(say):       # the command
    …
    tell_wait("for Kafka")  # somewhere below: said once, and nowhere else
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

_SAY: Final = ContextVar[Callable[[str], None] | None]("say", default=None)


@contextmanager
def waits_told(say: Callable[[str], None]) -> Iterator[None]:
    """Inside, the first wait that is told of is said."""
    token = _SAY.set(say)
    try:
        yield
    finally:
        _SAY.reset(token)


def tell_wait(text: str) -> None:
    """Say what is waited for, if a command wants it said and nothing was said before."""
    say = _SAY.get()
    if say is not None:
        _SAY.set(None)
        say(text)
