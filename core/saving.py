"""A state as a text, and the state of such a text.

The text is one JSON object: its form, the cluster, and the parts of the state as records
(`parts.parts_of`), each with the name of its class. What is read is checked: types, then what the
parts say of each other.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final, get_args

from spu_assigner.core.base.entries import Entry
from spu_assigner.core.base.errors import InvalidEventError, InvalidStateError
from spu_assigner.core.base.limits import SPU_ID_MAX
from spu_assigner.core.base.plain_form import as_dict
from spu_assigner.core.base.records import ReplicaMap
from spu_assigner.core.base.replica_lists import ReplicaLists
from spu_assigner.core.base.typed_fields import built, taken_as
from spu_assigner.core.state.cluster_state import ClusterState
from spu_assigner.core.state.consistency_check import faults
from spu_assigner.core.state.parts import parts_of

FORM: Final = "spu-assigner-state-1"
_Part = ReplicaMap | Entry
_CLASSES: Final[dict[str, type[_Part]]] = {cls.__name__: cls for cls in get_args(_Part)}


def state_to_json(state: ClusterState) -> str:
    """The state as a text, on one line; equal states give equal texts. O(replicas)."""
    parts = [{"type": type(part).__name__, **as_dict(part)} for part in parts_of(state)]
    whole = {"form": FORM, "cluster_id": state.cluster_id, "parts": parts}
    return json.dumps(whole, separators=(",", ":"))


def state_from_json(text: str | bytes) -> ClusterState:
    """The state that `state_to_json` wrote: it decides as that one would have.

    Raises:
        InvalidStateError: the text is no such state, or only a part of one.
    """
    try:
        whole = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidStateError(f"the text is no JSON ({error})") from error
    if not isinstance(whole, dict) or whole.get("form") != FORM:
        form = whole.get("form") if isinstance(whole, dict) else None
        raise InvalidStateError(f"the form is {form!r}; expected {FORM!r}")
    cluster_id, parts = whole.get("cluster_id"), whole.get("parts")
    if not isinstance(cluster_id, str) or not isinstance(parts, list):
        raise InvalidStateError("cluster_id or parts are absent; expected a text and a list")
    state = ClusterState(cluster_id)
    for at, members in enumerate(parts):
        try:
            part = _part(members, f"parts[{at}]")
        except InvalidEventError as error:
            raise InvalidStateError(str(error)) from error
        if part.cluster_id != cluster_id:
            found = f"parts[{at}] is of cluster {part.cluster_id!r}"
            raise InvalidStateError(f"{found}; expected {cluster_id!r}")
        state.restore(part)
    fault = next(faults(state), None)
    if fault is not None:
        raise InvalidStateError(fault)
    return state


def _part(members: Any, path: str) -> _Part:
    name = members.get("type") if isinstance(members, Mapping) else None
    if name not in _CLASSES:
        expected = f"an object with a type, one of {', '.join(_CLASSES)}"
        raise InvalidEventError(field=path, value=members, expected=expected)
    given = {member: value for member, value in members.items() if member != "type"}
    if name == "ReplicaMap":
        for member in ("replicas", "cores"):
            if given.get(member) is not None:
                given[member] = _lists(f"{path}.{member}", given[member])
    return built(_CLASSES[name], given, path=path)


def _lists(field: str, value: object) -> ReplicaLists:
    lists = taken_as(tuple[tuple[int, ...], ...], field, value)
    if not lists or not all(each and 0 <= min(each) <= max(each) <= SPU_ID_MAX for each in lists):
        expected = f"lists of 0 to {SPU_ID_MAX}, none of them empty"
        raise InvalidEventError(field=field, value=value, expected=expected)
    return ReplicaLists.of_lists([list(each) for each in lists])
