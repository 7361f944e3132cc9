"""Fuzzes one target in this process: `child.py TARGET [--plant] [libFuzzer's options]`.

libFuzzer ends the process itself. Lines on standard error are libFuzzer's. With `--plant` a
tombstone raises, to see that the fuzzer finds it.
"""

from __future__ import annotations

import logging
import resource
import sys
from pathlib import Path

import atheris

ADDRESS_SPACE_MAX = 4 * 1024**3  # bytes; what asks for more at once gets a MemoryError

sys.path.insert(0, str(Path(__file__).parents[1]))  # for `fuzz` and `support`
logging.disable(logging.CRITICAL)

with atheris.instrument_imports(include=["spu_assigner"]):
    from fuzz.targets import TARGETS
    from spu_assigner.core.base.events import Event
    from spu_assigner.schemas.messages.codec import EventKind, decode_event
    from spu_assigner.stream.job.shard import batch


def _stumbling(value: bytes | None, *, kind: EventKind) -> Event:
    if value is None:
        raise TypeError("a value is None")
    return decode_event(value, kind=kind)


def main() -> None:
    """Never returns."""
    name, *options = sys.argv[1:]
    if options[:1] == ["--plant"]:
        setattr(batch, "decode_event", _stumbling)  # noqa: B010 — a fault, planted
        del options[0]
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE_MAX, ADDRESS_SPACE_MAX))
    atheris.Setup([sys.argv[0], *options], TARGETS[name].one)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
