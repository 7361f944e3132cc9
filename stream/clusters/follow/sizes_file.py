"""The file of sizes: cores, capacities and resources, which Kafka does not know of its brokers.

capacity = 1000        # of every broker that has none of its own below
resources = {disk_bytes = 2_000_000_000_000}
[brokers.3]
cores = 8
capacity = 4000
resources = {disk_bytes = 8_000_000_000_000}
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from spu_assigner.core.base.errors import AssignerError, bounded_repr
from spu_assigner.core.base.limits import CAPACITY_MAX, CORES_MAX, SPU_ID_MAX
from spu_assigner.core.base.resources import amounts_fault
from spu_assigner.stream.clusters.follow.decision import Size
from spu_assigner.stream.common.plain_file import FileRefusedError, read_plain_file

FILE_SIZE_MAX: Final = 1024 * 1024  # 10,000 brokers in some 40 bytes each
_LIMITS: Final = {"cores": (1, CORES_MAX), "capacity": (0, CAPACITY_MAX)}


class SizesError(AssignerError):
    """The file of sizes cannot be read, or says what cannot be."""

    exit_status = 2


def read_sizes(file: Path) -> tuple[Size, Mapping[int, Size]]:
    """The size of each broker without one of its own, and those by broker.

    Raises:
        SizesError: the file cannot be read, or is none; it names the entry.
    """
    try:
        written = tomllib.loads(read_plain_file(file, size_max=FILE_SIZE_MAX).decode())
    except FileRefusedError as reason:
        raise SizesError(f"the file of sizes {reason}; expected a file of TOML") from reason
    except (ValueError, RecursionError) as reason:
        raise SizesError(
            f"the file of sizes {str(file)!r} is no TOML ({reason}); expected `capacity = 1000`, "
            "and for a broker of its own size a table `[brokers.3]`"
        ) from reason
    brokers = written.pop("brokers", {})
    if not isinstance(brokers, dict):
        raise _wrong(file, "brokers", brokers, "tables such as [brokers.3]")
    for name in brokers:
        if not (name.isascii() and name.isdecimal() and int(name[:11]) <= SPU_ID_MAX):
            raise _wrong(file, "brokers", name, f"a broker's id, 0 to {SPU_ID_MAX}")
    of_brokers = {int(name): _size(file, f"brokers.{name}", brokers[name]) for name in brokers}
    return _size(file, "", written), of_brokers


def _size(file: Path, place: str, entries: Any) -> Size:
    if not isinstance(entries, dict):
        raise _wrong(file, place, entries, "a table with cores, capacity or resources")
    for name, value in entries.items():
        entry = f"{place}.{name}".lstrip(".")
        if name == "resources":
            _check_resources(file, entry, value)
            continue
        if name not in _LIMITS:
            raise _wrong(file, entry, value, "cores, capacity, resources or brokers")
        least, most = _LIMITS[name]
        if type(value) is not int or not least <= value <= most:
            raise _wrong(file, entry, value, f"{least} to {most}")
    return Size(**entries)


def _check_resources(file: Path, entry: str, amounts: Any) -> None:
    if not isinstance(amounts, dict) or any(type(each) is not int for each in amounts.values()):
        raise _wrong(file, entry, amounts, "whole numbers by name")
    fault = amounts_fault(entry, amounts)
    if fault is not None:
        raise SizesError(f"in {str(file)!r} {fault}")


def _wrong(file: Path, entry: str, value: object, expected: str) -> SizesError:
    return SizesError(f"{entry} in {str(file)!r} is {bounded_repr(value)}; expected {expected}")
