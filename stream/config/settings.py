"""Every setting of the job, in one table: name, variable, flag, default and the reason for it.

A setting is looked for in the flags, then in the environment, then in a TOML file, and has a
default at last; a secret only in the environment and in a file of its own. The environment is read
here and nowhere else.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Final

from spu_assigner.core.base.bounded_repr import bounded_repr
from spu_assigner.core.base.events import DEFAULT_POLICY, Policy
from spu_assigner.core.base.limits import is_legal_name
from spu_assigner.schemas.messages.wire import Wire
from spu_assigner.stream.common.plain_file import FileRefusedError, read_plain_file
from spu_assigner.stream.config.connection import Connection
from spu_assigner.stream.config.profile import DEFAULT_PROFILE, Profile, tuning
from spu_assigner.stream.config.secret import Secret, read_secret
from spu_assigner.stream.config.security import SECURITY_SPECS, Mechanism, Protocol, Security, check
from spu_assigner.stream.config.setting_spec import SettingsError, Spec, integer, matching, or_empty

__all__ = ["SPECS", "Settings", "SettingsError", "Spec"]

FILE_VARIABLE: Final = "SPU_ASSIGNER_CONFIG"
TARGET_SERVERS_VARIABLE: Final = "SPU_ASSIGNER_TARGET_BOOTSTRAP_SERVERS"
TARGET_FILE_VARIABLE: Final = "SPU_ASSIGNER_TARGET_CONFIG"
SHARDS_MAX: Final = 1_000  # each is a task of every batch and a state store of its own
TOPIC_EVENTS_PER_BATCH_MAX: Final = 1_000_000  # a shard holds its part of a batch in memory
PORT_MAX: Final = 65_535
FILE_SIZE_MAX: Final = 64 * 1024  # a name and a value a setting; more is another file
LOG_LEVELS: Final = ("ERROR", "WARN", "INFO", "DEBUG")


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The job's settings, checked. `describe` tells what each is for."""

    bootstrap_servers: str
    topic_prefix: str
    checkpoint: str
    query_name: str
    profile: Profile | None
    shards: int | None
    default_policy: Policy
    wire: Wire
    topic_events_per_batch: int | None
    master: str | None
    driver_memory: str
    ui_port: int
    metrics_port: int | None
    metrics_host: str
    log_level: str
    security_protocol: Protocol
    sasl_mechanism: Mechanism
    sasl_username: str | None
    sasl_password: Secret | None
    ssl_ca_file: Path | None
    ssl_certificate_file: Path | None
    ssl_key_file: Path | None
    ssl_key_password: Secret | None

    @classmethod
    def from_env(cls, environ: Mapping[str, str] | None = None) -> Settings:
        """From the environment and the file it names."""
        return cls.load(environ=environ)

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

        Args:
            environ: this process's environment by default.
            file: by default the one that `SPU_ASSIGNER_CONFIG` names, if any.
            is_target: of another Kafka cluster than the job's, which has variables and flags of its
                own (`SPU_ASSIGNER_TARGET_…`): what is set for the job's is never sent to it.

        Raises:
            SettingsError: a value cannot be; it names the flag, variable or file's entry.
        """
        environ = os.environ if environ is None else environ
        given = {name: value for name, value in (flags or {}).items() if value is not None}
        for name in given:
            if name not in _BY_NAME or _BY_NAME[name].is_secret:
                raise TypeError(f"{name!r} is no setting with a flag")
        named = environ.get(TARGET_FILE_VARIABLE if is_target else FILE_VARIABLE)
        if file is None and named:
            file = Path(named)
        written = {} if file is None else _read_file(file)
        values: dict[str, Any] = {}
        sources: dict[str, str] = {}
        for spec in map(_of_target, SPECS) if is_target else SPECS:
            if spec.is_secret:
                values[spec.name], sources[spec.name] = read_secret(
                    spec, environ=environ, written=written, file=file
                )
                continue
            if spec.name in given:
                value, source = given[spec.name], spec.flag
            elif spec.variable in environ:
                value, source = environ[spec.variable], spec.variable
            elif spec.name in written:
                value, source = written[spec.name], f"{spec.name} in {file}"
            else:
                value, source = spec.default, f"the default of {spec.name}"
            values[spec.name], sources[spec.name] = _value(spec, value, source), source
        settings = cls(**values)
        check(settings.connection().security, sources)
        return settings

    def connection(self) -> Connection:
        """How every Kafka client of the job and of the commands is made."""
        security = Security(
            protocol=self.security_protocol,
            mechanism=self.sasl_mechanism,
            username=self.sasl_username,
            password=self.sasl_password,
            ca_file=self.ssl_ca_file,
            certificate_file=self.ssl_certificate_file,
            key_file=self.ssl_key_file,
            key_password=self.ssl_key_password,
        )
        return Connection(
            bootstrap_servers=self.bootstrap_servers, prefix=self.topic_prefix, security=security
        )

    @staticmethod
    def describe() -> str:
        """All settings as a table in Markdown."""
        lines = [
            "| setting | flag | variable | default | why this default |",
            "|---|---|---|---|---|",
        ]
        for spec in SPECS:
            default = f"`{spec.default}`" if spec.default else "empty"
            flag, variable = f"`{spec.flag}`", f"`{spec.variable}`"
            if spec.is_secret:
                flag, variable = (
                    "none: a secret",
                    f"{variable}, or a file in `{spec.file_variable}`",
                )
            lines.append(f"| {spec.what} | {flag} | {variable} | {default} | {spec.reason} |")
        return "\n".join(lines)


def has_target(environ: Mapping[str, str] | None = None) -> bool:
    """Whether the environment names another Kafka cluster than the job's."""
    environ = os.environ if environ is None else environ
    return bool(environ.get(TARGET_SERVERS_VARIABLE) or environ.get(TARGET_FILE_VARIABLE))


def _of_target(spec: Spec) -> Spec:
    name = spec.variable.removeprefix("SPU_ASSIGNER_").removeprefix("KAFKA_")
    return replace(spec, variable=f"SPU_ASSIGNER_TARGET_{name}", flag_prefix="--target-")


def _value(spec: Spec, value: object, source: str) -> Any:
    text = value if isinstance(value, str) else bounded_repr(value)
    if isinstance(value, bool | float | list | dict):
        raise SettingsError(setting=spec.name, source=source, value=value, expected=spec.expected)
    try:
        return spec.read(text.strip())
    except ValueError:
        raise SettingsError(
            setting=spec.name, source=source, value=text, expected=spec.expected
        ) from None


def _read_file(path: Path) -> dict[str, object]:
    try:
        written = tomllib.loads(read_plain_file(path, size_max=FILE_SIZE_MAX).decode())
    except FileRefusedError as reason:
        raise _file_error(path, reason.reason, "a file that can be read") from reason
    except RecursionError as reason:
        raise _file_error(path, "nested too deeply", _TOML) from reason
    except ValueError as reason:  # no UTF-8, no TOML, or a number of more digits than Python reads
        raise _file_error(path, str(reason), _TOML) from reason
    names = [spec.file_name if spec.is_secret else spec.name for spec in SPECS]
    for name in written:
        if name in names:
            continue
        if name in _BY_NAME:
            spec = _BY_NAME[name]
            raise SettingsError(
                setting=name,
                source=f"{name} in {path}",
                value=None,
                found="a secret in a settings file",
                expected=f"{spec.file_name}, the path of a file of its own with mode 0600, or the "
                f"variable {spec.variable}",
            )
        raise SettingsError(
            setting="file", source=f"a name in {path}", value=name, expected=", ".join(names)
        )
    return written


def _file_error(path: Path, found: str, expected: str) -> SettingsError:
    return SettingsError(
        setting="file", source=f"the settings file {path}", value=found, expected=expected
    )


def _prefix(text: str) -> str:
    if text and not is_legal_name(text + "assigner-commits"):
        raise ValueError(text)
    return text


def _query_name(text: str) -> str:
    if not is_legal_name(text):
        raise ValueError(text)
    return text


def _metrics_port(text: str) -> int | None:
    return None if text in {"", "off"} else integer(0, PORT_MAX)(text)


_TOML: Final = "TOML, one `name = value` a line"
_LEGAL: Final = "letters, digits, dots, dashes and underscores"

SPECS: Final = (
    Spec(
        name="bootstrap_servers",
        variable="KAFKA_BOOTSTRAP_SERVERS",
        default="127.0.0.1:9092",
        read=matching(r"[^\s,]+:[0-9]{1,5}(,[^\s,]+:[0-9]{1,5})*"),
        expected="host:port, several with commas",
        what="Kafka's brokers",
        reason="where a broker on this machine listens",
    ),
    Spec(
        name="topic_prefix",
        variable="SPU_ASSIGNER_TOPIC_PREFIX",
        default="",
        read=_prefix,
        expected=f"{_LEGAL}, short enough that the topics' names have at most 249",
        what="what precedes the name of each topic",
        reason="the names are telling by themselves",
    ),
    Spec(
        name="checkpoint",
        variable="SPU_ASSIGNER_CHECKPOINT",
        default=".spu-assigner/checkpoint",
        read=matching(r"\S(.*\S)?"),
        expected="a folder, or a URL of Hadoop's such as hdfs:// or s3a://",
        what="where Spark keeps offsets and state",
        reason="under the folder it is started in; a job on a cluster needs a shared place",
    ),
    Spec(
        name="query_name",
        variable="SPU_ASSIGNER_QUERY_NAME",
        default="spu-assigner",
        read=_query_name,
        expected=f"1 to 249 {_LEGAL}",
        what="the query's name: in Spark's UI, on its markers, and to keep a second one out",
        reason="the product's",
    ),
    Spec(
        name="profile",
        variable="SPU_ASSIGNER_PROFILE",
        default="",
        read=or_empty(Profile),
        expected=", ".join(Profile),
        what=f"what the job is to be good at: {' or '.join(Profile)}",
        reason=f"empty: {DEFAULT_PROFILE}, the better compromise, in as many shards as the "
        "checkpoint has; one that is named must suit these",
    ),
    Spec(
        name="shards",
        variable="SPU_ASSIGNER_SHARDS",
        default="",
        read=or_empty(integer(1, SHARDS_MAX)),
        expected=f"1 to {SHARDS_MAX}",
        what="the parts that the clusters' state is divided into, each with a task; fixed by the "
        "checkpoint at the first start",
        reason="empty: the checkpoint's; at the first start one for each core, at most 8, since "
        "every batch costs a task for each; with profile latency one",
    ),
    Spec(
        name="default_policy",
        variable="SPU_ASSIGNER_DEFAULT_POLICY",
        default=DEFAULT_POLICY.value,
        read=Policy,
        expected=", ".join(Policy),
        what="the policy of creates that name none",
        reason="the most even one: over racks, SPUs and leaders, over all topics of a cluster",
    ),
    Spec(
        name="wire",
        variable="SPU_ASSIGNER_WIRE",
        default="confluent",
        read=Wire,
        expected=", ".join(Wire),
        what="the encoding that is written; both are read",
        reason="what most Avro consumers of Kafka expect",
    ),
    Spec(
        name="topic_events_per_batch",
        variable="SPU_ASSIGNER_TOPIC_EVENTS_PER_BATCH",
        default="",
        read=or_empty(integer(1, TOPIC_EVENTS_PER_BATCH_MAX)),
        expected=f"1 to {TOPIC_EVENTS_PER_BATCH_MAX}",
        what="the most topic events a batch takes; joins and leaves are never held back",
        reason=f"empty: {tuning(None).topic_events_per_batch}, with profile latency "
        f"{tuning(Profile.LATENCY).topic_events_per_batch}: a larger batch costs less for each "
        "event, but all of it is answered at once, and a shard's part is held in memory",
    ),
    Spec(
        name="master",
        variable="SPU_ASSIGNER_MASTER",
        default="",
        read=or_empty(matching(r"\S+")),
        expected="a master URL of Spark's",
        what="where Spark runs",
        reason="empty: what spark-submit says, else local[*], this process with all cores",
    ),
    Spec(
        name="driver_memory",
        variable="SPU_ASSIGNER_DRIVER_MEMORY",
        default="2g",
        read=matching(r"[1-9][0-9]*[mgMG]"),
        expected="a size such as 900m or 4g",
        what="the JVM's heap where this process starts it",
        reason="a batch's rows pass through it, and on local[*] all tasks run in it",
    ),
    Spec(
        name="ui_port",
        variable="SPU_ASSIGNER_UI_PORT",
        default="4040",
        read=integer(0, PORT_MAX),
        expected=f"0 (none) to {PORT_MAX}",
        what="Spark's UI, on 127.0.0.1; the next free port if it is taken; 0: none",
        reason="Spark's own",
    ),
    Spec(
        name="metrics_port",
        variable="SPU_ASSIGNER_METRICS_PORT",
        default="4060",
        read=_metrics_port,
        expected=f"0 (any free one) to {PORT_MAX}, or off",
        what="where `/metrics`, `/live` and `/ready` are served; the next free port if it is "
        "taken; 0: any free one; off: none",
        reason="near that of Spark's UI, and beyond those it tries",
    ),
    Spec(
        name="metrics_host",
        variable="SPU_ASSIGNER_METRICS_HOST",
        default="127.0.0.1",
        read=matching(r"[A-Za-z0-9.:_-]{1,253}"),
        expected="an address or name of this machine",
        what="the address they are served on",
        reason="nobody is asked who he is, so others see them only where it is wished",
    ),
    Spec(
        name="log_level",
        variable="SPU_ASSIGNER_LOG_LEVEL",
        default="ERROR",
        read=lambda text: LOG_LEVELS[LOG_LEVELS.index(text.upper())],
        expected=", ".join(LOG_LEVELS),
        what="what Spark logs to standard error",
        reason="its warnings at each start are about what this job does on purpose",
    ),
    *SECURITY_SPECS,
)
_BY_NAME: Final = {spec.name: spec for spec in SPECS}

if [field.name for field in fields(Settings)] != list(_BY_NAME):
    raise TypeError("Settings and SPECS differ")
