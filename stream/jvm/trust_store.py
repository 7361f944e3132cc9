"""A Java trust store made of the certificates this machine trusts.

A packaged Java brings its own list of authorities and knows nothing of those that a company (or a
test network) has added to the machine; pip trusts them, so fetching jars should too.
"""

from __future__ import annotations

import hashlib
import ssl
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

PASSWORD: Final = "changeit"  # Java's customary one: the store holds public certificates only
BUNDLES: Final = (
    "/etc/ssl/certs/ca-certificates.crt",  # Debian, Alpine, Arch
    "/etc/pki/tls/certs/ca-bundle.crt",  # Fedora, RHEL
    "/etc/ssl/ca-bundle.pem",  # SUSE
    "/etc/ssl/cert.pem",  # macOS, BSD
)

_MAGIC: Final = 0xFEEDFEED
_VERSION: Final = 2
_TRUSTED_CERTIFICATE: Final = 2
_SALT: Final = b"Mighty Aphrodite"  # part of the format


def machine_bundle(environ: Mapping[str, str], *, bundles: Sequence[str] = BUNDLES) -> Path | None:
    """The PEM file of trusted authorities: `SSL_CERT_FILE`, else the machine's; None if unknown."""
    for name in (environ.get("SSL_CERT_FILE"), *bundles):
        if name and Path(name).is_file():
            return Path(name)
    return None


def trust_store(bundle: Path) -> bytes:
    """The PEM file's certificates as a Java key store (JKS), which every Java reads."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(cafile=bundle)
    certificates = context.get_ca_certs(binary_form=True)
    parts = [struct.pack(">III", _MAGIC, _VERSION, len(certificates))]
    for number, certificate in enumerate(certificates):
        parts += [
            struct.pack(">I", _TRUSTED_CERTIFICATE),
            _text(f"authority-{number}"),
            struct.pack(">Q", 0),  # when it was added: not told, so that the same list is the same
            _text("X.509"),
            struct.pack(">I", len(certificate)),
            certificate,
        ]
    store = b"".join(parts)
    return store + hashlib.sha1(PASSWORD.encode("utf-16-be") + _SALT + store).digest()


def _text(value: str) -> bytes:
    encoded = value.encode()
    return struct.pack(">H", len(encoded)) + encoded
