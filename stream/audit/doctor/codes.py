"""The codes of `spu-assigner doctor`: `codes.toml`, and which error of the job has which."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

if TYPE_CHECKING:
    from spu_assigner.core.base.errors import AssignerError

# By the name of the error's class, or of the nearest one that it derives from.
_OF_ERRORS: Final[Mapping[str, str]] = {
    "SettingsError": "D001",
    "AssignerError": "D003",
    "JavaError": "D101",
    "JarError": "D121",
    "UnreachableError": "D202",
    "ClientError": "D214",
    "AccessError": "D301",
    "TopicsError": "D302",
    "FolderError": "D402",
    "CheckpointDamagedError": "D404",
    "CheckpointFormatError": "D405",
    "ShardsChangedError": "D406",
    "RecoveryError": "D409",
    "CheckpointError": "D410",
    "CheckpointUnreachableError": "D412",
    "ForeignCheckpointError": "D501",
    "MarkerGapError": "D502",
    "DataLossError": "D504",
    "InputError": "D505",
    "MarkerFormatError": "D509",
    "PrefixTakenError": "D510",
    "OpenTransactionError": "D511",
    "MovesError": "D602",
    "UnhealthyError": "D605",
}
_OF_REFUSALS: Final[Mapping[str, str]] = {  # why a broker that listens does not answer
    "authority": "D203",
    "host": "D204",
    "expired": "D205",
    "no-tls": "D206",
    "tls": "D207",
    "client": "D208",
    "user": "D209",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class DoctorRule:
    """One kind of finding."""

    code: str
    name: str
    about: str  # what is found
    fix: str  # what to do
    severity: Literal["fault", "warning"] = "fault"


@cache
def rules() -> dict[str, DoctorRule]:
    """All, by code."""
    table = tomllib.loads(Path(__file__).with_name("codes.toml").read_text("utf-8"))
    return {code: DoctorRule(code=code, **fields) for code, fields in table.items()}


def code_of(error: AssignerError) -> str:
    """The code of what an error says."""
    if (refusal := getattr(error, "refusal", None)) is not None:
        return _OF_REFUSALS[refusal]
    return next(
        _OF_ERRORS[kind.__name__] for kind in type(error).__mro__ if kind.__name__ in _OF_ERRORS
    )
