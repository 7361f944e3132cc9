"""Security settings: one description for both clients, and secrets that nothing shows."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from spu_assigner.stream.config.connection import Connection
from spu_assigner.stream.config.secret import SIZE_MAX
from spu_assigner.stream.config.security import Mechanism, Protocol, Security
from spu_assigner.stream.config.settings import SPECS, Settings, SettingsError

CANARY = "canary-4711"
USER = {
    "SPU_ASSIGNER_SECURITY_PROTOCOL": "SASL_SSL",
    "SPU_ASSIGNER_SASL_USERNAME": "job",
    "SPU_ASSIGNER_SASL_PASSWORD": CANARY,
}
PEM = "-----BEGIN {0}-----\nAAAA\n-----END {0}-----\n"


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
    """A client with a certificate."""
    certificate = written(tmp_path / "client.pem", PEM.format("CERTIFICATE"), 0o644)
    key = written(tmp_path / "client.key", PEM.format("PRIVATE KEY"))
    return {
        "SPU_ASSIGNER_SECURITY_PROTOCOL": "SSL",
        "SPU_ASSIGNER_SSL_CERTIFICATE_FILE": str(certificate),
        "SPU_ASSIGNER_SSL_KEY_FILE": str(key),
    }


def test_by_default_nothing_is_asked_of_a_client() -> None:
    """The embedded broker listens on the loopback and speaks plainly."""
    connection = Settings.load(environ={}).connection()
    assert connection.security == Security()
    assert connection.client() == {"bootstrap.servers": "127.0.0.1:9092"}
    assert connection.spark() == {"kafka.bootstrap.servers": "127.0.0.1:9092"}


def test_a_user_is_said_to_librdkafka_and_referred_to_for_spark(tmp_path: Path) -> None:
    """What Spark is given it shows in its UI and writes to its event log."""
    ca = written(tmp_path / "ca.pem", PEM.format("CERTIFICATE"), 0o644)
    connection = Settings.load(environ={**USER, "SPU_ASSIGNER_SSL_CA_FILE": str(ca)}).connection()
    assert connection.client() == {
        "bootstrap.servers": "127.0.0.1:9092",
        "security.protocol": "SASL_SSL",
        "enable.ssl.certificate.verification": True,
        "ssl.endpoint.identification.algorithm": "https",
        "ssl.ca.location": str(ca),
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "job",
        "sasl.password": CANARY,
    }
    assert connection.spark() == {
        "kafka.bootstrap.servers": "127.0.0.1:9092",
        "kafka.security.protocol": "SASL_SSL",
        "kafka.ssl.endpoint.identification.algorithm": "https",
        "kafka.ssl.truststore.type": "PEM",
        "kafka.ssl.truststore.location": str(ca),
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
    """Logs and tracebacks print settings."""
    file = written(tmp_path / "password", CANARY + "\n")
    in_file = {**USER, "SPU_ASSIGNER_SASL_PASSWORD_FILE": str(file)}
    del in_file["SPU_ASSIGNER_SASL_PASSWORD"]
    for environ in (USER, in_file):
        settings = Settings.load(environ=environ)
        assert settings.sasl_password is not None
        assert settings.sasl_password.value == CANARY
        shown = [settings, settings.connection(), settings.sasl_password]
        assert CANARY not in " ".join([*map(repr, shown), *map(str, shown)])
        assert CANARY not in str(settings.connection().spark())


def test_a_secret_has_no_flag() -> None:
    """Everybody on a machine can read command lines."""
    secrets = [spec.name for spec in SPECS if spec.is_secret]
    assert secrets == ["sasl_password", "ssl_key_password"]
    for name in secrets:
        with pytest.raises(TypeError, match="is no setting with a flag"):
            Settings.load(flags={name: CANARY}, environ={})


def test_a_secret_in_the_settings_file_is_refused_and_its_file_s_name_is_not(
    tmp_path: Path,
) -> None:
    """Settings files are shared and checked in."""
    without = {name: USER[name] for name in USER if not name.endswith("PASSWORD")}
    bad = written(tmp_path / "bad.toml", f'sasl_password = "{CANARY}"\n')
    assert "expected sasl_password_file, the path of a file" in refusal(without, bad)
    secret = written(tmp_path / "secret", CANARY)
    good = written(tmp_path / "good.toml", f'sasl_password_file = "{secret}"\n', 0o644)
    settings = Settings.load(environ=without, file=good)
    assert settings.sasl_password is not None
    assert settings.sasl_password.value == CANARY


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o644, 0o660, 0o610])
def test_a_secret_s_file_that_others_may_open_is_refused(tmp_path: Path, mode: int) -> None:
    """Who can read it is the user."""
    file = written(tmp_path / "password", CANARY, mode)
    environ = {"SPU_ASSIGNER_SASL_PASSWORD_FILE": str(file)}
    assert refusal(environ) == (
        f"SPU_ASSIGNER_SASL_PASSWORD_FILE is {file}, which is open to others (mode {mode:04o}): "
        f"`chmod 600 {file}`; expected a file of this user's with mode 0600"
    )


def test_a_secret_s_file_of_another_user_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """He could change it."""
    file = written(tmp_path / "password", CANARY)
    owner = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    told = refusal({"SPU_ASSIGNER_SASL_PASSWORD_FILE": str(file)})
    assert f"which belongs to user {owner}, not to {owner + 1}" in told


def test_what_is_no_plain_small_file_is_refused(tmp_path: Path) -> None:
    """A FIFO would hold the start up, a device would never end."""
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo, 0o600)
    large = written(tmp_path / "large", "x" * (SIZE_MAX + 1))
    for path, told in (
        (fifo, "which is not a regular file"),
        (tmp_path, "which is not a regular file"),
        (large, f"which has more than {SIZE_MAX} bytes"),
        (tmp_path / "none", "which cannot be read: No such file"),
        (Path("with:colon"), "expected a file's path, without any of"),
    ):
        assert told in refusal({"SPU_ASSIGNER_SASL_PASSWORD_FILE": str(path)})


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        (
            {"SPU_ASSIGNER_SASL_PASSWORD": ""},
            "SPU_ASSIGNER_SASL_PASSWORD or SPU_ASSIGNER_SASL_PASSWORD_FILE is not set; expected",
        ),
        ({"SPU_ASSIGNER_SASL_USERNAME": ""}, "SPU_ASSIGNER_SASL_USERNAME is not set; expected"),
        ({"SPU_ASSIGNER_SASL_USERNAME": 'a"b'}, "expected a name without quotes"),
        ({"SPU_ASSIGNER_SASL_PASSWORD_FILE": "f"}, "SPU_ASSIGNER_SASL_PASSWORD_FILE too; expected"),
        ({"SPU_ASSIGNER_SASL_PASSWORD": f"{CANARY}\\"}, "expected one line without a backslash"),
        ({"SPU_ASSIGNER_SASL_PASSWORD": f"{CANARY}\n"}, "expected one line without a backslash"),
        ({"SPU_ASSIGNER_SASL_PASSWORD": f"'{CANARY}\""}, "not with both kinds of quotes"),
        (
            {"SPU_ASSIGNER_SECURITY_PROTOCOL": "PLAINTEXT"},
            "SPU_ASSIGNER_SASL_USERNAME is set, and SPU_ASSIGNER_SECURITY_PROTOCOL is PLAINTEXT; "
            "expected SASL_SSL or SASL_PLAINTEXT there, or nothing here",
        ),
        (
            {"SPU_ASSIGNER_SECURITY_PROTOCOL": "SSL"},
            "expected SASL_SSL or SASL_PLAINTEXT there, or nothing here",
        ),
        (
            {
                "SPU_ASSIGNER_SECURITY_PROTOCOL": "SASL_PLAINTEXT",
                "SPU_ASSIGNER_SSL_CA_FILE": "ca.pem",
            },
            "expected SSL or SASL_SSL there, or nothing here",
        ),
        (
            {"SPU_ASSIGNER_SECURITY_PROTOCOL": "TLS"},
            "expected PLAINTEXT, SSL, SASL_SSL, SASL_PLAIN",
        ),
        ({"SPU_ASSIGNER_SASL_MECHANISM": "GSSAPI"}, "expected SCRAM-SHA-512, SCRAM-SHA-256, PLAIN"),
    ],
)
def test_what_does_not_go_together_is_told(changed: dict[str, str], told: str) -> None:
    """A password that is silently not used is a job that everybody can be."""
    assert told in refusal({**USER, **changed})


def test_files_that_hold_something_else_are_told(machine: dict[str, str], tmp_path: Path) -> None:
    """Both clients would refuse them in words of their own."""
    locked = written(tmp_path / "locked", PEM.format("ENCRYPTED PRIVATE KEY"))
    old = written(tmp_path / "old", PEM.format("RSA PRIVATE KEY"))
    word = {"SPU_ASSIGNER_SSL_KEY_PASSWORD": CANARY}
    line = written(tmp_path / "line", CANARY + "\n")
    for changed, told in (
        ({"SPU_ASSIGNER_SSL_CA_FILE": str(old)}, "which holds no certificate; expected PEM"),
        ({"SPU_ASSIGNER_SSL_KEY_FILE": str(old)}, "expected what `openssl pkcs8 -topk8 -nocrypt"),
        ({"SPU_ASSIGNER_SSL_KEY_FILE": ""}, "SPU_ASSIGNER_SSL_KEY_FILE is not set; expected"),
        ({"SPU_ASSIGNER_SSL_CERTIFICATE_FILE": ""}, "CERTIFICATE_FILE is not set; expected"),
        ({"SPU_ASSIGNER_SSL_KEY_FILE": str(locked)}, "not set; expected the password of"),
        (word, "is set; expected nothing: "),
        ({"SPU_ASSIGNER_SSL_KEY_PASSWORD": "schlüssel"}, "expected ASCII characters: give the key"),
        (
            {"SPU_ASSIGNER_SSL_KEY_PASSWORD_FILE": str(line)},
            "which ends with a line end; expected the password alone: write it with `printf %s`",
        ),
    ):
        assert told in refusal({**machine, **changed})
    Path(machine["SPU_ASSIGNER_SSL_KEY_FILE"]).chmod(0o644)
    assert "which is open to others (mode 0644)" in refusal(machine)


def test_a_key_that_java_cannot_open_is_told(machine: dict[str, str], tmp_path: Path) -> None:
    """Kafka's client would say `PBES2 SecretKeyFactory not available`, after Spark has started."""
    key, locked = tmp_path / "key", tmp_path / "locked"
    for command in (
        ["genpkey", "-algorithm", "ED25519", "-out", str(key)],
        ["pkcs8", "-topk8", "-in", str(key), "-out", str(locked), "-passout", f"pass:{CANARY}"],
    ):
        subprocess.run(["openssl", *command], check=True, capture_output=True)
    locked.chmod(0o600)
    changed = {
        "SPU_ASSIGNER_SSL_KEY_FILE": str(locked),
        "SPU_ASSIGNER_SSL_KEY_PASSWORD": CANARY,
    }
    assert "-v1 PBE-SHA1-3DES" in refusal({**machine, **changed})


def test_a_password_with_one_kind_of_quotes_is_put_between_the_others() -> None:
    """The line that Java reads is made of it inside the client."""
    for password, begin in (("it's", '"'), ('a "b"', "'")):
        environ = {**USER, "SPU_ASSIGNER_SASL_PASSWORD": password}
        options = Settings.load(environ=environ).connection().spark()
        line = f"password={begin}${{env:SPU_ASSIGNER_SASL_PASSWORD}}\n;"
        assert options["kafka.sasl.jaas.config"].endswith(line)


def test_a_listener_without_encryption_is_warned_of() -> None:
    """It is allowed: some networks encrypt by themselves."""
    warned = {
        (protocol, mechanism): Security(protocol=protocol, mechanism=mechanism).warning
        for protocol in Protocol
        for mechanism in Mechanism
    }
    told = {place for place, warning in warned.items() if warning is not None}
    assert told == {(Protocol.SASL_PLAINTEXT, mechanism) for mechanism in Mechanism}
    assert "and the password" in (warned[Protocol.SASL_PLAINTEXT, Mechanism.PLAIN] or "")


def test_connections_with_security_are_equal_by_value() -> None:
    """They are compared in tests and kept as values."""
    security = Settings.load(environ=USER).connection().security
    assert Connection(bootstrap_servers="a:1", security=security) == Connection(
        bootstrap_servers="a:1", security=Settings.load(environ=USER).connection().security
    )
