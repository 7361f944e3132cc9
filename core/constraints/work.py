"""How much one request may look at.

What is counted depends on the request and the state alone, never on what earlier requests have left
in memory, so that every replay stops at the same place.
"""

from __future__ import annotations

from typing import Final

from spu_assigner.core.base.errors import AssignerError

SEARCH_STEPS_MAX: Final = 20_000  # partial lists that one search looks at; some 0.2 s
LOOKS_A_STEP: Final = 16  # kinds of SPUs: where there are more, a partial list counts for several
LOOKS_OF_A_STEP: Final = 50  # that take as long
LOOKS_MAX: Final = 12_000_000  # of one request; 1.5 to 3.5 s


class TooMuchWorkError(AssignerError):
    """A request takes more than `LOOKS_MAX` looks; it is rejected."""

    def __init__(self) -> None:
        self.given = 0  # lists that it does not take too much to give
        super().__init__(f"a request takes more than {LOOKS_MAX} looks")


class Work:
    """What a request may still look at: SPUs, or kinds of them."""

    def __init__(self, *, looks: int = LOOKS_MAX, steps: int = SEARCH_STEPS_MAX) -> None:
        self.looks = looks
        self.steps = steps  # of searches
        self.mark = object()  # of turns that are counted
        self._seen: set[tuple[int, ...]] = set()

    @property
    def done(self) -> int:
        """What was looked at, in looks."""
        return LOOKS_MAX - self.looks + (SEARCH_STEPS_MAX - self.steps) * LOOKS_OF_A_STEP

    def look(self, looks: int) -> None:
        """Count looks.

        Raises:
            TooMuchWorkError: they are more than are left.
        """
        self.looks -= looks
        if self.looks < 0:
            raise TooMuchWorkError

    def look_once(self, key: tuple[int, ...], looks: int) -> None:
        """Count the looks that it takes to make something that may be kept from before."""
        if key not in self._seen:
            self._seen.add(key)
            self.look(looks)

    def search(self, looks: int) -> None:
        """Count a step of a search."""
        self.steps -= 1 + looks // LOOKS_A_STEP
