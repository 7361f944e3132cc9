"""Every setting of the job: its field, with default, limits and meaning.

A setting is looked for in the flags, then in the environment, then in a TOML file, and has a
default at last; a secret only in the environment and in a file of its own. What a user sets is
read here alone; what the machine offers (caches, Java, proxies) where it is used.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Final

from spu_assigner.core.base.errors import bounded_repr
from spu_assigner.core.base.events import DEFAULT_POLICY, Policy
from spu_assigner.core.base.limits import is_legal_name
from spu_assigner.schemas.messages.wire import Wire
from spu_assigner.stream.common.plain_file import FileRefusedError, read_plain_file
from spu_assigner.stream.common.printable import printable
from spu_assigner.stream.kafka.config.connection import Connection
from spu_assigner.stream.kafka.config.secret import read_secret
from spu_assigner.stream.kafka.config.security import Security, check
from spu_assigner.stream.kafka.config.setting_spec import (
    SettingsError,
    Spec,
    choice,
    integer,
    matching,
    or_empty,
    satisfying,
    setting,
    specs_of,
)

__all__ = ["SPECS", "Settings", "SettingsError", "Spec"]

FILE_VARIABLE: Final = "SPU_ASSIGNER_CONFIG"
TARGET_SERVERS_VARIABLE: Final = "SPU_ASSIGNER_TARGET_BOOTSTRAP_SERVERS"
TARGET_FILE_VARIABLE: Final = "SPU_ASSIGNER_TARGET_CONFIG"
SHARDS_MAX: Final = 1_000  # each is a task of every batch and a state store of its own
TOPIC_EVENTS_PER_BATCH_MAX: Final = 1_000_000  # a shard holds its part of a batch in memory
PORT_MAX: Final = 65_535
FILE_SIZE_MAX: Final = 64 * 1024  # a name and a value a setting; more is another file
# These have an option of `run`, too; the others seldom change between two runs.
FLAGS: Final = (
    *("bootstrap_servers", "topic_prefix", "checkpoint", "shards", "default_policy"),
    *("ui_port", "metrics_port"),
)
LOG_LEVELS: Final = ("ERROR", "WARN", "INFO", "DEBUG")
_LEGAL: Final = "letters, digits, dots, dashes and underscores"


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The job's settings, checked."""

    bootstrap_servers: str = setting(
        matching(r"[^\s,]+:[0-9]{1,5}(,[^\s,]+:[0-9]{1,5})*"),
        "127.0.0.1:9092",
        expected="host:port, several with commas",
        what="Kafka's brokers",
        variable="KAFKA_BOOTSTRAP_SERVERS",
    )
    topic_prefix: str = setting(
        satisfying(lambda text: not text or is_legal_name(f"{text}assigner-commits")),
        expected=f"{_LEGAL}, short enough that the topics' names have at most 249",
        what="the prefix of the topics' names",
    )
    checkpoint: str = setting(
        matching(r"(?!s3n?:)\S(.*\S)?"),
        ".spu-assigner/checkpoint",
        expected="a folder, or a URL of Hadoop's such as hdfs:// or, for S3, s3a://",
        what="where Spark keeps offsets and state",
    )
    query_name: str = setting(
        satisfying(is_legal_name),
        "spu-assigner",
        expected=f"1 to 249 {_LEGAL}",
        what="the query's name: in Spark's UI, on its markers, and to keep a second one out",
    )
    shards: int | None = setting(
        or_empty(integer(1, SHARDS_MAX)),
        expected=f"1 to {SHARDS_MAX}",
        what="the parts that the clusters' state is divided into, each with a task; fixed by the "
        "checkpoint at the first start",
    )
    default_policy: Policy = choice(Policy, DEFAULT_POLICY, "the policy of creates that name none")
    wire: Wire = choice(Wire, Wire.CONFLUENT, "the encoding that is written; both are read")
    topic_events_per_batch: int = setting(
        integer(1, TOPIC_EVENTS_PER_BATCH_MAX),
        "50000",
        expected=f"1 to {TOPIC_EVENTS_PER_BATCH_MAX}",
        what="the most topic events a batch takes; joins and leaves are never held back",
    )
    master: str | None = setting(
        or_empty(matching(r"\S+")), expected="a master URL of Spark's", what="where Spark runs"
    )
    driver_memory: str = setting(
        matching(r"[1-9][0-9]*[mgMG]"),
        "2g",
        expected="a size such as 900m or 4g",
        what="the JVM's heap where this process starts it",
    )
    ui_port: int = setting(
        integer(0, PORT_MAX),
        "4040",
        expected=f"0 (none) to {PORT_MAX}",
        what="Spark's UI, on 127.0.0.1; the next free port if it is taken; 0: none",
    )
    metrics_port: int | None = setting(
        lambda text: None if text in {"", "off"} else integer(0, PORT_MAX)(text),
        "4060",
        expected=f"0 (any free one) to {PORT_MAX}, or off",
        what="where `/metrics`, `/live` and `/ready` are served; the next free port if it is "
        "taken; 0: any free one; off: none",
    )
    metrics_host: str = setting(
        matching(r"[A-Za-z0-9.:_-]{1,253}"),
        "127.0.0.1",
        expected="an address or name of this machine",
        what="the address they are served on",
    )
    log_level: str = choice(LOG_LEVELS, "ERROR", "what Spark logs to standard error")
    security: Security = field(default_factory=Security)

    @classmethod
    def load(
        cls,
        *,
        flags: Mapping[str, object] | None = None,
        environ: Mapping[str, str] | None = None,
        file: Path | None = None,
        is_target: bool = False,
    ) -> Settings:
        """From flags (by field name; None: not given), environment, file and defaults.

        Another Kafka cluster than the job's, the target, has variables of its own: what is set for
        the job's is never sent to it.
        """
        environ = os.environ if environ is None else environ
        given = {name: value for name, value in (flags or {}).items() if value is not None}
        named = environ.get(TARGET_FILE_VARIABLE if is_target else FILE_VARIABLE)
        if file is None and named:
            file = Path(named)
        written = {} if file is None else _read_file(file)
        values: dict[str, Any] = {}
        sources: dict[str, str] = {}
        for spec in map(_of_target, SPECS) if is_target else SPECS:
            name = spec.name
            if spec.is_secret:
                values[name], sources[name] = read_secret(
                    spec, environ=environ, written=written, file=file
                )
                continue
            places = (
                (given.get(name), spec.flag),
                (environ.get(spec.variable), spec.variable),
                (written.get(name), f"{name} in {file}"),
                (spec.default, f"the default of {name}"),
            )
            value, source = next(found for found in places if found[0] is not None)
            values[name], sources[name] = _value(spec, value, source), source
        security = Security(**{each.name: values.pop(each.name) for each in fields(Security)})
        check(security, sources)
        return cls(**values, security=security)

    def connection(self) -> Connection:
        """How every Kafka client of the job and of the commands is made."""
        return Connection(
            bootstrap_servers=self.bootstrap_servers,
            prefix=self.topic_prefix,
            security=self.security,
        )


SPECS: Final = (*specs_of(Settings), *specs_of(Security))


def has_target() -> bool:
    """Whether the environment names another Kafka cluster than the job's."""
    return any(os.environ.get(each) for each in (TARGET_SERVERS_VARIABLE, TARGET_FILE_VARIABLE))


def _of_target(spec: Spec) -> Spec:
    name = spec.variable.removeprefix("SPU_ASSIGNER_").removeprefix("KAFKA_")
    return replace(spec, variable=f"SPU_ASSIGNER_TARGET_{name}")


def _value(spec: Spec, value: object, source: str) -> Any:
    text = value if isinstance(value, str) else bounded_repr(value)
    is_text = not isinstance(value, bool | float | list | dict)
    if is_text:
        with suppress(ValueError):
            return spec.read(text.strip())
    raise SettingsError(source, found=repr(text) if is_text else text, expected=spec.expected)


def _read_file(path: Path) -> dict[str, object]:
    source, toml = f"the settings file {path}", "TOML, one `name = value` a line"
    try:
        written = tomllib.loads(read_plain_file(path, size_max=FILE_SIZE_MAX).decode())
    except FileRefusedError as reason:
        found = f"unusable: it {reason.reason}"
        raise SettingsError(source, found=found, expected="a file that can be read") from reason
    except (RecursionError, ValueError) as reason:  # The second: no UTF-8, or no TOML.
        is_deep = isinstance(reason, RecursionError)
        found = "nested too deeply" if is_deep else f"no TOML ({printable(str(reason))})"
        raise SettingsError(source, found=found, expected=toml) from reason
    secrets = {spec.name: spec for spec in SPECS if spec.is_secret}
    names = [spec.file_name for spec in SPECS]
    for name in (each for each in written if each not in names):
        if (spec := secrets.get(name)) is None:
            expected = ", ".join(names)
            raise SettingsError(f"a name in {path}", found=repr(name), expected=expected)
        raise SettingsError(
            f"{name} in {path}",
            found="a secret in a settings file",
            expected=f"{spec.file_name}, the path of a file of its own with mode 0600, or the "
            f"variable {spec.variable}",
        )
    return written
