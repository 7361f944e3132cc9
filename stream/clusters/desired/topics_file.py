"""The file of desired topics: YAML, read strictly, all faults reported at once with their lines.

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
from pathlib import Path
from typing import Any, Final, NamedTuple

import yaml
from spu_assigner.core.base.errors import AssignerError, InvalidEventError
from spu_assigner.core.base.events import TopicCreate
from spu_assigner.schemas.errors import LineFault
from spu_assigner.schemas.json_lines.json_object import quoted
from spu_assigner.schemas.json_lines.kinds import members_and_required
from spu_assigner.stream.common.plain_file import FileRefusedError, read_plain_file
from spu_assigner.stream.common.printable import printable

SIZE_MAX: Final = 16 * 1024 * 1024  # a hundred thousand topics
DEPTH_MAX: Final = 16  # the schema's is 6; what is a little deeper is reported where it stands
FAULTS_MAX: Final = 100  # that are reported; more help nobody
REQUIRED: Final = ("name", "partitions", "replication_factor")

_KINDS: Final = members_and_required(TopicCreate)[0]
_FIELDS: Final = {
    "name": _KINDS["topic"],
    **{name: _KINDS[name] for name in (*REQUIRED[1:], "policy", "constraints")},
}
_LOADER: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # with libyaml ten times faster
_TAG: Final = "tag:yaml.org,2002:"
_WHOLE: Final = re.compile(r"-?(0|[1-9][0-9]{0,17})")
_EXPECTED: Final = "expected a mapping with `topics`"


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
    reading = _DesiredReading(source, cluster_id)
    try:
        _require_plain(data)
        reading.take(yaml.compose(data, Loader=_LOADER))
    except yaml.MarkedYAMLError as reason:
        mark = reason.problem_mark or reason.context_mark
        problem = printable(str(reason.problem or reason.context))
        reading.fault(1 if mark is None else mark.line + 1, f"is no YAML: {problem}; {_EXPECTED}")
    except (yaml.YAMLError, ValueError) as reason:
        reading.fault(1, f"is no YAML: {printable(' '.join(str(reason).split()))[:80]}")
    if reading.faults:
        raise DesiredFileError(reading.faults)
    return tuple(reading.topics.values())


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


class _DesiredReading:
    """Nodes of YAML become topics; what they cannot be is noted."""

    def __init__(self, source: str, cluster_id: str) -> None:
        self.topics: dict[str, DesiredTopic] = {}
        self.faults: list[str] = []
        self._source = source
        self._cluster_id = cluster_id
        self._lines: dict[str, int] = {}  # of what is there, by its path

    def fault(self, line: int, text: str) -> None:
        self.faults.append(f"{self._source}:{line}: {text}")

    def _note(self, _: LineFault, message: str, path: str) -> None:
        while path not in self._lines:  # What is absent is noted where it would stand.
            path = path.rpartition(".")[0]
        self.fault(self._lines[path], printable(message))

    def take(self, root: Any) -> None:
        """Read the whole file; None: it is empty."""
        members = None if root is None else self._value(root, "")
        if not isinstance(members, dict):
            return self.fault(1, f"the file is {quoted(members)}; {_EXPECTED}")
        for name in members.keys() - {"version", "topics"}:
            self.fault(self._lines[name], f"unknown field {quoted(name)}; {_EXPECTED}")
        if (version := members.get("version", 1)) != 1:
            self.fault(self._lines["version"], f"version is {quoted(version)}; expected 1")
        topics = members.get("topics")
        if not isinstance(topics, list):
            line = self._lines.get("topics", 1)
            return self.fault(line, f"topics is {quoted(topics)}; expected a list of topics")
        for number, topic in enumerate(topics):
            self._take_topic(topic, f"topics[{number}]")
        return None

    def _take_topic(self, members: Any, path: str) -> None:
        line, before, values = self._lines[path], len(self.faults), dict[str, Any]()
        has = f"a topic has {', '.join(_FIELDS)}"
        if not isinstance(members, dict):
            return self.fault(line, f"{path} is {quoted(members)}; {has}")
        for name, value in members.items():
            if name in _FIELDS:
                values[name] = _FIELDS[name].read(f"{path}.{name}", value, self._note)
            else:
                said = f"{path}: unknown field {quoted(name)}; {has}"
                self.fault(self._lines[f"{path}.{name}"], said)
        for name in REQUIRED:
            if name not in members:
                self.fault(line, f"{path}: {name} is absent; {has}")
        if len(self.faults) > before:
            return None
        topic = values.pop("name")
        if (earlier := self.topics.get(topic)) is not None:
            return self.fault(line, f"{path}.name is {topic}, as of line {earlier.line}")
        try:
            create = TopicCreate(
                event_id="desired", cluster_id=self._cluster_id, topic=topic, **values
            )
        except InvalidEventError as fault:
            return self.fault(line, f"{path}: {printable(str(fault))}")
        self.topics[topic] = DesiredTopic(line, create)
        return None

    def _value(self, node: Any, path: str) -> Any:
        """What a node holds, as JSON would; what is no decimal number is a text."""
        self._lines[path] = node.start_mark.line + 1
        if isinstance(node, yaml.SequenceNode):
            return [self._value(each, f"{path}[{n}]") for n, each in enumerate(node.value)]
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
                self.fault(key.start_mark.line + 1, f"{quoted(name)} stands twice; expected once")
            members[name] = self._value(value, f"{path}.{name}" if path else name)
        return members
