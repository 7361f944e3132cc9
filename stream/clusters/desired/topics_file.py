"""The file of desired topics: YAML, read strictly; faults are reported together, with their lines.

    version: 1
    topics:
      - name: orders
        partitions: 12
        replication_factor: 3
        policy: balanced        # optional
        constraints:            # optional; {} for none
          require: ["tier in (ssd, nvme)"]

A topic of the file is a `TopicCreate`: its fields are read as those of a line of JSON, and the core
decides whether their values can be met.

Rules: a name that is not in this schema is a fault, not a remark: a typing error must not be taken
for a topic that is as desired. Numbers are decimal; numbers, `no`, `yes` and `null` are names only
in quotes. What a file says is data: no tag constructs anything, and nothing stands for another
part.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NamedTuple

import yaml
from spu_assigner.core.base.constraints import Constraints
from spu_assigner.core.base.errors import AssignerError, InvalidEventError
from spu_assigner.core.base.events import Policy, TopicCreate
from spu_assigner.core.base.typed_fields import TypedFields
from spu_assigner.schemas.errors import LineFault
from spu_assigner.schemas.json_lines.json_object import quoted
from spu_assigner.schemas.json_lines.kinds import reader_of
from spu_assigner.stream.common.plain_file import FileRefusedError, read_plain_file
from spu_assigner.stream.common.printable import printable

SIZE_MAX: Final = 16 * 1024 * 1024  # a hundred thousand topics
DEPTH_MAX: Final = 16  # the schema's is 6; what is a little deeper is reported where it stands
FAULTS_MAX: Final = 100  # that are reported; more help nobody
_LOADER: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # with libyaml ten times faster
_TAG: Final = "tag:yaml.org,2002:"
_WHOLE: Final = re.compile(r"-?(0|[1-9][0-9]{0,17})")


class _Topic(TypedFields, frozen=True):
    name: str
    partitions: int
    replication_factor: int
    policy: Policy | None = None
    constraints: Constraints | None = None


class _File(TypedFields, frozen=True):
    topics: tuple[_Topic, ...]
    version: int = 1


_FILE: Final = reader_of(_File)


class DesiredTopic(NamedTuple):
    """One topic of the file."""

    line: int
    create: TopicCreate
    """As a new topic; constraints that are empty are to have none, None: any."""


class DesiredFileError(AssignerError):
    """A file of desired topics is none: each fault says what was found and what was expected."""

    def __init__(self, faults: list[str]) -> None:
        self.faults = faults[:FAULTS_MAX]
        super().__init__("\n".join(self.faults))


def read_desired(path: Path, cluster_id: str) -> tuple[DesiredTopic, ...]:
    """The topics of a file, in its order.

    Raises:
        DesiredFileError: it cannot be read, or is no file of desired topics.
    """
    try:
        data = read_plain_file(path, size_max=SIZE_MAX)
    except FileRefusedError as reason:
        raise DesiredFileError(
            [f"the file of desired topics {reason}; expected YAML with a list of `topics`"]
        ) from reason
    return desired_topics(data, cluster_id, source=printable(str(path)))


def desired_topics(data: bytes, cluster_id: str, *, source: str) -> tuple[DesiredTopic, ...]:
    """The topics in the text of a file.

    Args:
        source: the file's name, for messages.

    Raises:
        DesiredFileError: it is no file of desired topics; it has all faults.
    """
    lines, faults = {"": 1}, list[str]()  # by the path of what is there

    def fault(line: int, text: str) -> None:
        faults.append(f"{source}:{line}: {printable(text.lstrip('. '))}")

    def note(_: LineFault, text: str, path: str) -> None:
        fault(lines[path], text)

    value, topics = None, dict[str, DesiredTopic]()
    try:
        _require_plain(data)
        root: Any = yaml.compose(data, Loader=_LOADER)
        value = None if root is None else _value(root, "", lines, fault)
    except yaml.MarkedYAMLError as reason:
        mark = reason.problem_mark or reason.context_mark
        problem = str(reason.problem or reason.context)
        fault(1 if mark is None else mark.line + 1, f"is no YAML: {problem}")
    except (yaml.YAMLError, ValueError) as reason:
        fault(1, f"is no YAML: {' '.join(str(reason).split())[:80]}")
    found: Any = None if faults else _FILE("", value, note)
    if not faults and found.version != 1:
        fault(lines[".version"], f"version is {found.version}; expected 1")
    for number, topic in enumerate(() if faults else found.topics):
        path = f".topics[{number}]"
        line = lines[path]
        if topic.name in topics:
            fault(line, f"{path}.name is {topic.name}, as of line {topics[topic.name].line}")
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
        except InvalidEventError as reason:
            fault(line, f"{path}: {reason}")
        else:
            topics[topic.name] = DesiredTopic(line, create)
    if faults:
        raise DesiredFileError(faults)
    return tuple(topics.values())


def _require_plain(data: bytes) -> None:
    """Return if a text is no deeper than the schema needs, and without references.

    Raises:
        ValueError, yaml.YAMLError: it is not; libyaml's composer has no limit.
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


def _value(node: Any, path: str, lines: dict[str, int], fault: Callable[[int, str], None]) -> Any:
    """What a node holds, as JSON would; what is no decimal number is a text.

    Args:
        lines: of what is there, by its path; those of the node are added.
    """
    lines[path] = node.start_mark.line + 1
    if isinstance(node, yaml.SequenceNode):
        return [_value(each, f"{path}[{n}]", lines, fault) for n, each in enumerate(node.value)]
    if isinstance(node, yaml.ScalarNode):
        match node.tag.removeprefix(_TAG):
            case "null":
                return None
            case "bool":
                return node.value.lower() in ("yes", "true", "on")
            case "int" if _WHOLE.fullmatch(node.value):
                return int(node.value)
            case _:
                return node.value
    members: dict[str, Any] = {}
    for key, value in node.value:
        name = str(key.value)
        if name in members:
            fault(key.start_mark.line + 1, f"{quoted(name)} stands twice; expected once")
        members[name] = _value(value, f"{path}.{name}", lines, fault)
    return members
