"""A Java trust store made of the certificates this machine trusts.

A packaged Java brings its own list of authorities and knows nothing of those that a company (or a
test network) has added to the machine; pip trusts them, so fetching jars should too.
"""

from __future__ import annotations

import warnings
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


def machine_bundle(environ: Mapping[str, str], *, bundles: Sequence[str] = BUNDLES) -> Path | None:
    """The PEM file of trusted authorities: `SSL_CERT_FILE`, else the machine's; None if unknown."""
    for name in (environ.get("SSL_CERT_FILE"), *bundles):
        if name and Path(name).is_file():
            return Path(name)
    return None


def trust_store(bundle: Path) -> bytes:
    """The PEM file's certificates as a PKCS#12 store, Java's own format."""
    from cryptography import x509
    from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, pkcs12

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of an authority whose serial number is 0
        certificates = x509.load_pem_x509_certificates(bundle.read_bytes())
    named = [
        pkcs12.PKCS12Certificate(certificate, f"authority-{number}".encode())
        for number, certificate in enumerate(certificates)
    ]
    return pkcs12.serialize_java_truststore(named, BestAvailableEncryption(PASSWORD.encode()))
