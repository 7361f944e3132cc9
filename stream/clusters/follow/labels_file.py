"""The file of `follow --labels`: YAML or JSON, by broker id what its SPU has, read strictly.

Such as `4: {labels: {tier: ssd}, taints: [{key: pool, value: pay, effect: no_leaders}]}`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from spu_assigner.core.base.constraints import Taint
from spu_assigner.core.base.events import SpuJoined
from spu_assigner.core.base.typed_fields import TypedFields
from spu_assigner.schemas.errors import LineFault
from spu_assigner.schemas.json_lines.json_object import quoted
from spu_assigner.schemas.json_lines.kinds import Note, reader_of
from spu_assigner.stream.client.announced import LABEL, LabelsOfBrokers, entries_of, refusal
from spu_assigner.stream.clusters.desired.topics_file import strict_yaml
from spu_assigner.stream.common.plain_file import FileRefusedError, read_plain_file

SIZE_MAX: Final = 1024 * 1024  # it is read at each look
_EXPECTED: Final = "expected an object for each broker id, such as 4: {labels: {tier: ssd}}"


class _Spu(TypedFields, frozen=True):
    labels: Mapping[str, str] | None = None
    taints: tuple[Taint, ...] = ()


_SPU: Final = reader_of(_Spu)


def read_labels(path: Path) -> tuple[LabelsOfBrokers, list[str]]:
    """The labels and taints of a file, and its faults."""
    try:
        data = read_plain_file(path, size_max=SIZE_MAX)
    except FileRefusedError as reason:
        return {}, [f"the file of labels {reason}; {_EXPECTED}"]
    return strict_yaml(data, _labels_of_brokers, source=str(path))


def _labels_of_brokers(_: str, value: Any, note: Note) -> LabelsOfBrokers:
    found = {}
    if type(value) is not dict:
        note(LineFault.WRONG_VALUE, f"is {quoted(value)}; {_EXPECTED}", "")
        return {}
    for broker, members in value.items():
        if not re.fullmatch("0|[1-9][0-9]{0,9}", broker):
            note(LineFault.WRONG_VALUE, f"has {quoted(broker)}; {_EXPECTED}", "")
        elif (spu := _SPU(broker, members, note)) is not None:
            given = {"labels": spu.labels, "taints": spu.taints}
            found[int(broker)] = entries_of(**given)
            join = SpuJoined(event_id="x", cluster_id="x", spu_id=int(broker), **given)
            fault = f"only follow sets {LABEL}" if LABEL in found[int(broker)] else refusal(join)
            if fault is not None:
                note(LineFault.WRONG_VALUE, f"{broker}: {fault}", broker)
    return found
