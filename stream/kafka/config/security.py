"""Encryption and authentication: one description for librdkafka, kafka-python and Spark.

Rules: host names and certificates are always verified. A secret comes from the environment or from
a file that its owner alone can read; no setting, message or representation shows it. Spark is given
the place of a secret and never the secret: Kafka's own providers resolve the reference inside each
client, so that Spark's options, plans, UI, event log and checkpoint hold the reference only. On a
cluster the variable or file must therefore be on each node, under the same name.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

from spu_assigner.stream.kafka.config.secret import Secret, file_reference, read_file
from spu_assigner.stream.kafka.config.setting_spec import (
    PATH_EXPECTED,
    SettingsError,
    choice,
    file_path,
    matching,
    or_empty,
    setting,
    specs_of,
)

CA_SIZE_MAX: Final = 8 * 1024 * 1024  # all authorities of a machine are a quarter of a MiB
_PROVIDERS: Final = "org.apache.kafka.common.config.provider"
_LOGIN_MODULES: Final = "org.apache.kafka.common.security"
_KEY: Final = b"-----BEGIN PRIVATE KEY-----"


class Protocol(StrEnum):
    """Kafka's names of what a listener speaks."""

    PLAINTEXT = "PLAINTEXT"
    SSL = "SSL"
    SASL_SSL = "SASL_SSL"
    SASL_PLAINTEXT = "SASL_PLAINTEXT"

    @property
    def has_tls(self) -> bool:
        """Whether the connection is encrypted."""
        return self.endswith("SSL")

    @property
    def has_sasl(self) -> bool:
        """Whether a user name and a password are needed."""
        return self.startswith("SASL")


class Mechanism(StrEnum):
    """How a user is authenticated."""

    SCRAM_SHA_512 = "SCRAM-SHA-512"
    SCRAM_SHA_256 = "SCRAM-SHA-256"
    PLAIN = "PLAIN"


@dataclass(frozen=True, slots=True, kw_only=True)
class Security:
    """What a listener asks of its clients; by default nothing."""

    security_protocol: Protocol = choice(Protocol, "PLAINTEXT", "what Kafka's listener speaks")
    sasl_mechanism: Mechanism = choice(Mechanism, "SCRAM-SHA-512", "how the user is authenticated")
    sasl_username: str | None = setting(
        or_empty(matching(r"[^\x00-\x1f\x7f\"\\$]+")),
        expected="a name without quotes, backslashes and dollar signs",
        what="the user's name",
    )
    sasl_password: Secret | None = setting(
        str, expected="the user's password", what="the user's password", is_secret=True
    )
    ssl_ca_file: Path | None = setting(
        or_empty(file_path),
        expected=PATH_EXPECTED,
        what="the authorities that may vouch for the brokers, in PEM",
    )
    ssl_certificate_file: Path | None = setting(
        or_empty(file_path),
        expected=PATH_EXPECTED,
        what="the client's certificate and what signed it, in PEM, for mutual TLS",
    )
    ssl_key_file: Path | None = setting(
        or_empty(file_path), expected=PATH_EXPECTED, what="its key, PKCS#8 in PEM; mode 0600"
    )

    @property
    def warning(self) -> str | None:
        """What the user should know before going on."""
        if self.security_protocol is not Protocol.SASL_PLAINTEXT:
            return None
        is_plain = self.sasl_mechanism is Mechanism.PLAIN
        seen = "and the password" if is_plain else "(not the password)"
        return (
            f"SASL_PLAINTEXT does not encrypt: whoever is on the way reads every message {seen}, "
            "and can change them; use SASL_SSL"
        )

    def client(self) -> dict[str, Any]:
        """Settings for librdkafka."""
        if self.security_protocol is Protocol.PLAINTEXT:
            return {}
        settings: dict[str, object] = {"security.protocol": self.security_protocol.value}
        if self.security_protocol.has_tls:
            settings |= {
                "enable.ssl.certificate.verification": True,
                "ssl.endpoint.identification.algorithm": "https",  # the host's name is verified
                "ssl.ca.location": self.ssl_ca_file,
                "ssl.certificate.location": self.ssl_certificate_file,
                "ssl.key.location": self.ssl_key_file,
            }
        if self.security_protocol.has_sasl:
            settings |= {
                "sasl.mechanism": self.sasl_mechanism.value,
                "sasl.username": self.sasl_username,
                "sasl.password": self.sasl_password and self.sasl_password.value,
            }
        return {
            name: str(value) if isinstance(value, Path) else value
            for name, value in settings.items()
            if value is not None
        }

    def kafka_python(self) -> dict[str, Any]:
        """Settings for kafka-python, which is asked for what librdkafka cannot ask for."""
        client = self.client()
        names = {
            "security.protocol": "security_protocol",
            "sasl.mechanism": "sasl_mechanism",
            "sasl.username": "sasl_plain_username",
            "sasl.password": "sasl_plain_password",
        }
        settings = {name: client[each] for each, name in names.items() if each in client}
        if self.security_protocol.has_tls:
            settings["ssl_context"] = tls_context(client)
        return settings

    def spark(self) -> dict[str, str]:
        """Options for Spark's Kafka source: the same, with references for secrets."""
        if self.security_protocol is Protocol.PLAINTEXT:
            return {}
        options = {"security.protocol": self.security_protocol.value}
        if self.security_protocol.has_tls:
            options["ssl.endpoint.identification.algorithm"] = "https"
        if self.ssl_ca_file is not None:
            options["ssl.truststore.type"] = "PEM"
            options["ssl.truststore.location"] = str(self.ssl_ca_file)
        if self.ssl_certificate_file is not None and self.ssl_key_file is not None:
            options["ssl.keystore.type"] = "PEM"
            options["ssl.keystore.certificate.chain"] = file_reference(self.ssl_certificate_file)
            options["ssl.keystore.key"] = file_reference(self.ssl_key_file)
        if self.sasl_password is not None:
            options["sasl.mechanism"] = self.sasl_mechanism.value
            options["sasl.jaas.config"] = self._jaas(self.sasl_password)
        return {f"kafka.{name}": value for name, value in (options | self._providers()).items()}

    def _jaas(self, password: Secret) -> str:
        """The login module of Java. A quoted string of it ends at its quote or at the line's end.

        Here the line ends, so that a line end after the password in its file does no harm.
        """
        quote = "'" if '"' in password.value else '"'  # One that does not occur in it.
        name = "plain.Plain" if self.sasl_mechanism is Mechanism.PLAIN else "scram.Scram"
        return (
            f"{_LOGIN_MODULES}.{name}LoginModule required "
            f'username="{self.sasl_username}" password={quote}{password.reference}\n;'
        )

    def _providers(self) -> dict[str, str]:
        """Kafka's providers, allowed to look at what is referred to and nothing else."""
        password = None if self.sasl_password is None else self.sasl_password.file
        files = (self.ssl_certificate_file, self.ssl_key_file, password)
        folders = sorted({str(file.parent) for file in files if file is not None})
        found = {
            "env": ("EnvVarConfigProvider", "allowlist.pattern", "|".join(self.variables())),
            "dir": ("DirectoryConfigProvider", "allowed.paths", ",".join(folders)),
        }
        used = [name for name, (_, _, allowed) in found.items() if allowed]
        providers = {"config.providers": ",".join(used)} if used else {}
        for name in used:
            kind, parameter, allowed = found[name]
            providers[f"config.providers.{name}.class"] = f"{_PROVIDERS}.{kind}"
            providers[f"config.providers.{name}.param.{parameter}"] = allowed
        return providers

    def variables(self) -> tuple[str, ...]:
        """The environment variables that Spark's JVMs must have."""
        password = self.sasl_password
        return (password.variable,) if password is not None and password.variable else ()


_SPECS: Final = {spec.name: spec for spec in specs_of(Security)}


def tls_context(client: Mapping[str, Any]) -> ssl.SSLContext:
    """What verifies certificate and host name as librdkafka with these settings does."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if (authority := client.get("ssl.ca.location")) is None:
        context.load_default_certs()
    else:
        context.load_verify_locations(authority)
    if (certificate := client.get("ssl.certificate.location")) is not None:
        context.load_cert_chain(certificate, client["ssl.key.location"])
    return context


def check(security: Security, sources: Mapping[str, str]) -> None:
    """Refuse settings that do not go together, and files that are not what they should be."""
    protocol = security.security_protocol
    for name in _SPECS:
        is_sasl = name in ("sasl_username", "sasl_password")
        if not (is_sasl or name.startswith("ssl")) or getattr(security, name) is None:
            continue
        if not (protocol.has_sasl if is_sasl else protocol.has_tls):
            listed = "SASL_SSL or SASL_PLAINTEXT" if is_sasl else "SSL or SASL_SSL"
            raise SettingsError(
                sources[name],
                found=f"set, and {_SPECS['security_protocol'].variable} is {protocol}",
                expected=f"{listed} there, or nothing here",
            )
    needed = ["sasl_username", "sasl_password"] if protocol.has_sasl else []
    if security.ssl_certificate_file or security.ssl_key_file:
        needed += ["ssl_certificate_file", "ssl_key_file"]
    for name in needed:
        if getattr(security, name) is None:
            spec = _SPECS[name]
            asked = f"{spec.variable} or {spec.file_variable}" if spec.is_secret else spec.variable
            raise SettingsError(asked, found="not set", expected=spec.expected)
    if security.ssl_ca_file is not None:
        _check_authority(security.ssl_ca_file, sources["ssl_ca_file"])
    if security.ssl_certificate_file is not None and security.ssl_key_file is not None:
        _check_certificate(security.ssl_certificate_file, security.ssl_key_file, sources)


def _check_authority(path: Path, source: str) -> None:
    """Read it as the clients will."""
    read_file(path, source, size_max=CA_SIZE_MAX)
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(path)
    except ssl.SSLError as reason:
        found = f"{path}, which holds no certificate ({reason.reason})"
        raise SettingsError(source, found=found, expected="certificates in PEM") from reason


def _check_certificate(certificate: Path, key: Path, sources: Mapping[str, str]) -> None:
    """Read both as the clients will: by OpenSSL, and as Kafka's client in Java wants them."""
    read_file(certificate, sources["ssl_certificate_file"])
    source = sources["ssl_key_file"]
    if _KEY not in read_file(key, source, is_private=True):
        found = f"{key}, which holds no key in PKCS#8, without a password"
        expected = f"what `openssl pkcs8 -topk8 -nocrypt -in {key}` makes of it"
        raise SettingsError(source, found=found, expected=expected)
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_cert_chain(certificate, key)
    except ssl.SSLError as reason:
        raise SettingsError(
            f"{sources['ssl_certificate_file']} with {source}",
            found=f"{certificate} with {key}, which cannot be used ({reason.reason or reason})",
            expected="a certificate in PEM, and its own key",
        ) from reason
