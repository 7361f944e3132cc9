"""Security settings: one description for all clients, and secrets that nothing shows."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from spu_assigner.stream.kafka.config.secret import SIZE_MAX
from spu_assigner.stream.kafka.config.security import Mechanism, Protocol, Security
from spu_assigner.stream.kafka.config.settings import SPECS, Settings, SettingsError
from support.kafka.secured import openssl

CANARY = "canary-4711"


def env(**given: object) -> dict[str, str]:
    """Variables of ours by their short names."""
    return {f"SPU_ASSIGNER_{name}": str(value) for name, value in given.items()}


USER = env(SECURITY_PROTOCOL="SASL_SSL", SASL_USERNAME="job", SASL_PASSWORD=CANARY)
NO_PASSWORD = env(SECURITY_PROTOCOL="SASL_SSL", SASL_USERNAME="job")


def written(path: Path, text: str, mode: int = 0o600) -> Path:
    path.write_text(text, encoding="utf-8")
    path.chmod(mode)
    return path


def refusal(environ: dict[str, str], file: Path | None = None) -> str:
    with pytest.raises(SettingsError) as caught:
        Settings.load(environ=environ, file=file)
    assert CANARY not in str(caught.value)
    assert CANARY not in repr(caught.value)
    assert caught.value.exit_status == 2
    return str(caught.value)


@pytest.fixture
def machine(tmp_path: Path) -> dict[str, str]:
    """A client with a certificate; beside its key another one, and one that asks for a password."""
    made = ("-keyout", "client.key", "-out", "client.pem", "-subj", "/CN=client")
    openssl("req", "-x509", "-newkey", "ed25519", "-nodes", *made, cwd=tmp_path)
    openssl("genpkey", "-algorithm", "ed25519", "-out", "other", cwd=tmp_path)
    locked = ("-in", "client.key", "-out", "locked", "-passout", f"pass:{CANARY}")
    openssl("pkcs8", "-topk8", *locked, cwd=tmp_path)
    return env(
        SECURITY_PROTOCOL="SSL",
        SSL_CERTIFICATE_FILE=tmp_path / "client.pem",
        SSL_KEY_FILE=tmp_path / "client.key",
    )


def test_a_user_is_said_to_librdkafka_and_referred_to_for_spark(machine: dict[str, str]) -> None:
    """What Spark is given it shows in its UI and writes to its event log."""
    ca = machine["SPU_ASSIGNER_SSL_CERTIFICATE_FILE"]
    connection = Settings.load(environ={**USER, **env(SSL_CA_FILE=ca)}).connection()
    assert connection.client() == {
        "bootstrap.servers": "127.0.0.1:9092",
        "security.protocol": "SASL_SSL",
        "enable.ssl.certificate.verification": True,
        "ssl.endpoint.identification.algorithm": "https",
        "ssl.ca.location": ca,
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "job",
        "sasl.password": CANARY,
    }
    assert connection.spark() == {
        "kafka.bootstrap.servers": "127.0.0.1:9092",
        "kafka.security.protocol": "SASL_SSL",
        "kafka.ssl.endpoint.identification.algorithm": "https",
        "kafka.ssl.truststore.type": "PEM",
        "kafka.ssl.truststore.location": ca,
        "kafka.sasl.mechanism": "SCRAM-SHA-512",
        "kafka.sasl.jaas.config": "org.apache.kafka.common.security.scram.ScramLoginModule "
        'required username="job" password="${env:SPU_ASSIGNER_SASL_PASSWORD}\n;',
        "kafka.config.providers": "env",
        "kafka.config.providers.env.class": "org.apache.kafka.common.config.provider."
        "EnvVarConfigProvider",
        "kafka.config.providers.env.param.allowlist.pattern": "SPU_ASSIGNER_SASL_PASSWORD",
    }


def test_a_certificate_is_said_to_librdkafka_and_referred_to_for_spark(
    machine: dict[str, str], tmp_path: Path
) -> None:
    """Java wants the same two files, by content."""
    security = Settings.load(environ=machine).connection().security
    assert security.client() == {
        "security.protocol": "SSL",
        "enable.ssl.certificate.verification": True,
        "ssl.endpoint.identification.algorithm": "https",
        "ssl.certificate.location": f"{tmp_path}/client.pem",
        "ssl.key.location": f"{tmp_path}/client.key",
    }
    assert security.spark() == {
        "kafka.security.protocol": "SSL",
        "kafka.ssl.endpoint.identification.algorithm": "https",
        "kafka.ssl.keystore.type": "PEM",
        "kafka.ssl.keystore.certificate.chain": f"${{dir:{tmp_path}:client.pem}}",
        "kafka.ssl.keystore.key": f"${{dir:{tmp_path}:client.key}}",
        "kafka.config.providers": "dir",
        "kafka.config.providers.dir.class": "org.apache.kafka.common.config.provider."
        "DirectoryConfigProvider",
        "kafka.config.providers.dir.param.allowed.paths": str(tmp_path),
    }


def test_a_secret_is_in_no_representation(tmp_path: Path) -> None:
    """Logs and tracebacks print settings, and everybody on a machine can read command lines."""
    file = written(tmp_path / "password", CANARY + "\n")
    for environ in (USER, {**NO_PASSWORD, **env(SASL_PASSWORD_FILE=file)}):
        settings = Settings.load(environ=environ)
        password = settings.security.sasl_password
        assert password is not None
        assert password.value == CANARY
        shown = [settings, settings.connection(), password]
        assert CANARY not in " ".join([*map(repr, shown), *map(str, shown)])
        assert CANARY not in str(settings.connection().spark())
    assert [spec.name for spec in SPECS if spec.is_secret] == ["sasl_password"]


def test_a_settings_file_names_a_secret_s_file_and_holds_none(tmp_path: Path) -> None:
    """Settings files are shared and checked in."""
    bad = written(tmp_path / "bad.toml", f'sasl_password = "{CANARY}"\n')
    assert "expected sasl_password_file, the path of a file" in refusal(NO_PASSWORD, bad)
    secret = written(tmp_path / "secret", CANARY)
    good = written(tmp_path / "good.toml", f'sasl_password_file = "{secret}"\n', 0o644)
    password = Settings.load(environ=NO_PASSWORD, file=good).security.sasl_password
    assert password is not None
    assert password.value == CANARY


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o644, 0o660, 0o610])
def test_a_secret_s_file_that_others_may_open_is_refused(tmp_path: Path, mode: int) -> None:
    """Who can read it is the user."""
    file = written(tmp_path / "password", CANARY, mode)
    assert refusal(env(SASL_PASSWORD_FILE=file)) == (
        f"SPU_ASSIGNER_SASL_PASSWORD_FILE is {file}, which is open to others (mode {mode:04o}): "
        f"`chmod 600 {file}`; expected a file of this user's with mode 0600"
    )


def test_a_secret_s_file_is_a_plain_small_file_of_the_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A FIFO would hold the start up, a device would never end; another user could change it."""
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo, 0o600)
    large = written(tmp_path / "large", "x" * (SIZE_MAX + 1))
    for path, message in (
        (fifo, "which is not a regular file"),
        (large, f"which has more than {SIZE_MAX} bytes"),
        (tmp_path / "none", "which cannot be read: No such file"),
        (Path("with:colon"), "expected a file's path, without any of"),
    ):
        assert message in refusal(env(SASL_PASSWORD_FILE=path))
    owner = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    message = refusal(env(SASL_PASSWORD_FILE=large))
    assert f"which belongs to user {owner}, not to {owner + 1}" in message


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (
            env(SASL_PASSWORD=""),
            "SPU_ASSIGNER_SASL_PASSWORD or SPU_ASSIGNER_SASL_PASSWORD_FILE is not set; expected",
        ),
        (env(SASL_USERNAME=""), "SPU_ASSIGNER_SASL_USERNAME is not set; expected"),
        (env(SASL_USERNAME='a"b'), "expected a name without quotes"),
        (env(SASL_PASSWORD_FILE="f"), "SPU_ASSIGNER_SASL_PASSWORD_FILE too; expected"),
        (env(SASL_PASSWORD=f"{CANARY}\\"), "expected one line without a backslash"),
        (env(SASL_PASSWORD=f"{CANARY}\n"), "expected one line without a backslash"),
        (env(SASL_PASSWORD=f"'{CANARY}\""), "not with both kinds of quotes"),
        (
            env(SECURITY_PROTOCOL="PLAINTEXT"),
            "SPU_ASSIGNER_SASL_USERNAME is set, and SPU_ASSIGNER_SECURITY_PROTOCOL is PLAINTEXT; "
            "expected SASL_SSL or SASL_PLAINTEXT there, or nothing here",
        ),
        (env(SECURITY_PROTOCOL="SSL"), "expected SASL_SSL or SASL_PLAINTEXT there, or nothing"),
        (
            env(SECURITY_PROTOCOL="SASL_PLAINTEXT", SSL_CA_FILE="ca.pem"),
            "expected SSL or SASL_SSL there, or nothing here",
        ),
        (env(SECURITY_PROTOCOL="TLS"), "expected PLAINTEXT, SSL, SASL_SSL, SASL_PLAIN"),
        (env(SASL_MECHANISM="GSSAPI"), "expected SCRAM-SHA-512, SCRAM-SHA-256, PLAIN"),
    ],
)
def test_what_does_not_go_together_is_reported(changed: dict[str, str], message: str) -> None:
    """A password that is silently not used is a job that everybody can be."""
    assert message in refusal({**USER, **changed})


def test_files_that_hold_something_else_are_reported(
    machine: dict[str, str], tmp_path: Path
) -> None:
    """Each client would refuse them in words of its own, after Spark has started."""
    files = {
        "none": "no PEM",
        "old": "-----BEGIN RSA PRIVATE KEY-----\nAAAA\n-----END RSA PRIVATE KEY-----\n",
    }
    for name, text in files.items():
        written(tmp_path / name, text)
    for changed, message in (
        (env(SSL_CA_FILE=tmp_path / "none"), "no certificate (NO_CERTIFICATE_OR_CRL_FOUND); exp"),
        (env(SSL_CERTIFICATE_FILE=tmp_path / "none"), "which cannot be used ("),
        (env(SSL_CERTIFICATE_FILE=""), "SPU_ASSIGNER_SSL_CERTIFICATE_FILE is not set; expected"),
        (env(SSL_KEY_FILE=""), "SPU_ASSIGNER_SSL_KEY_FILE is not set; expected"),
        (env(SSL_KEY_FILE=tmp_path / "other"), "used (KEY_VALUES_MISMATCH); expected a cert"),
        (env(SSL_KEY_FILE=tmp_path / "old"), "expected what `openssl pkcs8 -topk8 -nocrypt"),
        (env(SSL_KEY_FILE=tmp_path / "locked"), "expected what `openssl pkcs8 -topk8 -nocrypt"),
    ):
        assert message in refusal({**machine, **changed})
    Path(machine["SPU_ASSIGNER_SSL_KEY_FILE"]).chmod(0o644)
    assert "which is open to others (mode 0644)" in refusal(machine)


def test_a_password_with_one_kind_of_quotes_is_put_between_the_others() -> None:
    """The line that Java reads is made of it inside the client."""
    for password, begin in (("it's", '"'), ('a "b"', "'")):
        options = (
            Settings.load(environ={**USER, **env(SASL_PASSWORD=password)}).connection().spark()
        )
        line = f"password={begin}${{env:SPU_ASSIGNER_SASL_PASSWORD}}\n;"
        assert options["kafka.sasl.jaas.config"].endswith(line)


@pytest.mark.parametrize("mechanism", Mechanism)
@pytest.mark.parametrize("protocol", Protocol)
def test_a_listener_without_encryption_is_warned_of(
    protocol: Protocol, mechanism: Mechanism
) -> None:
    """It is allowed: some networks encrypt by themselves."""
    warning = Security(security_protocol=protocol, sasl_mechanism=mechanism).warning or ""
    assert bool(warning) == (protocol is Protocol.SASL_PLAINTEXT)
    assert ("and the password" in warning) == (bool(warning) and mechanism is Mechanism.PLAIN)
