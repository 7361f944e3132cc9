"""Encryption and authentication: one description for librdkafka, kafka-python and Spark.

Rules: host names and certificates are always verified. A secret comes from the environment or from
a file that its owner alone can read; no setting, message or representation shows it. Spark is given
the place of a secret and never the secret: Kafka's own providers resolve the reference inside each
client, so that Spark's options, plans, UI, event log and checkpoint hold the reference only. On a
cluster the variable or file must therefore be on each node, under the same name.
"""

from __future__ import annotations

import base64
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
_LOCKED_KEY: Final = b"-----BEGIN ENCRYPTED PRIVATE KEY-----"
_PBES2: Final = bytes.fromhex("06092a864886f70d01050d")  # its name in DER (RFC 8018)


class Protocol(StrEnum):
    """Kafka's names of what a listener speaks."""

    PLAINTEXT = "PLAINTEXT"
    SSL = "SSL"
    SASL_SSL = "SASL_SSL"
    SASL_PLAINTEXT = "SASL_PLAINTEXT"

    @property
    def has_tls(self) -> bool:
        return self in (Protocol.SSL, Protocol.SASL_SSL)

    @property
    def has_sasl(self) -> bool:
        return self in (Protocol.SASL_SSL, Protocol.SASL_PLAINTEXT)


class Mechanism(StrEnum):
    """How a user is authenticated."""

    SCRAM_SHA_512 = "SCRAM-SHA-512"
    SCRAM_SHA_256 = "SCRAM-SHA-256"
    PLAIN = "PLAIN"

    @property
    def login_module(self) -> str:
        """Its class in Java."""
        name = "plain.Plain" if self is Mechanism.PLAIN else "scram.Scram"
        return f"{_LOGIN_MODULES}.{name}LoginModule"


@dataclass(frozen=True, slots=True, kw_only=True)
class Security:
    """What a listener asks of its clients; by default nothing."""

    security_protocol: Protocol = setting(
        lambda text: Protocol(text.upper()),
        "PLAINTEXT",
        expected=", ".join(Protocol),
        what="what Kafka's listener speaks",
        reason="a broker on this machine's loopback; over a network SASL_SSL or SSL",
    )
    sasl_mechanism: Mechanism = setting(
        lambda text: Mechanism(text.upper()),
        "SCRAM-SHA-512",
        expected=", ".join(Mechanism),
        what="how the user is authenticated",
        reason="the strongest that Kafka has for passwords: the broker never sees it",
    )
    sasl_username: str | None = setting(
        or_empty(matching(r"[^\x00-\x1f\x7f\"\\$]+")),
        expected="a name without quotes, backslashes and dollar signs",
        what="the user's name",
        reason="only SASL asks for one",
    )
    sasl_password: Secret | None = setting(
        str,
        expected="the user's password",
        what="the user's password",
        reason="only SASL asks for one",
        is_secret=True,
    )
    ssl_ca_file: Path | None = setting(
        or_empty(file_path),
        expected=PATH_EXPECTED,
        what="the authorities that may vouch for the brokers, in PEM",
        reason="empty: those that the machine trusts",
    )
    ssl_certificate_file: Path | None = setting(
        or_empty(file_path),
        expected=PATH_EXPECTED,
        what="the client's certificate and what signed it, in PEM, for mutual TLS",
        reason="only listeners with `ssl.client.auth` ask for one",
    )
    ssl_key_file: Path | None = setting(
        or_empty(file_path),
        expected=PATH_EXPECTED,
        what="its key, PKCS#8 in PEM; mode 0600",
        reason="as the certificate",
    )
    ssl_key_password: Secret | None = setting(
        str,
        expected="the key's password",
        what="the key's password",
        reason="only for an encrypted key",
        is_secret=True,
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
        protocol = self.security_protocol
        if protocol is Protocol.PLAINTEXT:
            return {}
        settings: dict[str, Any] = {"security.protocol": protocol.value}
        if protocol.has_tls:
            settings |= {
                "enable.ssl.certificate.verification": True,
                "ssl.endpoint.identification.algorithm": "https",  # the host's name is verified
            }
            files = {
                "ssl.ca.location": self.ssl_ca_file,
                "ssl.certificate.location": self.ssl_certificate_file,
                "ssl.key.location": self.ssl_key_file,
            }
            settings |= {name: str(file) for name, file in files.items() if file is not None}
            if self.ssl_key_password is not None:
                settings["ssl.key.password"] = self.ssl_key_password.value
        if protocol.has_sasl and self.sasl_password is not None:
            settings |= {
                "sasl.mechanism": self.sasl_mechanism.value,
                "sasl.username": self.sasl_username,
                "sasl.password": self.sasl_password.value,
            }
        return settings

    def kafka_python(self) -> dict[str, Any]:
        """Settings for kafka-python, which is asked for what librdkafka cannot ask for.

        Raises:
            OSError, ssl.SSLError: a certificate or a key cannot be read.
        """
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
        protocol = self.security_protocol
        if protocol is Protocol.PLAINTEXT:
            return {}
        options = {"security.protocol": protocol.value}
        if protocol.has_tls:
            options["ssl.endpoint.identification.algorithm"] = "https"
            if self.ssl_ca_file is not None:
                options |= {
                    "ssl.truststore.type": "PEM",
                    "ssl.truststore.location": str(self.ssl_ca_file),
                }
            if self.ssl_certificate_file is not None and self.ssl_key_file is not None:
                options |= {
                    "ssl.keystore.type": "PEM",
                    "ssl.keystore.certificate.chain": file_reference(self.ssl_certificate_file),
                    "ssl.keystore.key": file_reference(self.ssl_key_file),
                }
            if self.ssl_key_password is not None:
                options["ssl.key.password"] = self.ssl_key_password.reference
        if protocol.has_sasl and self.sasl_password is not None:
            password, quote = self.sasl_password, self.sasl_password.quote
            # A quoted string of JAAS ends at its quote or at the line's end. Here the line ends,
            # so that a line end after the password in its file does no harm.
            options |= {
                "sasl.mechanism": self.sasl_mechanism.value,
                "sasl.jaas.config": f'{self.sasl_mechanism.login_module} required username="'
                f'{self.sasl_username}" password={quote}{password.reference}\n;',
            }
        return {f"kafka.{name}": value for name, value in (options | self._providers()).items()}

    def _providers(self) -> dict[str, str]:
        """Kafka's providers, allowed to look at what is referred to and nothing else."""
        secrets = [each for each in (self.sasl_password, self.ssl_key_password) if each is not None]
        files = [self.ssl_certificate_file, self.ssl_key_file, *(each.file for each in secrets)]
        folders = sorted({str(file.parent) for file in files if file is not None})
        providers: dict[str, str] = {}
        used = []
        if variables := self.variables():
            used.append("env")
            providers |= {
                "config.providers.env.class": f"{_PROVIDERS}.EnvVarConfigProvider",
                "config.providers.env.param.allowlist.pattern": "|".join(variables),
            }
        if folders:
            used.append("dir")
            providers |= {
                "config.providers.dir.class": f"{_PROVIDERS}.DirectoryConfigProvider",
                "config.providers.dir.param.allowed.paths": ",".join(folders),
            }
        return {"config.providers": ",".join(used), **providers} if used else {}

    def variables(self) -> tuple[str, ...]:
        """The environment variables that Spark's JVMs must have."""
        secrets = (self.sasl_password, self.ssl_key_password)
        return tuple(each.variable for each in secrets if each is not None and each.variable)


_SPECS: Final = {spec.name: spec for spec in specs_of(Security)}


def tls_context(client: Mapping[str, Any]) -> ssl.SSLContext:
    """What verifies certificate and host name as librdkafka with these settings does.

    Raises:
        OSError, ssl.SSLError: a certificate or a key cannot be read.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if (authority := client.get("ssl.ca.location")) is None:
        context.load_default_certs()
    else:
        context.load_verify_locations(authority)
    if (certificate := client.get("ssl.certificate.location")) is not None:
        # Without a password OpenSSL would ask for one on the terminal.
        password = client.get("ssl.key.password", "")
        context.load_cert_chain(certificate, client["ssl.key.location"], password)
    return context


def check(security: Security, sources: Mapping[str, str]) -> None:
    """Refuse settings that do not go together, and files that are not what they should be.

    Args:
        sources: by setting, the flag, variable or file's entry that gave it.

    Raises:
        SettingsError: it names what gave the setting.
    """
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
            raise SettingsError(_asked_by(name), found="not set", expected=_SPECS[name].expected)
    _check_files(security, sources)


def _asked_by(name: str) -> str:
    spec = _SPECS[name]
    return f"{spec.variable} or {spec.file_variable}" if spec.is_secret else spec.variable


def _check_files(security: Security, sources: Mapping[str, str]) -> None:
    """Read the files as the clients will: by OpenSSL, and as Kafka's client in Java wants them."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if (authority := security.ssl_ca_file) is not None:
        read_file(authority, sources["ssl_ca_file"], size_max=CA_SIZE_MAX)
        try:
            context.load_verify_locations(authority)
        except ssl.SSLError as reason:
            raise SettingsError(
                sources["ssl_ca_file"],
                found=f"{authority}, which holds no certificate ({reason.reason})",
                expected="certificates in PEM",
            ) from reason
    certificate, key = security.ssl_certificate_file, security.ssl_key_file
    if certificate is None or key is None:
        return
    read_file(certificate, sources["ssl_certificate_file"])
    data = _key_data(key, sources["ssl_key_file"])
    is_locked = _LOCKED_KEY in data
    if is_locked != (security.ssl_key_password is not None):
        raise SettingsError(
            _asked_by("ssl_key_password"),
            found="not set" if is_locked else "set",
            expected=f"the password of {key}" if is_locked else f"nothing: {key} has no password",
        )
    password = "" if security.ssl_key_password is None else security.ssl_key_password.value
    try:
        context.load_cert_chain(certificate, key, password)
    except ssl.SSLError as reason:
        raise SettingsError(
            f"{sources['ssl_certificate_file']} with {sources['ssl_key_file']}",
            found=f"{certificate} with {key}, which cannot be used ({reason.reason or reason})",
            expected="a certificate in PEM, its own key, and the key's password if it has one",
        ) from reason
    der = base64.b64decode(data.partition(_LOCKED_KEY)[2].partition(b"-----")[0])
    if _PBES2 in der:
        raise SettingsError(
            sources["ssl_key_file"],
            found=f"{key}, encrypted by PBES2, which Kafka's client in Java cannot open",
            expected="a key without a password, in a file of mode 0600, or what "
            f"`openssl pkcs8 -topk8 -v1 PBE-SHA1-3DES -in {key}` makes of it",
        )


def _key_data(path: Path, source: str) -> bytes:
    """A key's file.

    Raises:
        SettingsError: it holds no key in PKCS#8, or is open to others.
    """
    data = read_file(path, source, is_private=True)
    if _LOCKED_KEY not in data and _KEY not in data:
        raise SettingsError(
            source,
            found=f"{path}, which holds no key in PKCS#8",
            expected=f"what `openssl pkcs8 -topk8 -nocrypt -in {path}` makes of it",
        )
    return data
