"""The file of sizes: cores and capacities, which Kafka does not tell of its brokers.

capacity = 1000        # of every broker that has none of its own below
[brokers.3]
cores = 8
capacity = 4000
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from spu_assigner.core.base.bounded_repr import bounded_repr
from spu_assigner.core.base.errors import AssignerError
from spu_assigner.core.base.limits import CAPACITY_MAX, CORES_MAX, SPU_ID_MAX
from spu_assigner.stream.common.plain_file import FileRefusedError, read_plain_file
from spu_assigner.stream.follow.decision import Size

FILE_SIZE_MAX: Final = 1024 * 1024  # 10,000 brokers in some 40 bytes each
_LIMITS: Final = {"cores": (1, CORES_MAX), "capacity": (0, CAPACITY_MAX)}
_BROKERS: Final = "brokers"


class SizesError(AssignerError):
    """The file of sizes cannot be read, or says what cannot be."""

    exit_status = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """What a file says."""

    size: Size  # of each broker without one of its own
    by_broker: Mapping[int, Size]


def read_sizes(file: Path) -> Sizes:
    """Read a file whole.

    Raises:
        SizesError: it cannot be read, or is none; it names the entry.
    """
    try:
        written = tomllib.loads(read_plain_file(file, size_max=FILE_SIZE_MAX).decode())
    except FileRefusedError as reason:
        raise SizesError(f"the file of sizes {reason}") from reason
    except (ValueError, RecursionError) as reason:
        raise SizesError(
            f"the file of sizes {str(file)!r} is no TOML ({reason}); expected `capacity = 1000`, "
            "and for a broker of its own size a table `[brokers.3]`"
        ) from reason
    brokers = written.pop(_BROKERS, {})
    if not isinstance(brokers, dict):
        raise _refused(file, _BROKERS, brokers, "tables such as [brokers.3]")
    return Sizes(
        size=_size(file, "", written),
        by_broker={
            _broker(file, name): _size(file, f"{_BROKERS}.{name}.", entries)
            for name, entries in brokers.items()
        },
    )


def _broker(file: Path, name: str) -> int:
    if not (name.isascii() and name.isdecimal() and int(name[:11]) <= SPU_ID_MAX):
        raise _refused(file, _BROKERS, name, f"a broker's id, 0 to {SPU_ID_MAX}")
    return int(name)


def _size(file: Path, place: str, entries: Any) -> Size:
    if not isinstance(entries, dict):
        raise _refused(file, place.rstrip("."), entries, "a table with cores or capacity")
    for name, value in entries.items():
        if name not in _LIMITS:
            raise _refused(file, f"{place}{name}", value, "cores, capacity or brokers")
        least, most = _LIMITS[name]
        if type(value) is not int or not least <= value <= most:
            raise _refused(file, f"{place}{name}", value, f"{least} to {most}")
    return Size(cores=entries.get("cores"), capacity=entries.get("capacity"))


def _refused(file: Path, entry: str, value: object, expected: str) -> SizesError:
    return SizesError(f"{entry} in {str(file)!r} is {bounded_repr(value)}; expected {expected}")
