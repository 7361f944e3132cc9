"""The file of desired topics: YAML, read strictly; faults are reported together.

    version: 1
    topics:
      - name: orders
        partitions: 12
        replication_factor: 3
        policy: balanced        # optional
        constraints:            # optional; {} for none
          require: ["tier in (ssd, nvme)"]
        config:                 # optional: settings of the topic in Kafka, for `--create`
          retention.ms: 86400000

A topic of the file is a `TopicCreate`: its fields are read as those of a line of JSON, and the core
decides whether their values can be met. Which settings there are, Kafka decides.

Rules: a name that is not in this schema is a fault, not a remark: a typing error must not be taken
for a topic that is as desired. Numbers are decimal; numbers, `no`, `yes` and `null` are names only
in quotes. What a file says is data: no tag constructs anything, and nothing stands for another
part.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import yaml
from spu_assigner.core.base.constraints import Constraints
from spu_assigner.core.base.errors import AssignerError, InvalidEventError
from spu_assigner.core.base.events import Policy, TopicCreate
from spu_assigner.core.base.typed_fields import TypedFields
from spu_assigner.schemas.errors import LineFault
from spu_assigner.schemas.json_lines.kinds import FieldReader, reader_of
from spu_assigner.stream.common.plain_file import FileRefusedError, read_plain_file
from spu_assigner.stream.common.printable import printable

SIZE_MAX: Final = 16 * 1024 * 1024  # a hundred thousand topics
DEPTH_MAX: Final = 16  # the schema's is 6
_WRITTEN: Final = tuple(f"tag:yaml.org,2002:{kind}" for kind in ("int", "float", "bool"))
_WHOLE: Final = re.compile(r"-?(0|[1-9][0-9]{0,17})")
FAULTS_MAX: Final = 100  # that are reported; more help nobody
_LOADER: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # with libyaml ten times faster


class _Topic(TypedFields, frozen=True):
    name: str
    partitions: int
    replication_factor: int
    policy: Policy | None = None
    constraints: Constraints | None = None
    config: Mapping[str, str] | None = None


class _File(TypedFields, frozen=True):
    topics: tuple[_Topic, ...]
    version: int = 1


_FILE: Final = reader_of(_File)

DesiredTopics = dict[TopicCreate, Mapping[str, str]]  # with their settings, as Kafka takes them


class DesiredFileError(AssignerError):
    """A file of desired topics is none: each fault says what was found and what was expected."""

    def __init__(self, faults: list[str]) -> None:
        self.faults = faults[:FAULTS_MAX]
        super().__init__("\n".join(self.faults))


def read_desired(path: Path, cluster_id: str) -> DesiredTopics:
    """The topics of a file, in its order."""
    try:
        data = read_plain_file(path, size_max=SIZE_MAX)
    except FileRefusedError as reason:
        raise DesiredFileError(
            [f"the file of desired topics {reason}; expected YAML with a list of `topics`"]
        ) from reason
    return desired_topics(data, cluster_id, source=printable(str(path)))


def desired_topics(data: bytes, cluster_id: str, *, source: str) -> DesiredTopics:
    """The topics in the text of a file, as new ones.

    Constraints that are empty are to have none, None: any.
    """
    topics: dict[str, tuple[TopicCreate, Mapping[str, str]]] = {}
    found, faults = strict_yaml(data, _FILE, source=source)

    def fault(text: str) -> None:
        faults.append(f"{source}: {printable(text)}")

    if not faults and found.version != 1:
        fault(f"version is {found.version}; expected 1")
    for number, topic in enumerate(() if faults else found.topics):
        if topic.name in topics:
            fault(f"topics[{number}].name is {topic.name}, as of another; expected each once")
            continue
        try:
            create = TopicCreate(
                event_id="desired",
                cluster_id=cluster_id,
                topic=topic.name,
                partitions=topic.partitions,
                replication_factor=topic.replication_factor,
                policy=topic.policy,
                constraints=topic.constraints,
            )
            topics[topic.name] = create, topic.config or {}
        except InvalidEventError as reason:
            fault(f"topics[{number}]: {reason}")
    if faults:
        raise DesiredFileError(faults)
    return dict(topics.values())


def strict_yaml(data: bytes, read: FieldReader, *, source: str) -> tuple[Any, list[str]]:
    """What the text of a file holds, as `read` takes it, and its faults."""
    faults: list[str] = []

    def note(_: LineFault, text: str, path: str) -> None:
        faults.append(f"{source}: {printable(text.lstrip('. '))}")

    try:
        _require_plain(data)
        # As JSON has it: a date is a text, and so is each name.
        value = json.loads(json.dumps(yaml.load(data, Loader=_StrictLoader), default=str))
        return read("", value, note), faults
    except (yaml.YAMLError, ValueError, TypeError) as reason:
        note(LineFault.WRONG_VALUE, f"is no YAML: {' '.join(str(reason).split())[:200]}", "")
    return None, faults


def _require_plain(data: bytes) -> None:
    """Return if a text is no deeper than the schema needs, and has no references; else raise.

    libyaml's composer has no limit.
    """
    depth = 0
    for event in yaml.parse(data, Loader=_LOADER):
        depth += isinstance(event, yaml.CollectionStartEvent)
        depth -= isinstance(event, yaml.CollectionEndEvent)
        if depth > DEPTH_MAX:
            raise ValueError(f"it is nested more than {DEPTH_MAX} deep")
        if isinstance(event, yaml.AliasEvent):
            line = event.start_mark.line + 1
            raise ValueError(f"line {line} refers to another part by `*`; write it out")


class _StrictLoader(_LOADER):  # type: ignore[misc, valid-type]  # libyaml's, where it is there
    """Takes each name of an object once."""

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        for name, count in Counter(str(key.value) for key, _ in node.value).items():
            if count > 1:
                raise ValueError(f"line {node.start_mark.line + 1}: {name!r} stands twice")
        for key, value in node.value:
            if key.value == "config" and isinstance(value, yaml.MappingNode):
                for _, each in value.value:  # Kafka takes texts: numbers and true as written.
                    if each.tag in _WRITTEN:
                        each.tag = "tag:yaml.org,2002:str"
        found: dict[Any, Any] = super().construct_mapping(node, deep)
        return found


def _decimal(_: Any, node: Any) -> int | str:
    """A decimal number; any other is a text, such as 0x10, 010 and 1:30."""
    return int(node.value) if _WHOLE.fullmatch(node.value) else str(node.value)


_StrictLoader.add_constructor("tag:yaml.org,2002:int", _decimal)
