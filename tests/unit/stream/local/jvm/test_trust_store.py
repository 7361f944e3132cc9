"""The trust store made for a packaged Java, read back by a real Java."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from spu_assigner.stream.local.jvm.java import JavaError, ensure_java
from spu_assigner.stream.local.jvm.trust_store import PASSWORD, machine_bundle, trust_store


def test_java_reads_every_certificate_of_the_machine(tmp_path: Path) -> None:
    """One wrong byte and Java trusts nobody."""
    bundle = machine_bundle({})
    if bundle is None:
        pytest.skip("this machine has no known file of certificates")
    try:
        keytool = ensure_java().home / "bin" / "keytool"
    except JavaError as reason:
        pytest.skip(str(reason))
    store = tmp_path / "trust.p12"
    store.write_bytes(trust_store(bundle))
    command = [keytool, "-list", "-keystore", store, "-storepass", PASSWORD]
    output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    authorities = bundle.read_bytes().count(b"-----BEGIN CERTIFICATE-----")
    assert output.count("trustedCertEntry") == authorities > 0


def test_the_file_the_user_names_comes_first(tmp_path: Path) -> None:
    """SSL_CERT_FILE is how a company's own authority is given to most programs."""
    named = tmp_path / "company.pem"
    named.touch()
    assert machine_bundle({"SSL_CERT_FILE": str(named)}) == named
    assert machine_bundle({}, bundles=[str(tmp_path / "none")]) is None
