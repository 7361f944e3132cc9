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
from typing import Annotated, Final

import msgspec
from spu_assigner.core.base.errors import AssignerError
from spu_assigner.core.base.limits import SPU_ID_MAX
from spu_assigner.core.base.resources import amounts_fault
from spu_assigner.stream.clusters.follow.options import Size
from spu_assigner.stream.common.plain_file import FileRefusedError, read_plain_file

FILE_SIZE_MAX: Final = 1024 * 1024  # 10,000 brokers in some 40 bytes each


class SizesError(AssignerError):
    """The file of sizes cannot be read, or says what cannot be."""

    exit_status = 2


class _Sizes(Size, frozen=True, kw_only=True):
    brokers: Mapping[Annotated[int, msgspec.Meta(ge=0, le=SPU_ID_MAX)], Size] = {}


def read_sizes(file: Path) -> tuple[Size, Mapping[int, Size]]:
    """The size of each broker without one of its own, and those by broker.

    Raises:
        SizesError: the file cannot be read, or is none; it names the entry.
    """
    try:
        written = tomllib.loads(read_plain_file(file, size_max=FILE_SIZE_MAX).decode())
        sizes = msgspec.convert(written, _Sizes, str_keys=True)
        for size in (sizes, *sizes.brokers.values()):
            if (fault := amounts_fault("resources", size.resources)) is not None:
                raise ValueError(fault)
    except FileRefusedError as reason:
        raise SizesError(f"the file of sizes {reason}; expected a file of TOML") from reason
    except (ValueError, RecursionError) as reason:
        raise SizesError(
            f"the file of sizes {str(file)!r} is wrong: {reason}; expected TOML with cores, "
            "capacity and resources, and for a broker of its own size a table `[brokers.3]`"
        ) from reason
    return Size().over(sizes), sizes.brokers
