"""What `--fail` means: SPUs or racks by name, or all cases of a kind.

rack=a      rack=a,b      spu=3      spu=3,4      any-1-spu      any-1-rack
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from spu_assigner.core.base.errors import AssignerError
from spu_assigner.core.base.limits import SPU_ID_MAX
from spu_assigner.stream.common.printable import listed

if TYPE_CHECKING:
    from spu_assigner.core.whatif.failure import FailureAnalysis

EXPECTED: Final = "rack=NAME[,…], spu=ID[,…], any-1-rack or any-1-spu"


class AnyFailure(StrEnum):
    """All cases of a kind."""

    RACK = "any-1-rack"
    SPU = "any-1-spu"


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


def failing_ids(spec: FailureSpec, analysis: FailureAnalysis) -> list[int]:
    """The ids of the SPUs that a failure names, ascending; those that are offline already too.

    Raises:
        FailureUnknownError: the cluster has no such SPU or rack; it says what it has.
    """
    known = analysis.ids.tolist()
    if spec.racks is None:
        unknown = sorted({*spec.spu_ids} - {*known})
        if unknown:
            raise FailureUnknownError(
                f"no SPU {listed(unknown)} in cluster {analysis.cluster_id!r}; it has SPUs "
                f"{listed(known)}"
            )
        return list(spec.spu_ids)
    wanted = [spec.racks] if spec.racks in analysis.racks else spec.racks.split(",")
    missing = [repr(each) for each in wanted if each not in analysis.racks]
    if missing:
        raise FailureUnknownError(
            f"no rack {listed(missing)} in cluster {analysis.cluster_id!r}; {racks_known(analysis)}"
        )
    return [spu for spu, rack in zip(known, analysis.racks, strict=True) if rack in wanted]


def racks_known(analysis: FailureAnalysis) -> str:
    """The racks of the cluster, or what to name where there are none."""
    names = sorted({repr(rack) for rack in analysis.racks if rack is not None})
    if names:
        return f"it has racks {listed(names)}"
    return "none of its SPUs has a rack: name SPUs with spu=ID,…"
