"""A state store in a dict, for tests that need no Spark."""

from __future__ import annotations

import random
from collections.abc import Iterator


class DictStore:
    """A store whose uncommitted changes can be thrown away, as Spark's are when a batch fails."""

    def __init__(self) -> None:
        self.committed: dict[str, bytes] = {}
        self.current: dict[str, bytes] = {}
        self.calls = 0
        self.fails_at: int | None = None

    def _called(self) -> None:
        self.calls += 1
        if self.fails_at is not None and self.calls >= self.fails_at:
            raise ConnectionError("the state server is gone")

    def get(self, key: str) -> bytes | None:
        self._called()
        return self.current.get(key)

    def put(self, key: str, value: bytes) -> None:
        self._called()
        self.current[key] = value

    def remove(self, key: str) -> None:
        self._called()
        del self.current[key]

    def items(self) -> Iterator[tuple[str, bytes]]:
        self._called()
        pairs = list(self.current.items())
        random.Random(len(pairs)).shuffle(pairs)  # A store promises no order.
        return iter(pairs)

    def commit(self) -> None:
        self.committed = dict(self.current)

    def abort(self) -> None:
        self.current = dict(self.committed)
        self.fails_at = None

    @property
    def size(self) -> int:
        return sum(map(len, self.current.values()))
