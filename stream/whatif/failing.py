"""What `--fail` means: SPUs or racks by name, or all cases of a kind.

rack=a      rack=a,b      spu=3      spu=3,4      any-1-spu      any-2-spus      any-1-rack
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from spu_assigner.core.base.errors import AssignerError
from spu_assigner.core.base.limits import SPU_ID_MAX
from spu_assigner.stream.common.printable import listed

if TYPE_CHECKING:
    from spu_assigner.core.whatif.layout import ClusterLayout

EXPECTED: Final = "rack=NAME[,…], spu=ID[,…], any-1-rack, any-1-spu or any-2-spus"


class AnyFailure(StrEnum):
    """All cases of a kind."""

    RACK = "any-1-rack"
    SPU = "any-1-spu"
    PAIR = "any-2-spus"


class FailureUnknownError(AssignerError):
    """The cluster has nothing of what is to fail."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureSpec:
    """What is to fail."""

    text: str  # as it was given
    every: AnyFailure | None = None
    racks: str | None = None  # one name, or several with commas between them
    spu_ids: tuple[int, ...] = ()


def failure_spec(text: str) -> FailureSpec:
    """Read `--fail`.

    Raises:
        ValueError: it is none of the forms; the message says what was found and expected.
    """
    kind, equals, rest = text.partition("=")
    if not equals and text in {*AnyFailure}:
        return FailureSpec(text=text, every=AnyFailure(text))
    if kind == "rack" and rest:
        return FailureSpec(text=text, racks=rest)
    ids = rest.split(",")
    if kind == "spu" and all(
        each.isascii() and each.isdigit() and int(each[:12]) <= SPU_ID_MAX for each in ids
    ):
        return FailureSpec(text=text, spu_ids=tuple(sorted({int(each) for each in ids})))
    raise ValueError(f"{text!r:.80} is no failure; expected {EXPECTED}")


def failing_ids(spec: FailureSpec, layout: ClusterLayout) -> list[int]:
    """The ids of the SPUs that a failure names, ascending; those that are offline already too.

    Raises:
        FailureUnknownError: the cluster has no such SPU or rack; it says what it has.
    """
    known = layout.ids.tolist()
    if spec.racks is None:
        unknown = sorted({*spec.spu_ids} - {*known})
        if unknown:
            raise FailureUnknownError(
                f"no SPU {listed(unknown)} in cluster {layout.cluster_id!r}; it has SPUs "
                f"{listed(known)}"
            )
        return list(spec.spu_ids)
    names = {rack for rack in layout.racks if rack is not None}
    wanted = [spec.racks] if spec.racks in names else spec.racks.split(",")
    missing = [each for each in wanted if each not in names]
    if missing:
        raise FailureUnknownError(
            f"no rack {listed([repr(each) for each in missing])} in cluster "
            f"{layout.cluster_id!r}; {_racks_of(layout)}"
        )
    return [spu for spu, rack in zip(known, layout.racks, strict=True) if rack in wanted]


def require_cases(every: AnyFailure, layout: ClusterLayout) -> None:
    """Return if there is a case of the kind.

    Raises:
        FailureUnknownError: there is none, or there are too many to go through.
    """
    from spu_assigner.core.whatif.sweep import PAIR_SPUS_MAX

    online = int(layout.online.sum())
    of_cluster = f"cluster {layout.cluster_id!r}"
    if every is AnyFailure.RACK:
        pairs = zip(layout.racks, layout.online.tolist(), strict=True)
        if not any(rack is not None and is_online for rack, is_online in pairs):
            raise FailureUnknownError(
                f"{every} finds no rack with an online SPU in {of_cluster}; {_racks_of(layout)}"
            )
        return
    needed = 2 if every is AnyFailure.PAIR else 1
    if online < needed:
        raise FailureUnknownError(
            f"{every} needs {needed} online SPUs; {of_cluster} has {online} of {len(layout.ids)}"
        )
    if every is AnyFailure.PAIR and online > PAIR_SPUS_MAX:
        raise FailureUnknownError(
            f"{every} goes through the pairs of at most {PAIR_SPUS_MAX:,} online SPUs; "
            f"{of_cluster} has {online:,}: use {AnyFailure.SPU}, or name SPUs with spu=ID,ID"
        )


def _racks_of(layout: ClusterLayout) -> str:
    names = sorted({rack for rack in layout.racks if rack is not None})
    if names:
        return f"it has racks {listed([repr(each) for each in names])}"
    if layout.capacities is None:
        return "--maps says nothing of racks: give the events with --events, or spu=ID,…"
    return "none of its SPUs has a rack: name SPUs with spu=ID,…"
