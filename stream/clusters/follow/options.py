"""What `follow` and `adopt` are asked for; sizes of brokers also in a file.

capacity = 1000        # of every broker that has none of its own below
resources = {disk_bytes = 2_000_000_000_000}
[brokers.3]
cores = 8
capacity = 4000
resources = {disk_bytes = 8_000_000_000_000}
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Final

from msgspec import Meta, convert
from spu_assigner.core.base.errors import AssignerError
from spu_assigner.core.base.events import Policy
from spu_assigner.core.base.limits import CAPACITY_MAX, CORES_MAX, KAFKA_OWN, SPU_ID_MAX
from spu_assigner.core.base.resources import amounts_fault
from spu_assigner.core.base.structs import FrozenStruct
from spu_assigner.stream.common.plain_file import FileRefusedError, read_plain_file

FILE_SIZE_MAX: Final = 1024 * 1024  # 10,000 brokers in some 40 bytes each


class SizesError(AssignerError):
    """The file of sizes cannot be read, or says what cannot be."""

    exit_status = 2


class Size(FrozenStruct, frozen=True, kw_only=True):
    """What Kafka does not say of a broker; None: nothing was set."""

    cores: Annotated[int, Meta(ge=1, le=CORES_MAX)] | None = None
    capacity: Annotated[int, Meta(ge=0, le=CAPACITY_MAX)] | None = None
    resources: Mapping[str, int] = {}

    def over(self, other: Size) -> Size:
        """This one, and what it does not say from the other."""
        return Size(
            cores=other.cores if self.cores is None else self.cores,
            capacity=other.capacity if self.capacity is None else self.capacity,
            resources={**other.resources, **self.resources},
        )


class _Sizes(Size, frozen=True, kw_only=True):
    brokers: Mapping[Annotated[int, Meta(ge=0, le=SPU_ID_MAX)], Size] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class FollowOptions:
    """What a command was asked for; the defaults of brokers are those of `adopt`."""

    cluster_id: str
    is_adopt: bool = False  # one round: brokers join that were never announced, and none leaves
    kafka_cluster: str = ""  # the watched cluster's own id, once it was seen
    own: frozenset[str] = frozenset()  # the product's topics, with the prefix
    accept_cluster: bool = False  # although the SPUs were announced as another cluster's brokers
    dry_run: bool = False
    once: bool = False
    interval_seconds: float = 5.0
    wait_seconds: float = 60.0  # for which nothing may be answered

    # Brokers.
    grace_seconds: float = math.inf
    size: Size = field(default_factory=Size)  # of each broker without one of its own
    sizes: Mapping[int, Size] = field(default_factory=dict)
    excluded_brokers: frozenset[int] = frozenset()  # these are no business of ours
    take_over: bool = False  # SPUs that others joined
    allow_mass_leave: bool = False

    # Topics.
    globs: tuple[str, ...] = ()  # none: no topic is looked at
    excluded: tuple[str, ...] = ()  # globs, too; they count more
    pinned: bool | None = None  # None: as its map says; of a new one no
    policy: Policy | None = None  # None: as its map says; of a new one the job's default
    overwrite: bool = False  # also adopt what was changed, deleted, released or reserved here
    forget_gone: bool = False  # release what is gone
    place_new: bool = False  # new topics that are empty are placed by the job, and moved there

    def of(self, kafka_cluster: str, own: Collection[str]) -> FollowOptions:
        """The same, of a watched cluster and the product's topics."""
        return replace(self, kafka_cluster=kafka_cluster, own=frozenset(own))

    def is_meant(self, topic: str) -> bool:
        """Whether a topic is to be looked at: Kafka's own and the product's are not."""
        return (
            not topic.startswith(KAFKA_OWN)
            and topic not in self.own
            and any(fnmatchcase(topic, glob) for glob in self.globs)
            and not any(fnmatchcase(topic, glob) for glob in self.excluded)
        )


def read_sizes(file: Path) -> tuple[Size, Mapping[int, Size]]:
    """The size of each broker without one of its own, and those by broker.

    Raises:
        SizesError: the file cannot be read, or is none; it names the entry.
    """
    try:
        written = tomllib.loads(read_plain_file(file, size_max=FILE_SIZE_MAX).decode())
        sizes = convert(written, _Sizes, str_keys=True)
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
