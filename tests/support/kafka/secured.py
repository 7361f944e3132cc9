"""A broker with TLS, SCRAM, client certificates and an authorizer, beside its plain listener.

On the plain listener everybody may do everything: there tests make users and rights. Certificates
are made by the `openssl` command.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from spu_assigner.stream.kafka.acls import Acl, Resource, Role, acls
from spu_assigner.stream.local.broker.embedded import BrokerError, EmbeddedBroker
from support.kafka.ports import START_TRIES_MAX, free_ports, is_taken

HOST = "127.0.0.1"
MECHANISMS = {
    "SCRAM-SHA-256": ScramMechanism.SCRAM_SHA_256,
    "SCRAM-SHA-512": ScramMechanism.SCRAM_SHA_512,
}
LISTENERS = ("PLAINTEXT", "CONTROLLER", "SASL_SSL", "SSL", "MISNAMED")
PLAIN_PASSWORD = "plain-password"
SUPER_USERS = ("ANONYMOUS", "CN=machine")
_RESOURCES = {
    Resource.TOPIC: ResourceType.TOPIC,
    Resource.GROUP: ResourceType.GROUP,
    Resource.TRANSACTIONAL_ID: ResourceType.TRANSACTIONAL_ID,
    Resource.CLUSTER: ResourceType.BROKER,
}
_ANY = AclBindingFilter(
    ResourceType.ANY,
    None,
    ResourcePatternType.ANY,
    None,
    None,
    AclOperation.ANY,
    AclPermissionType.ANY,
)

_SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule required;"


def openssl(*arguments: object, cwd: Path) -> None:
    command = ["openssl", *map(str, arguments)]
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificates:
    """An authority and what it signed, as PEM files."""

    folder: Path

    @classmethod
    def make(cls, folder: Path) -> Certificates:
        made = cls(folder=folder)
        made.authority("ca")
        made.authority("stranger")
        made.signed("server", subject="broker", names=f"DNS:localhost,IP:{HOST}")
        made.signed("misnamed", subject="broker", names="DNS:elsewhere.example")
        made.signed("machine", subject="machine", names="DNS:machine")
        return made

    def path(self, name: str) -> Path:
        return self.folder / name

    def authority(self, name: str) -> None:
        openssl(
            *("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"),
            *("-subj", f"/CN={name}", "-keyout", f"{name}.key", "-out", f"{name}.pem"),
            cwd=self.folder,
        )

    def signed(self, name: str, *, subject: str, names: str) -> None:
        openssl(
            *("req", "-newkey", "rsa:2048", "-nodes", "-subj", f"/CN={subject}"),
            *("-keyout", f"{name}.key", "-out", f"{name}.csr"),
            cwd=self.folder,
        )
        self.path("names").write_text(f"subjectAltName={names}\n", encoding="utf-8")
        openssl(
            *("x509", "-req", "-in", f"{name}.csr", "-CA", "ca.pem", "-CAkey", "ca.key"),
            *("-CAcreateserial", "-days", "2", "-extfile", "names", "-out", f"{name}.pem"),
            cwd=self.folder,
        )
        self.path(f"{name}.key").chmod(0o600)
        both = self.path(f"{name}.key").read_bytes() + self.path(f"{name}.pem").read_bytes()
        self.path(f"{name}.both").write_bytes(both)


@dataclass(frozen=True, slots=True, kw_only=True)
class Secured:
    """A running broker with all its listeners."""

    broker: EmbeddedBroker
    certificates: Certificates
    ports: Mapping[str, int]

    @property
    def plain(self) -> dict[str, Any]:
        """A client that may do everything."""
        return {"bootstrap.servers": self.broker.bootstrap_servers, "log_level": 0}

    def address(self, listener: str) -> str:
        return f"localhost:{self.ports[listener]}"

    def add_user(self, name: str, password: str, mechanism: str = "SCRAM-SHA-512") -> None:
        credential = UserScramCredentialUpsertion(
            name, ScramCredentialInfo(MECHANISMS[mechanism], 4096), password.encode()
        )
        with AdminClient(self.plain) as admin:
            admin.alter_user_scram_credentials([credential])[name].result(timeout=60)

    def environ(self, user: str, **changed: str) -> dict[str, str]:
        """What a user of the listener with passwords puts into his environment."""
        return {
            "KAFKA_BOOTSTRAP_SERVERS": self.address("SASL_SSL"),
            "SPU_ASSIGNER_SECURITY_PROTOCOL": "SASL_SSL",
            "SPU_ASSIGNER_SSL_CA_FILE": str(self.certificates.path("ca.pem")),
            "SPU_ASSIGNER_SASL_USERNAME": user,
            **changed,
        }

    def machine(self) -> dict[str, str]:
        """The environment of a client that shows a certificate."""
        path = self.certificates.path
        return {
            "KAFKA_BOOTSTRAP_SERVERS": self.address("SSL"),
            "SPU_ASSIGNER_SECURITY_PROTOCOL": "SSL",
            "SPU_ASSIGNER_SSL_CA_FILE": str(path("ca.pem")),
            "SPU_ASSIGNER_SSL_CERTIFICATE_FILE": str(path("machine.pem")),
            "SPU_ASSIGNER_SSL_KEY_FILE": str(path("machine.key")),
        }

    def allow(self, given: Mapping[str, Iterable[Acl]]) -> None:
        """Give users exactly these rights, and wait until the broker knows the last of them."""
        with AdminClient(self.plain) as admin:
            allow(admin, given)


def rights(prefix: str, *roles: Role) -> set[Acl]:
    """All that these roles need; a follower's is of cluster c1."""
    return {
        each
        for role in roles
        for each in acls(role, prefix=prefix, query_name="q", group="g", cluster_id="c1")
    }


def allow(admin: AdminClient, given: Mapping[str, Iterable[Acl]]) -> None:
    """Give users exactly these rights, and wait until the broker knows the last of them."""
    bindings = [
        AclBinding(
            _RESOURCES[acl.resource],
            acl.name,
            ResourcePatternType.LITERAL,
            f"User:{user}",
            "*",
            AclOperation[re.sub("(?<=[a-z])(?=[A-Z])", "_", acl.operation).upper()],
            AclPermissionType.ALLOW,
        )
        for user, acls in given.items()
        for acl in acls
    ]
    for future in admin.create_acls(bindings).values():
        future.result(timeout=60)
    deadline = time.monotonic() + 60
    while not set(bindings) <= set(admin.describe_acls(_ANY).result(timeout=60)):
        assert time.monotonic() < deadline, "the broker does not know the rights"
        time.sleep(0.05)


@contextmanager
def secured_broker(folder: Path, *, plain_users: Iterable[str] = ()) -> Iterator[Secured]:
    """Start it; its certificates lie in the folder.

    Args:
        plain_users: names for the mechanism PLAIN, all with one password; they cost nothing.
    """
    assert shutil.which("openssl"), "the certificates are made by the command openssl"
    certificates = Certificates.make(folder)
    users = " ".join(f'user_{name}="{PLAIN_PASSWORD}"' for name in plain_users)
    for tries in range(1, START_TRIES_MAX + 1):
        ports = dict(zip(LISTENERS, free_ports(len(LISTENERS)), strict=True))
        settings = _settings(certificates, ports, users)
        broker = EmbeddedBroker(port=ports["PLAINTEXT"], settings=settings)
        try:
            broker.start()  # Its own tries are all on these ports.
        except BrokerError as reason:
            broker.close()
            if tries == START_TRIES_MAX or not is_taken(reason):
                raise
        else:
            break
    with broker:
        yield Secured(broker=broker, certificates=certificates, ports=ports)


def _settings(
    certificates: Certificates, ports: Mapping[str, int], plain_users: str
) -> dict[str, str]:
    return {
        "listeners": ",".join(f"{name}://{HOST}:{port}" for name, port in ports.items()),
        "advertised.listeners": ",".join(
            f"{name}://{'localhost' if name != 'PLAINTEXT' else HOST}:{port}"
            for name, port in ports.items()
            if name != "CONTROLLER"
        ),
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,"
        "SASL_SSL:SASL_SSL,SSL:SSL,MISNAMED:SSL",
        "controller.quorum.voters": f"1@{HOST}:{ports['CONTROLLER']}",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(certificates.path("ca.pem")),
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(certificates.path("server.both")),
        "listener.name.misnamed.ssl.keystore.type": "PEM",
        "listener.name.misnamed.ssl.keystore.location": str(certificates.path("misnamed.both")),
        "listener.name.ssl.ssl.client.auth": "required",
        "sasl.enabled.mechanisms": "SCRAM-SHA-512,SCRAM-SHA-256,PLAIN",
        "listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config": _SCRAM,
        "listener.name.sasl_ssl.scram-sha-256.sasl.jaas.config": _SCRAM,
        "listener.name.sasl_ssl.plain.sasl.jaas.config": "org.apache.kafka.common.security.plain."
        f"PlainLoginModule required {plain_users};",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": ";".join(f"User:{user}" for user in SUPER_USERS),
    }
