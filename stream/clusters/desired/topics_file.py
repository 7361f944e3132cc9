"""The file of desired topics: YAML, read strictly, all faults reported at once with their lines.

    version: 1
    topics:
      - name: orders
        partitions: 12
        replication_factor: 3
        policy: balanced        # optional
        config:                 # optional: Kafka's settings, compared with the topic's
          retention.ms: 86400000
        constraints:            # optional: as in JSON Lines; {} for none
          require: ["tier in (ssd, nvme)"]

Rules: a name that is not in this schema is a fault, not a remark: a typing error must not be taken
for a topic that is as desired. Numbers are decimal. A name that YAML takes for something else
(`no`, `1.5`) is to be quoted. What a file says is data: no tag constructs anything.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import Any, Final

import yaml
from spu_assigner.core.base.constraints import NO_CONSTRAINTS, Constraints, constraint_faults
from spu_assigner.core.base.errors import AssignerError
from spu_assigner.core.base.events import Policy
from spu_assigner.core.base.limits import (
    KAFKA_OWN,
    PARTITIONS_MAX,
    REPLICATION_FACTOR_MAX,
    is_legal_name,
    name_fault,
)
from spu_assigner.schemas.errors import LineFault
from spu_assigner.schemas.json_lines.kinds import path_of
from spu_assigner.schemas.json_lines.lines import CONSTRAINTS
from spu_assigner.stream.clusters.desired.model import DesiredTopic
from spu_assigner.stream.common.plain_file import FileRefusedError, read_plain_file
from spu_assigner.stream.common.printable import printable

VERSION: Final = 1
SIZE_MAX: Final = 16 * 1024 * 1024  # a hundred thousand topics
TOPICS_MAX: Final = 100_000
DEPTH_MAX: Final = 16  # the schema's is 4; what is a little deeper is reported where it stands
VALUE_LENGTH_MAX: Final = 8_192  # of a setting
PARTS_MAX: Final = 1_000  # of the constraints of a topic; those that are granted have fewer
FAULTS_MAX: Final = 100  # that are reported; more help nobody
SHOWN_MAX: Final = 60  # characters of a value in a message
POLICIES: Final = tuple(policy for policy in Policy if policy is not Policy.MANUAL)

_LOADER: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # with libyaml ten times faster
_TAG: Final = "tag:yaml.org,2002:"
_WHOLE: Final = re.compile(r"0|[1-9][0-9]{0,17}")
_SETTING: Final = re.compile(r"[a-z0-9._-]{1,249}")
_TEXT_RULE: Final = "expected a text in quotes"


class DesiredFileError(AssignerError):
    """A file of desired topics is none: it says what was found and what was expected."""

    def __init__(self, faults: list[str]) -> None:
        self.faults = faults
        more = f"; {len(faults) - 1} more" if len(faults) > 1 else ""
        super().__init__(f"{faults[0]}{more}")


class UnreadableTopicsError(AssignerError):
    """A file of desired topics is not there, or is not read."""


def read_desired(path: Path) -> tuple[DesiredTopic, ...]:
    """The topics of a file, in its order.

    Raises:
        UnreadableTopicsError: it cannot be read.
        DesiredFileError: it is no file of desired topics.
    """
    try:
        data = read_plain_file(path, size_max=SIZE_MAX)
    except FileRefusedError as reason:
        raise UnreadableTopicsError(
            f"the file of desired topics {reason}; expected YAML with a list of `topics`: check "
            "its path"
        ) from reason
    return desired_topics(data, source=printable(str(path)))


def desired_topics(data: bytes, *, source: str) -> tuple[DesiredTopic, ...]:
    """The topics in the text of a file.

    Args:
        source: the file's name, for messages.

    Raises:
        DesiredFileError: it is no file of desired topics; it has all faults.
    """
    reading = _DesiredReading(source)
    try:
        _require_flat(data)
        root = yaml.compose(data, Loader=_LOADER)
    except yaml.MarkedYAMLError as reason:
        mark = reason.problem_mark or reason.context_mark
        line = 1 if mark is None else mark.line + 1
        problem = printable(str(reason.problem or reason.context))
        reading.fault(line, "", f"is no YAML: {problem}; expected a mapping with `topics`")
    except (yaml.YAMLError, ValueError, RecursionError) as reason:
        text = printable(" ".join(str(reason).split()))[:SHOWN_MAX]
        reading.fault(1, "", f"is no YAML: {text}; expected a mapping with `topics`")
    else:
        reading.take(root)
    if reading.faults:
        raise DesiredFileError(reading.faults)
    return tuple(reading.topics)


def _require_flat(data: bytes) -> None:
    """Return if a text is no deeper than the schema needs; libyaml's composer has no limit.

    Raises:
        ValueError: it is.
        yaml.YAMLError: it is no YAML.
    """
    depth = 0
    for event in yaml.parse(data, Loader=_LOADER):
        depth += isinstance(event, yaml.CollectionStartEvent)
        depth -= isinstance(event, yaml.CollectionEndEvent)
        if depth > DEPTH_MAX:
            raise ValueError(f"it is nested more than {DEPTH_MAX} deep")


class _DesiredReading:
    """Nodes of YAML become topics; what they cannot be is noted."""

    def __init__(self, source: str) -> None:
        self.topics: list[DesiredTopic] = []
        self.faults: list[str] = []
        self._source = source
        self._lines: dict[str, int] = {}  # of each name

    def fault(self, line: int, path: str, text: str) -> None:
        """Note a fault; after FAULTS_MAX no more."""
        where = f"{self._source}:{line}: " + (f"{path}: " if path else "")
        if len(self.faults) < FAULTS_MAX:
            self.faults.append(where + text)

    def take(self, root: Any) -> None:
        """Read the whole file; None: it is empty."""
        if root is None:
            self.fault(1, "", "is empty; expected a mapping with `topics`")
            return
        members = self._members(root, "", required=("topics",), optional=("version",))
        if (version := members.get("version")) is not None:
            self._number(version, "version", least=VERSION, most=VERSION)
        if (topics := members.get("topics")) is None:
            return
        if not isinstance(topics, yaml.SequenceNode):
            self._wrong(topics, "topics", "expected a list of topics")
            return
        if len(topics.value) > TOPICS_MAX:
            count = len(topics.value)
            self.fault(
                _line(topics), "topics", f"has {count} topics; expected at most {TOPICS_MAX}"
            )
            return
        for number, node in enumerate(topics.value):
            if (topic := self._topic(node, f"topics[{number}]")) is not None:
                self.topics.append(topic)

    def _topic(self, node: Any, path: str) -> DesiredTopic | None:
        before = len(self.faults)
        members = self._members(
            node,
            path,
            required=("name", "partitions", "replication_factor"),
            optional=("policy", "config", "constraints"),
        )
        name = self._optional(members, "name", path, self._name) or ""
        partitions = self._optional(members, "partitions", path, self._partitions)
        factor = self._optional(members, "replication_factor", path, self._factor)
        policy = self._optional(members, "policy", path, self._policy)
        config = self._optional(members, "config", path, self._config) or {}
        rules = members.get("constraints")
        constraints = None if rules is None else self._constraints(rules, path, name, policy)
        if len(self.faults) > before or partitions is None or factor is None:
            return None
        return DesiredTopic(
            name=name,
            partitions=partitions,
            replication_factor=factor,
            policy=policy,
            config=config,
            constraints=constraints,
        )

    def _optional(
        self, members: Mapping[str, Any], key: str, path: str, read: Callable[[Any, str], Any]
    ) -> Any:
        return read(members[key], f"{path}.{key}") if key in members else None

    def _members(
        self, node: Any, path: str, *, required: tuple[str, ...], optional: tuple[str, ...]
    ) -> dict[str, Any]:
        """The members of a mapping, by name."""
        known = (*required, *optional)
        rule = f"expected a mapping with {', '.join(known)}"
        if not isinstance(node, yaml.MappingNode):
            self._wrong(node, path, rule)
            return {}
        found: dict[str, Any] = {}
        for key, value in node.value:
            name = key.value if isinstance(key, yaml.ScalarNode) else None
            if name not in known:
                shown = _shown(key)
                self.fault(_line(key), path, f"has {shown}; {rule}")
            elif name in found:
                self.fault(_line(key), path, f"has `{name}` twice; expected it once")
            else:
                found[name] = value
        for name in required:
            if name not in found:
                self.fault(_line(node), path, f"has no `{name}`; {rule}")
        return found

    def _name(self, node: Any, path: str) -> str | None:
        name = self._text(node, path)
        if name is None:
            return None
        if not is_legal_name(name):
            rule = "expected 1 to 249 of a-z, A-Z, 0-9, `.`, `_`, `-`, as Kafka's rule for topics"
            self._wrong(node, path, f"{rule}{name_fault(name)}")
        elif name.startswith(KAFKA_OWN):
            self._wrong(node, path, f"expected a name without the `{KAFKA_OWN}` of Kafka's own")
        elif name in self._lines:
            line = self._lines[name]
            self._wrong(node, path, f"which line {line} has; expected each name once")
        else:
            self._lines[name] = _line(node)
            return name
        return None

    def _partitions(self, node: Any, path: str) -> int | None:
        return self._number(node, path, least=1, most=PARTITIONS_MAX)

    def _factor(self, node: Any, path: str) -> int | None:
        return self._number(node, path, least=1, most=REPLICATION_FACTOR_MAX)

    def _policy(self, node: Any, path: str) -> Policy | None:
        text = self._text(node, path)
        if text is None or text in POLICIES:
            return None if text is None else Policy(text)
        rule = f"expected one of {', '.join(POLICIES)}"
        if text == Policy.MANUAL:
            rule += "; manual lists are sent with `spu-assigner produce topic-create`"
        self._wrong(node, path, rule)
        return None

    def _config(self, node: Any, path: str) -> dict[str, str] | None:
        if not isinstance(node, yaml.MappingNode):
            self._wrong(node, path, "expected a mapping of Kafka's settings to values")
            return None
        found: dict[str, str] = {}
        for key, value in node.value:
            name = key.value if isinstance(key, yaml.ScalarNode) else ""
            if not _SETTING.fullmatch(name):
                self._wrong(key, path, "expected the name of a setting, as `retention.ms`")
            elif name in found:
                self.fault(_line(key), path, f"has `{name}` twice; expected it once")
            elif not isinstance(value, yaml.ScalarNode) or value.tag == f"{_TAG}null":
                self._wrong(value, f"{path}.{name}", "expected one value")
            elif len(value.value) > VALUE_LENGTH_MAX:
                size = len(value.value)
                self.fault(
                    _line(value),
                    f"{path}.{name}",
                    f"has {size} characters; expected at most {VALUE_LENGTH_MAX}",
                )
            else:
                is_truth = value.tag == f"{_TAG}bool"
                found[name] = value.value.lower() if is_truth else value.value
        return found

    def _constraints(
        self, node: Any, path: str, topic: str, policy: Policy | None
    ) -> Constraints | None:
        before = len(self.faults)
        if not _is_small(node):
            self.fault(
                _line(node), path, f"has constraints of more than {PARTS_MAX} parts, or deep ones"
            )
            return None

        def note(_: LineFault, message: str, field: str) -> None:
            self.fault(_line_of(node, path_of(field)[1:]), path, message)

        found: Constraints | None = CONSTRAINTS.read("constraints", self._plain(node, path), note)
        if len(self.faults) > before or found is None:
            return None
        fault = next(constraint_faults(found, topic=topic), None)
        if fault is not None:
            self.fault(_line(node), path, fault)
        elif found != NO_CONSTRAINTS and policy not in (None, Policy.BALANCED):
            self.fault(_line(node), path, f"has constraints, which are for {Policy.BALANCED} only")
        return found

    def _plain(self, node: Any, path: str) -> Any:
        """What a small node holds, as JSON would; what is no number and not null is a text."""
        if isinstance(node, yaml.SequenceNode):
            return [self._plain(each, path) for each in node.value]
        if not isinstance(node, yaml.MappingNode):
            kind = node.tag.removeprefix(_TAG)
            is_whole = kind == "int" and _WHOLE.fullmatch(node.value.removeprefix("-"))
            return None if kind == "null" else int(node.value) if is_whole else node.value
        members: dict[str, Any] = {}
        for key, value in node.value:
            name = key.value if isinstance(key, yaml.ScalarNode) else _shown(key)
            if name in members:
                self.fault(_line(key), path, f"has `{printable(name)}` twice; expected it once")
            members[name] = self._plain(value, path)
        return members

    def _text(self, node: Any, path: str) -> str | None:
        if isinstance(node, yaml.ScalarNode) and node.tag == f"{_TAG}str":
            return str(node.value)
        self._wrong(node, path, _TEXT_RULE)
        return None

    def _number(self, node: Any, path: str, *, least: int, most: int) -> int | None:
        is_whole = isinstance(node, yaml.ScalarNode) and node.tag == f"{_TAG}int"
        if is_whole and _WHOLE.fullmatch(node.value) and least <= int(node.value) <= most:
            return int(node.value)
        span = f"{least}" if least == most else f"a whole number from {least} to {most}"
        self._wrong(node, path, f"expected {span}")
        return None

    def _wrong(self, node: Any, path: str, rule: str) -> None:
        self.fault(_line(node), path, f"found {_shown(node)}, {rule}")


def _is_small(node: Any) -> bool:
    """Whether it has few parts and is flat, with all that aliases stand for: even for itself."""
    level, parts = [node], 0
    for _ in range(DEPTH_MAX):
        level = list(islice(chain.from_iterable(map(_children, level)), PARTS_MAX + 1))
        parts += len(level)
        if parts > PARTS_MAX:
            return False
    return not level


def _children(node: Any) -> Iterable[Any]:
    if isinstance(node, yaml.MappingNode):
        return (value for _, value in node.value)
    return node.value if isinstance(node, yaml.SequenceNode) else ()


def _line_of(node: Any, path: Sequence[int | str]) -> int:
    """The line of what a path leads to, as far as it leads."""
    for key in path:
        if isinstance(node, yaml.MappingNode):
            found = next((value for name, value in node.value if name.value == key), None)
        else:
            found = node.value[key] if isinstance(node, yaml.SequenceNode) else None
        if found is None:
            break
        node = found
    return _line(node)


def _line(node: Any) -> int:
    return int(node.start_mark.line) + 1


def _shown(node: Any) -> str:
    if isinstance(node, yaml.MappingNode):
        return "a mapping"
    if isinstance(node, yaml.SequenceNode):
        return "a list"
    kind = node.tag.removeprefix(_TAG)
    if kind == "null":
        return "nothing"
    text = printable(node.value)
    shown = text if len(text) <= SHOWN_MAX else f"{text[:SHOWN_MAX]}…"
    return f"{shown!r}" if kind == "str" else f"{shown} ({kind})"
