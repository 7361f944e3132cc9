"""The pods of the chart of docker/helm against the product: what each is called with and may do.

Arguments are read by the commands themselves, variables by the settings' own loader, probes are
asked of the applications that answer them, and the user is that of the image.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry
from spu_assigner.core.base.events import Policy
from spu_assigner.schemas.messages.wire import Wire
from spu_assigner.stream.audit.ui.app import make_app
from spu_assigner.stream.job import session
from spu_assigner.stream.job.metrics.health import JobHealth
from spu_assigner.stream.job.metrics.server import application
from spu_assigner.stream.kafka.config.security import Mechanism, Protocol
from spu_assigner.stream.kafka.config.settings import SPECS, TARGET_SERVERS_VARIABLE, Settings
from support.kafka.secured import Certificates
from support.pages.ui_pages import Still, known_of, outputs
from support.project import chart
from support.project.chart import Manifest, Values, container, environ, parsed, pod_specs
from werkzeug.test import Client

_ROOT = Path(__file__).parents[4]
_DOCKERFILE = (_ROOT / "docker" / "job.Dockerfile").read_text(encoding="utf-8")
_KEYS = "/run/spu-assigner"
_SECRETS = "/etc/spu-assigner/secrets"
_PARTS = ("job", "follow-prod", "follow-staging", "ui")


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates.make(tmp_path_factory.mktemp("certificates"))


@pytest.fixture
def files(tmp_path: Path, certificates: Certificates) -> tuple[Path, Path]:
    """A Secret's volume, and the empty one that the keys are copied to."""
    secrets, keys = tmp_path / "secrets", tmp_path / "keys"
    for folder in (secrets / "..data", keys):
        folder.mkdir(parents=True)
    for name, source in (
        ("ca.crt", "ca.pem"),
        ("client.crt", "machine.pem"),
        ("client.key", "machine.key"),
    ):
        # As the kubelet mounts them: links, to files that the group may read.
        data = secrets / "..data" / name
        data.write_bytes(certificates.path(source).read_bytes())
        data.chmod(0o440)
        (secrets / name).symlink_to(Path("..data") / name)
    return secrets, keys


def test_the_image_has_what_run_needs_on_a_read_only_root(monkeypatch: pytest.MonkeyPatch) -> None:
    """Jars that are missing would be fetched into a folder that cannot be written."""
    images = (_ROOT / "docker" / "images.py").read_text(encoding="utf-8")
    [brought] = re.findall(r"^JOB_JARS.*= \((.*)\)$", images, re.MULTILINE)
    needed: set[str] = set()

    def ensure_all(groups: list[str]) -> dict[str, list[Path]]:
        needed.update(groups)
        return {group: [] for group in groups}

    monkeypatch.setattr(session, "ensure_all", ensure_all)
    session.ensure_jars("s3a://bucket/checkpoint")
    assert needed <= set(re.findall(r'"([\w-]+)"', brought))


@pytest.mark.parametrize("name", chart.GIVEN)
def test_each_part_is_a_command_that_takes_its_arguments(name: str) -> None:
    """Read by the commands' own parsers: an option that does not exist ends this test."""
    for part, spec in pod_specs(name).items():
        [only] = spec["containers"]
        assert "command" not in only
        command = {"job": "run", "ui": "ui"}.get(part, "follow")
        assert only["args"][0] == command
        parsed(only["args"])


def test_what_is_followed_is_what_the_values_say() -> None:
    """Every option of `follow` that the chart has, and the command's defaults else."""
    found = parsed(container("follow-prod")["args"])
    expected: Values = {
        "cluster_id": "Prod.EU",
        "interval_seconds": 2.0,
        "grace_seconds": 90.0,
        "capacity": 4_000_000,
        "cores": 2,
        "excluded_brokers": frozenset({7, 8}),
        "take_over": True,
        "globs": ("team-*", "orders"),
        "excluded": ("team-test",),
        "place_new": True,
        "allow_mass_leave": True,
        "accept_cluster": True,
    }
    assert {name: found[name] for name in expected} == expected
    plain = parsed(["follow", "--cluster=staging"])
    assert parsed(container("follow-staging")["args"]) == plain | {"capacity": 0}


def test_the_pods_run_as_the_user_of_the_image() -> None:
    """Its folders are that one's."""
    user, group = map(int, re.findall(r"^USER (\d+):(\d+)$", _DOCKERFILE, re.MULTILINE)[-1])
    for spec in pod_specs().values():
        context = spec["securityContext"]
        assert (context["runAsUser"], context["runAsGroup"]) == (user, group)


def test_every_variable_is_a_setting() -> None:
    """One with a name that no setting has would be ignored without a word."""
    known = {spec.variable for spec in SPECS} | {TARGET_SERVERS_VARIABLE}
    known |= {each.replace("SPU_ASSIGNER_S", "SPU_ASSIGNER_TARGET_S") for each in known}
    extra = {"job": {"SPARK_CONF_DIR"}}
    for part in _PARTS:
        assert environ(part).keys() - known == extra.get(part, {"TZ"})
    for part in ("job", "ui"):
        assert environ(part, "minimal").keys() <= known


def test_the_job_has_the_settings_that_the_values_say() -> None:
    """Read by the job's own loader. Without values only what a pod needs differs from defaults."""
    least = Settings.load(environ=environ("job", "minimal"))
    assert least == Settings(
        bootstrap_servers="kafka:9092",
        checkpoint="/var/lib/spu-assigner/checkpoint",
        metrics_host="0.0.0.0",
    )
    found = Settings.load(environ=environ("job", security={"protocol": "PLAINTEXT"}))
    assert found == Settings(
        bootstrap_servers="events-0.kafka:9093,events-1.kafka:9094",
        topic_prefix="team-",
        checkpoint="/var/lib/spu-assigner/checkpoint-2",
        query_name="placement",
        shards=4,
        default_policy=Policy.KAFKA,
        wire=Wire.SINGLE_OBJECT,
        topic_events_per_batch=1_000_000,
        driver_memory="3g",
        metrics_host="0.0.0.0",
        log_level="WARN",
    )


@pytest.mark.parametrize(
    ("part", "user", "password"),
    [
        ("job", "job", "of-job"),
        ("follow-prod", "follower", "of-follower"),
        ("follow-staging", "follower", "of-follower"),
    ],
)
def test_keys_are_copied_to_where_the_product_accepts_them(
    files: tuple[Path, Path], part: str, user: str, password: str
) -> None:
    """A key must be of mode 0600 and the reader's own, which no file of a Secret is.

    What the chart runs is run here, and the settings' loader, which tries certificate and key,
    reads the result. Each part is a user of its own.
    """
    spec = pod_specs()[part]
    [copier] = spec["initContainers"]
    here = {_SECRETS: str(files[0]), _KEYS: str(files[1])}

    def moved(text: str) -> str:
        return re.sub("|".join(here), lambda match: here[match[0]], text)

    subprocess.run([moved(each) for each in copier["command"]], check=True)
    found = Settings.load(
        environ={name: moved(value) for name, value in environ(part).items()}
    ).security
    assert found.security_protocol is Protocol.SASL_SSL
    assert found.sasl_mechanism is Mechanism.SCRAM_SHA_512
    assert found.sasl_username == user
    assert found.sasl_password is not None
    assert found.sasl_password.value == password
    assert found.ssl_ca_file == files[1] / "ca.crt"
    assert found.ssl_certificate_file == files[1] / "client.crt"
    assert found.ssl_key_file == files[1] / "client.key"
    assert {path.stat().st_mode & 0o777 for path in files[1].iterdir()} == {0o600}


def probes(only: Manifest) -> dict[str, tuple[str, str]]:
    """Path and port of each probe, by its kind."""
    return {
        name: (each["httpGet"]["path"], each["httpGet"]["port"])
        for name, each in only.items()
        if name.endswith("Probe")
    }


@pytest.mark.parametrize("name", chart.GIVEN)
def test_the_job_s_probes_ask_what_it_answers(name: str) -> None:
    """Live by `/live`, ready by `/ready`, at the port that its settings name."""
    only = container("job", name)
    assert probes(only) == {
        "startupProbe": ("/live", "metrics"),
        "livenessProbe": ("/live", "metrics"),
        "readinessProbe": ("/ready", "metrics"),
    }
    settings = Settings.load(
        environ={**environ("job", "minimal"), **{
            key: value for key, value in environ("job", name).items() if "METRICS" in key
        }}
    )  # fmt: skip
    assert only["ports"] == [
        {"name": "metrics", "containerPort": settings.metrics_port, "protocol": "TCP"}
    ]
    assert settings.metrics_host == "0.0.0.0"
    health = JobHealth("query")
    asked = Client(application(CollectorRegistry(), health))
    assert (asked.get("/live").status_code, asked.get("/ready").status_code) == (200, 503)
    health.begun()
    assert (asked.get("/live").status_code, asked.get("/ready").status_code) == (200, 200)


@pytest.mark.parametrize("name", chart.GIVEN)
def test_the_page_s_probes_ask_for_a_file_of_its_own(name: str) -> None:
    """Without Kafka the page still says so, and no restart would help it."""
    only = container("ui", name)
    [path] = {path for path, _ in probes(only).values()}
    assert probes(only) == {"livenessProbe": (path, "http"), "readinessProbe": (path, "http")}
    given_to = parsed(only["args"])
    assert only["ports"] == [{"name": "http", "containerPort": given_to["port"], "protocol": "TCP"}]
    assert given_to["host"] == "0.0.0.0"
    pages = make_app(Still(known_of(outputs([]))).as_live(), is_loopback=False).test_client()
    assert pages.get(path, headers={"Host": "10.0.0.7:8080"}).status_code == 200
