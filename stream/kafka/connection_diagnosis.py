"""An admin client that reports why Kafka does not answer, in one line with what to do.

librdkafka reports a wrong host name in a certificate and an unknown authority in the same words,
and a wrong protocol only by silence. So after a failure the port is tried once more by hand. A name
that is in no name service fails every request as any lost connection does; only the errors that the
client reports between requests name it.
"""

from __future__ import annotations

import re
import socket
import ssl
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient
from spu_assigner.stream.kafka.config.connection import address
from spu_assigner.stream.kafka.config.security import tls_context
from spu_assigner.stream.kafka.errors import REQUEST_SECONDS_MAX, ClientError, error_text

if TYPE_CHECKING:
    from confluent_kafka.admin import ClusterMetadata

ANSWER_SECONDS_LEAST: Final = 0.05  # with less left there is no point in asking again
_ERRORS_MAX: Final = 100  # a client reports several a second
_PROTOCOL: Final = "SPU_ASSIGNER_SECURITY_PROTOCOL"
_CERTIFICATE: Final = "SPU_ASSIGNER_SSL_CERTIFICATE_FILE and SPU_ASSIGNER_SSL_KEY_FILE"
_USER: Final = "SPU_ASSIGNER_SASL_USERNAME and SPU_ASSIGNER_SASL_PASSWORD"
_UNRESOLVED: Final = re.compile(r"Failed to resolve '(?P<host>.+?)(?::\d+)?': (?P<why>[^(]+)")


class ConnectionRefusal(StrEnum):
    """Why a broker that listens does not answer."""

    USER = "user"  # does not know the user, or the password is another
    HOST = "host"  # its certificate is for another name
    EXPIRED = "expired"  # its certificate is not valid yet, or no longer
    AUTHORITY = "authority"  # its certificate is signed by no trusted authority
    NO_TLS = "no-tls"
    CLIENT = "client"  # does not take this client's certificate, or asks for one
    TLS = "tls"  # speaks it, and this client does not


_Refused = tuple[ConnectionRefusal, str]

_WRONG_NAME: Final = (
    "shows a certificate for another host ({}); name the broker as its certificate does, or give "
    "it a certificate for this name"
)
_OUT_OF_DATE: Final = "shows a certificate out of its time ({}); renew it"
_UNTRUSTED: Final = (
    ConnectionRefusal.AUTHORITY,
    "shows a certificate that no trusted authority vouches for ({}); put the authority's "
    "certificate into SPU_ASSIGNER_SSL_CA_FILE",
)
# By OpenSSL's code; the other codes are about the authority.
_CERTIFICATE_FAULTS: Final[Mapping[int, _Refused]] = {
    **dict.fromkeys((9, 10), (ConnectionRefusal.EXPIRED, _OUT_OF_DATE)),
    **dict.fromkeys((62, 64), (ConnectionRefusal.HOST, _WRONG_NAME)),  # of a host, of an address
}


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitLimits:
    """How long an answer is waited for, in seconds."""

    request: float = REQUEST_SECONDS_MAX  # in all
    refused: float = 3.0  # until a refusal is one: a new broker may not know its users yet
    probe: float = 3.0  # by hand


WAIT_LIMITS: Final = WaitLimits()


class UnreachableError(ClientError):
    """No broker answers, or not to this client."""

    def __init__(self, message: str, refusal: ConnectionRefusal | None = None) -> None:
        self.refusal = refusal  # None: not known
        super().__init__(message)


class DiagnosedAdmin(AdminClient):  # type: ignore[misc]  # confluent-kafka's types are half done
    """An admin client that reports why no broker answers."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self._settings = settings
        self._servers = address(settings)
        self._errors: deque[KafkaError] = deque(maxlen=_ERRORS_MAX)
        try:
            # Errors are reported once, by an exception, and not by librdkafka's log as well.
            super().__init__({"log_level": 0, "error_cb": self._errors.append, **settings})
        except (KafkaException, TypeError) as reason:
            raise ClientError(
                f"Kafka's client refuses its settings: {error_text(reason)}; "
                "change the security setting that it names"
            ) from reason

    def close(self) -> None:
        """Close the client's connections and threads."""
        self.__exit__(None, None, None)

    def metadata(self, limits: WaitLimits | None = None) -> ClusterMetadata:
        """The brokers, and the topics that this user may see.

        Asks for all topics: asking for one would create it where the broker does so by itself.
        """
        limits = limits or WAIT_LIMITS  # looked up now: tests set shorter ones
        deadline = time.monotonic() + limits.request
        seconds = limits.refused
        while True:
            try:
                return self.list_topics(timeout=seconds)
            except KafkaException as reason:
                self.poll(0)  # The client reports its errors here.
                seconds = deadline - time.monotonic()
                if (found := self._refusal(limits.probe)) is not None:
                    raise UnreachableError(f"Kafka at {found[1]}", found[0]) from reason
                if seconds < ANSWER_SECONDS_LEAST:
                    raise UnreachableError(self._silence(reason)) from reason

    def unknown_hosts(self) -> dict[str, str]:
        """The host names that were not found, each with the reason of the system's resolver."""
        unknown = {}
        for error in self._errors:
            found = _UNRESOLVED.search(error.str())
            if error.code() == KafkaError._RESOLVE and found is not None:
                unknown[found["host"]] = found["why"].strip()
        return unknown

    def _refusal(self, seconds: float) -> _Refused | None:
        """What waiting will not fix; None: nothing is known."""
        if any(error.code() == KafkaError._AUTHENTICATION for error in self._errors):
            return (
                ConnectionRefusal.USER,
                f"{self._servers} refuses user {self._settings.get('sasl.username')!r}: name or "
                "password is wrong, or it has none for "
                f"{self._settings.get('sasl.mechanism')}; check {_USER}",
            )
        unknown = self.unknown_hosts()
        for server in self._servers.split(","):
            if (host := _host(server)) in unknown:
                continue
            place = host.strip("[]"), int(server.rpartition(":")[2])
            try:
                with socket.create_connection(place, seconds) as probe:
                    found = self._probe(probe, place[0])
            except OSError:
                return None
            return None if found is None else (found[0], f"{server} {found[1]}")
        return None

    def _probe(self, probe: socket.socket, host: str) -> _Refused | None:
        """What is wrong with a port: it is to speak TLS and does not, or the other way round."""
        protocol = str(self._settings.get("security.protocol", "PLAINTEXT"))
        if not protocol.endswith("SSL"):
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE  # Nothing is sent; the question is: TLS or not.
            context.wrap_socket(probe).close()
            message = f"speaks TLS, and {_PROTOCOL} is {protocol}; set it to SASL_SSL, or SSL"
            return ConnectionRefusal.TLS, message
        context = tls_context(self._settings)
        try:
            context.wrap_socket(probe, server_hostname=host).close()
        except ssl.SSLCertVerificationError as reason:
            refusal, message = _CERTIFICATE_FAULTS.get(reason.verify_code, _UNTRUSTED)
            return refusal, message.format(reason.verify_message)
        except TimeoutError:
            return None
        except OSError:  # It hangs up, or answers in no TLS.
            message = f"does not speak TLS, and {_PROTOCOL} is {protocol}; name its port for TLS"
            return ConnectionRefusal.NO_TLS, message
        if any(re.search("certificate|SSL alert", error.str()) for error in self._errors):
            message = (
                f"does not take this client's certificate, or asks for one; check {_CERTIFICATE}"
            )
            return ConnectionRefusal.CLIENT, message
        return None

    def _silence(self, reason: KafkaException) -> str:
        """That no broker answers, and what to check."""
        silence = f"no Kafka broker answers at {self._servers}"
        servers = self._servers.split(",")
        if unknown := {**_not_found(servers), **self.unknown_hosts()}:
            others = ", ".join(each for each in servers if _host(each) not in unknown)
            also = f", and that {others} runs" if others else " and this machine's name service"
            return f"{silence}: {host_not_found(unknown)}; check bootstrap servers{also}"
        # A listener that waits for a user's name speaks TLS and is silent then.
        is_tls_alone = self._settings.get("security.protocol") == "SSL"
        hint = f"; if it asks for a user, set {_PROTOCOL} to SASL_SSL, with {_USER}"
        return (
            f"{silence} ({error_text(reason)}); check the address and that it runs"
            f"{hint if is_tls_alone else ''}"
        )


def host_not_found(unknown: Mapping[str, str]) -> str:
    """The sentence about host names that were not found, each with the resolver's reason."""
    names = ", ".join(repr(each) for each in sorted(unknown))
    reasons = ", ".join(sorted({*unknown.values()}))
    what = f"host name {names} was" if len(unknown) == 1 else f"host names {names} were"
    return f"{what} not found ({reasons})"


def _not_found(servers: list[str]) -> dict[str, str]:
    """The host names that this machine does not find: the client may not have reported each yet."""
    found = {}
    for host in map(_host, servers):
        try:
            socket.getaddrinfo(host.strip("[]"), None)
        except socket.gaierror as reason:
            found[host] = str(reason.strerror)
    return found


def _host(server: str) -> str:
    """Of host:port, as librdkafka names it."""
    return server.rpartition(":")[0]
