"""Encryption and authentication: one description for librdkafka, kafka-python and Spark.

Rules: host names and certificates are always verified. A secret comes from the environment or from
a file that its owner alone can read; no setting, message or representation shows it. Spark is told
where a secret stands and never what it is: Kafka's own providers resolve the reference inside each
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

from spu_assigner.stream.config.secret import Secret, certificate, file_reference, private_key
from spu_assigner.stream.config.setting_spec import SettingsError, Spec, matching, or_empty

_PROVIDERS: Final = "org.apache.kafka.common.config.provider"
_LOGIN_MODULES: Final = "org.apache.kafka.common.security"


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
    """How a user proves who he is."""

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

    protocol: Protocol = Protocol.PLAINTEXT
    mechanism: Mechanism = Mechanism.SCRAM_SHA_512
    username: str | None = None
    password: Secret | None = None
    ca_file: Path | None = None  # None: the machine's own authorities
    certificate_file: Path | None = None
    key_file: Path | None = None
    key_password: Secret | None = None

    @property
    def warning(self) -> str | None:
        """What the user should know before going on."""
        if self.protocol is not Protocol.SASL_PLAINTEXT:
            return None
        seen = "and the password" if self.mechanism is Mechanism.PLAIN else "(not the password)"
        return (
            f"SASL_PLAINTEXT does not encrypt: whoever is on the way reads every message {seen}, "
            "and can change them; use SASL_SSL"
        )

    def client(self) -> dict[str, Any]:
        """Settings for librdkafka."""
        if self.protocol is Protocol.PLAINTEXT:
            return {}
        settings: dict[str, Any] = {"security.protocol": self.protocol.value}
        if self.protocol.has_tls:
            settings |= {
                "enable.ssl.certificate.verification": True,
                "ssl.endpoint.identification.algorithm": "https",  # the host's name is verified
            }
            files = {
                "ssl.ca.location": self.ca_file,
                "ssl.certificate.location": self.certificate_file,
                "ssl.key.location": self.key_file,
            }
            settings |= {name: str(file) for name, file in files.items() if file is not None}
            if self.key_password is not None:
                settings["ssl.key.password"] = self.key_password.value
        if self.protocol.has_sasl and self.password is not None:
            settings |= {
                "sasl.mechanism": self.mechanism.value,
                "sasl.username": self.username,
                "sasl.password": self.password.value,
            }
        return settings

    def kafka_python(self) -> dict[str, Any]:
        """Settings for kafka-python, which is asked for what librdkafka cannot ask for.

        Raises:
            OSError, ssl.SSLError: a certificate or a key cannot be read.
        """
        if self.protocol is Protocol.PLAINTEXT:
            return {}
        settings: dict[str, Any] = {"security_protocol": self.protocol.value}
        if self.protocol.has_tls:
            settings["ssl_context"] = tls_context(self.client())
        if self.protocol.has_sasl and self.password is not None:
            settings |= {
                "sasl_mechanism": self.mechanism.value,
                "sasl_plain_username": self.username,
                "sasl_plain_password": self.password.value,
            }
        return settings

    def spark(self) -> dict[str, str]:
        """Options for Spark's Kafka source: the same, with references for secrets."""
        if self.protocol is Protocol.PLAINTEXT:
            return {}
        options = {"security.protocol": self.protocol.value}
        if self.protocol.has_tls:
            options["ssl.endpoint.identification.algorithm"] = "https"
            if self.ca_file is not None:
                options |= {
                    "ssl.truststore.type": "PEM",
                    "ssl.truststore.location": str(self.ca_file),
                }
            if self.certificate_file is not None and self.key_file is not None:
                options |= {
                    "ssl.keystore.type": "PEM",
                    "ssl.keystore.certificate.chain": file_reference(self.certificate_file),
                    "ssl.keystore.key": file_reference(self.key_file),
                }
            if self.key_password is not None:
                options["ssl.key.password"] = self.key_password.reference
        if self.protocol.has_sasl and self.password is not None:
            quote = self.password.quote
            # A quoted string of JAAS ends at its quote or at the line's end. Here the line ends,
            # so that a line end after the password in its file does no harm.
            options |= {
                "sasl.mechanism": self.mechanism.value,
                "sasl.jaas.config": f'{self.mechanism.login_module} required username="'
                f'{self.username}" password={quote}{self.password.reference}\n;',
            }
        return {f"kafka.{name}": value for name, value in (options | self._providers()).items()}

    def _providers(self) -> dict[str, str]:
        """Kafka's providers, allowed to look at what is referred to and nothing else."""
        files = [self.certificate_file, self.key_file]
        variables: list[str] = []
        for secret in (self.password, self.key_password):
            if secret is not None:
                files.append(secret.file)
                variables += [secret.variable] if secret.variable is not None else []
        folders = sorted({str(file.parent) for file in files if file is not None})
        providers: dict[str, str] = {}
        if variables:
            providers |= {
                "config.providers.env.class": f"{_PROVIDERS}.EnvVarConfigProvider",
                "config.providers.env.param.allowlist.pattern": "|".join(variables),
            }
        if folders:
            providers |= {
                "config.providers.dir.class": f"{_PROVIDERS}.DirectoryConfigProvider",
                "config.providers.dir.param.allowed.paths": ",".join(folders),
            }
        used = [name for name, there in (("env", variables), ("dir", folders)) if there]
        return {"config.providers": ",".join(used), **providers} if used else {}

    def variables(self) -> tuple[str, ...]:
        """The environment variables that Spark's JVMs must have."""
        secrets = (self.password, self.key_password)
        return tuple(each.variable for each in secrets if each is not None and each.variable)


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
        SettingsError: it names the setting.
    """
    protocol = security.protocol
    given: Mapping[str, object] = {
        "sasl_username": security.username,
        "sasl_password": security.password,
        "ssl_ca_file": security.ca_file,
        "ssl_certificate_file": security.certificate_file,
        "ssl_key_file": security.key_file,
        "ssl_key_password": security.key_password,
    }
    for name, value in given.items():
        is_sasl = name.startswith("sasl")
        if value is not None and not (protocol.has_sasl if is_sasl else protocol.has_tls):
            listed = "SASL_SSL or SASL_PLAINTEXT" if is_sasl else "SSL or SASL_SSL"
            raise SettingsError(
                setting=name,
                source=sources[name],
                value=None,
                found=f"set, and {_BY_NAME['security_protocol'].variable} is {protocol}",
                expected=f"{listed} there, or nothing here",
            )
    needed = ["sasl_username", "sasl_password"] if protocol.has_sasl else []
    if security.certificate_file or security.key_file:
        needed += ["ssl_certificate_file", "ssl_key_file"]
    for name in needed:
        if given[name] is None:
            spec = _BY_NAME[name]
            or_file = f" or {spec.file_variable}" if spec.is_secret else ""
            raise SettingsError(
                setting=name,
                source=f"{spec.variable}{or_file}",
                value=None,
                found="not set",
                expected=spec.expected,
            )
    _check_files(security, sources)


def _check_files(security: Security, sources: Mapping[str, str]) -> None:
    if security.ca_file is not None:
        certificate(security.ca_file, setting="ssl_ca_file", source=sources["ssl_ca_file"])
    if security.certificate_file is not None:
        name = "ssl_certificate_file"
        certificate(security.certificate_file, setting=name, source=sources[name])
    if security.key_file is None:
        return
    is_locked = private_key(
        security.key_file, setting="ssl_key_file", source=sources["ssl_key_file"]
    )
    if is_locked != (security.key_password is not None):
        spec = _BY_NAME["ssl_key_password"]
        raise SettingsError(
            setting=spec.name,
            source=f"{spec.variable} or {spec.file_variable}",
            value=None,
            found="not set" if is_locked else "set",
            expected=f"the password of {security.key_file}"
            if is_locked
            else f"nothing: {security.key_file} has no password",
        )


_PATH: Final = or_empty(lambda text: Path(matching(r"[^:,{}$]+")(text)).absolute())

SECURITY_SPECS: Final = (
    Spec(
        name="security_protocol",
        variable="SPU_ASSIGNER_SECURITY_PROTOCOL",
        default="PLAINTEXT",
        read=lambda text: Protocol(text.upper()),
        expected=", ".join(Protocol),
        what="what Kafka's listener speaks",
        reason="a broker on this machine's loopback; over a network SASL_SSL or SSL",
    ),
    Spec(
        name="sasl_mechanism",
        variable="SPU_ASSIGNER_SASL_MECHANISM",
        default="SCRAM-SHA-512",
        read=lambda text: Mechanism(text.upper()),
        expected=", ".join(Mechanism),
        what="how the user is authenticated",
        reason="the strongest that Kafka has for passwords: the broker never sees it",
    ),
    Spec(
        name="sasl_username",
        variable="SPU_ASSIGNER_SASL_USERNAME",
        default="",
        read=or_empty(matching(r"[^\x00-\x1f\x7f\"\\$]+")),
        expected="a name without quotes, backslashes and dollar signs",
        what="the user's name",
        reason="only SASL asks for one",
    ),
    Spec(
        name="sasl_password",
        variable="SPU_ASSIGNER_SASL_PASSWORD",
        default="",
        read=str,
        expected="the user's password",
        what="his password",
        reason="only SASL asks for one",
        is_secret=True,
    ),
    Spec(
        name="ssl_ca_file",
        variable="SPU_ASSIGNER_SSL_CA_FILE",
        default="",
        read=_PATH,
        expected="a file's path, without any of : , { } $",
        what="the authorities that may vouch for the brokers, in PEM",
        reason="empty: those that the machine trusts",
    ),
    Spec(
        name="ssl_certificate_file",
        variable="SPU_ASSIGNER_SSL_CERTIFICATE_FILE",
        default="",
        read=_PATH,
        expected="a file's path, without any of : , { } $",
        what="the client's certificate and what signed it, in PEM, for mutual TLS",
        reason="only listeners with `ssl.client.auth` ask for one",
    ),
    Spec(
        name="ssl_key_file",
        variable="SPU_ASSIGNER_SSL_KEY_FILE",
        default="",
        read=_PATH,
        expected="a file's path, without any of : , { } $",
        what="its key, PKCS#8 in PEM; mode 0600",
        reason="as the certificate",
    ),
    Spec(
        name="ssl_key_password",
        variable="SPU_ASSIGNER_SSL_KEY_PASSWORD",
        default="",
        read=str,
        expected="the key's password",
        what="the key's password",
        reason="only for an encrypted key",
        is_secret=True,
    ),
)
_BY_NAME: Final = {spec.name: spec for spec in SECURITY_SPECS}
