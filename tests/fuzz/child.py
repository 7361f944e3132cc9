"""Fuzzes one target in this process: `child.py TARGET [--plant FAULT] [libFuzzer's options]`.

libFuzzer ends the process itself. Lines on standard error are libFuzzer's.
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
    from fuzz.plants import PLANTS
    from fuzz.targets import TARGETS


def main() -> None:
    """Never returns."""
    name, *options = sys.argv[1:]
    if options[:1] == ["--plant"]:
        PLANTS[options[1]].plant()
        options = options[2:]
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE_MAX, ADDRESS_SPACE_MAX))
    atheris.Setup([sys.argv[0], *options], TARGETS[name].one)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
