"""Asking Kafka for its topics, and saying why it does not answer, in one line with what to do.

librdkafka tells a wrong host name in a certificate and an unknown authority in the same words, and
of a wrong protocol nothing but silence. So after a failure the port is tried once more by hand. A
name that is in no name service fails every request as any lost connection does; only what the
client complains of between requests names it.
"""

from __future__ import annotations

import re
import socket
import ssl
import time
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

from confluent_kafka import KafkaError, KafkaException
from spu_assigner.core.base.errors import AssignerError
from spu_assigner.stream.config.connection import address
from spu_assigner.stream.kafka.topics import GRANTING

if TYPE_CHECKING:
    from confluent_kafka import Consumer, Producer
    from confluent_kafka.admin import AdminClient, ClusterMetadata

REQUEST_SECONDS_MAX: Final = 10.0  # a broker at hand answers in milliseconds
REFUSED_SECONDS_MAX: Final = 3.0  # a broker that has just started may not know its users yet
PROBE_SECONDS_MAX: Final = 3.0
ANSWER_SECONDS_LEAST: Final = 0.05  # with less left there is no point in asking again
_COMPLAINTS_MAX: Final = 100  # a client complains several times a second
_PROTOCOL: Final = "SPU_ASSIGNER_SECURITY_PROTOCOL"
_CERTIFICATE: Final = "SPU_ASSIGNER_SSL_CERTIFICATE_FILE and SPU_ASSIGNER_SSL_KEY_FILE"
_USER: Final = "SPU_ASSIGNER_SASL_USERNAME and SPU_ASSIGNER_SASL_PASSWORD"
_WRONG_NAME: Final = (62, 64)  # OpenSSL's codes: another host's name, another address
_DENIED: Final = (
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    KafkaError.GROUP_AUTHORIZATION_FAILED,
)
_UNRESOLVED: Final = re.compile(r"Failed to resolve '(?P<host>.+?)(?::\d+)?': (?P<why>[^(]+)")
_EXPIRED: Final = (9, 10)  # not valid yet, not any more


class ConnectionRefusal(StrEnum):
    """Why a broker that listens does not answer."""

    USER = "user"  # does not know him, or his password is another
    HOST = "host"  # its certificate is for another name
    EXPIRED = "expired"  # its certificate is out of its time
    AUTHORITY = "authority"  # nobody trusted vouches for its certificate
    NO_TLS = "no-tls"
    CLIENT = "client"  # does not take this client's certificate, or asks for one
    TLS = "tls"  # speaks it, and this client does not


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitLimits:
    """How long an answer is waited for, in seconds."""

    request: float = REQUEST_SECONDS_MAX  # in all
    refused: float = REFUSED_SECONDS_MAX  # until a refusal is taken for one
    probe: float = PROBE_SECONDS_MAX  # by hand


class UnreachableError(AssignerError):
    """No broker answers, or not to this client."""

    def __init__(self, message: str, refusal: ConnectionRefusal | None = None) -> None:
        self.refusal = refusal  # None: not known
        super().__init__(message)


WAIT_LIMITS: Final = WaitLimits()


class Complaints:
    """What a client says between requests; `note` is given to it as `error_cb`."""

    def __init__(self) -> None:
        self._errors: list[KafkaError] = []

    def note(self, error: KafkaError) -> None:
        """Keep one."""
        if len(self._errors) < _COMPLAINTS_MAX:
            self._errors.append(error)

    def has(self, code: int) -> bool:
        return any(error.code() == code for error in self._errors)

    def says(self, words: str) -> bool:
        return any(words in error.str() for error in self._errors)

    def unknown_hosts(self) -> dict[str, str]:
        """The host names that were not found, each with the reason of the system's resolver."""
        found = (
            _UNRESOLVED.search(error.str())
            for error in self._errors
            if error.code() == KafkaError._RESOLVE
        )
        return {each["host"]: each["why"].strip() for each in found if each is not None}


def ask_topics(
    client: AdminClient | Producer | Consumer,
    settings: Mapping[str, Any],
    complaints: Complaints,
    limits: WaitLimits | None = None,
) -> ClusterMetadata:
    """The topics that this client may see.

    Args:
        client: made with the settings, and with `complaints.note` as `error_cb`.

    Raises:
        UnreachableError: no broker answers; it says why and what to do.
    """
    limits = limits or WAIT_LIMITS
    deadline = time.monotonic() + limits.request
    seconds = limits.refused
    while True:
        try:
            return client.list_topics(timeout=seconds)
        except KafkaException as reason:
            client.poll(0)  # The complaints are told here.
            seconds = deadline - time.monotonic()
            found = _fault(settings, complaints, limits.probe)
            if found is not None:
                refusal, message = found
                raise UnreachableError(f"Kafka at {message}", refusal) from reason
            if seconds < ANSWER_SECONDS_LEAST:
                raise UnreachableError(_silence(settings, complaints, reason)) from reason


def host_not_found(unknown: Mapping[str, str]) -> str:
    """The sentence about host names that were not found, each with the resolver's reason."""
    names = ", ".join(repr(each) for each in sorted(unknown))
    reasons = ", ".join(sorted({*unknown.values()}))
    what = f"host name {names} was" if len(unknown) == 1 else f"host names {names} were"
    return f"{what} not found ({reasons})"


def described(error: KafkaError) -> str:
    """librdkafka's sentence, and what to do where a right is missing."""
    return f"{error.str()}; {GRANTING}" if error.code() in _DENIED else str(error.str())


def _fault(
    settings: Mapping[str, Any], complaints: Complaints, seconds: float
) -> tuple[ConnectionRefusal, str] | None:
    """What waiting will not mend; None: nothing is known."""
    servers = address(settings)
    if complaints.has(KafkaError._AUTHENTICATION):
        return (
            ConnectionRefusal.USER,
            f"{servers} refuses user {settings.get('sasl.username')!r}: name or password is "
            f"wrong, or it has none for {settings.get('sasl.mechanism')}; check {_USER}",
        )
    unknown = complaints.unknown_hosts()
    known = [each for each in servers.split(",") if _host(each) not in unknown]
    if not known:
        return None
    server = known[0]
    host, _, port = server.rpartition(":")
    protocol = str(settings.get("security.protocol", "PLAINTEXT"))
    found: tuple[ConnectionRefusal, str] | None
    try:
        with socket.create_connection((host.strip("[]"), int(port)), seconds) as probe:
            if protocol.endswith("SSL"):
                found = _tls_fault(probe, host, settings, complaints)
            else:
                found = _plain_fault(probe, protocol)
    except OSError:
        return None
    return None if found is None else (found[0], f"{server} {found[1]}")


def _silence(settings: Mapping[str, Any], complaints: Complaints, reason: KafkaException) -> str:
    """That nobody answers, and what to check."""
    nobody = f"no Kafka broker answers at {address(settings)}"
    unknown = complaints.unknown_hosts() or _not_found(settings)
    if not unknown:
        return (
            f"{nobody} ({reason.args[0].str()}); check the address and that it runs"
            f"{_hint(settings)}"
        )
    others = [each for each in address(settings).split(",") if _host(each) not in unknown]
    also = f", and that {', '.join(others)} runs" if others else " and this machine's name service"
    return f"{nobody}: {host_not_found(unknown)}; check bootstrap servers{also}"


def _not_found(settings: Mapping[str, Any]) -> dict[str, str]:
    """The host names that this machine does not find, where the client had no time to complain."""
    found = {}
    for host in map(_host, address(settings).split(",")):
        try:
            socket.getaddrinfo(host.strip("[]"), None)
        except socket.gaierror as reason:
            found[host] = str(reason.strerror)
    return found


def _host(server: str) -> str:
    """Of host:port, as librdkafka names it."""
    return server.rpartition(":")[0]


def _hint(settings: Mapping[str, Any]) -> str:
    """Where a port speaks TLS and is silent then, as one that waits for a name."""
    if settings.get("security.protocol") != "SSL":
        return ""
    return f"; if it asks for a user, set {_PROTOCOL} to SASL_SSL, with {_USER}"


def _tls_fault(
    probe: socket.socket, host: str, settings: Mapping[str, Any], complaints: Complaints
) -> tuple[ConnectionRefusal, str] | None:
    """What is wrong with a port that is to speak TLS."""
    context = tls_context(settings)
    try:
        context.wrap_socket(probe, server_hostname=host.strip("[]")).close()
    except ssl.SSLCertVerificationError as reason:
        if reason.verify_code in _WRONG_NAME:
            return (
                ConnectionRefusal.HOST,
                f"shows a certificate for another host ({reason.verify_message}); name the broker "
                "as its certificate does, or give it a certificate for this name",
            )
        if reason.verify_code in _EXPIRED:
            return (
                ConnectionRefusal.EXPIRED,
                f"shows a certificate out of its time ({reason.verify_message}); renew it",
            )
        return (
            ConnectionRefusal.AUTHORITY,
            f"shows a certificate that no trusted authority vouches for ({reason.verify_message}); "
            "put the authority's certificate into SPU_ASSIGNER_SSL_CA_FILE",
        )
    except TimeoutError:
        return None
    except OSError:  # It hangs up, or answers in no TLS.
        return (
            ConnectionRefusal.NO_TLS,
            f"does not speak TLS, and {_PROTOCOL} is {settings['security.protocol']}; "
            "name its port for TLS",
        )
    if complaints.says("certificate") or complaints.says("SSL alert"):
        return (
            ConnectionRefusal.CLIENT,
            f"does not take this client's certificate, or asks for one; check {_CERTIFICATE}",
        )
    return None


def tls_context(settings: Mapping[str, Any]) -> ssl.SSLContext:
    """What verifies certificate and host name as a client with these settings does."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if (authority := settings.get("ssl.ca.location")) is None:
        context.load_default_certs()
    else:
        context.load_verify_locations(authority)
    return context


def _plain_fault(probe: socket.socket, protocol: str) -> tuple[ConnectionRefusal, str] | None:
    """That a port which is to speak plainly speaks TLS."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE  # Nothing is sent: it is only asked whether it speaks TLS.
    try:
        context.wrap_socket(probe).close()
    except OSError:
        return None
    message = f"speaks TLS, and {_PROTOCOL} is {protocol}; set it to SASL_SSL, or SSL"
    return ConnectionRefusal.TLS, message
