"""What the pods of docker/helm's chart offer: probes and ports, asked of what answers them."""

from __future__ import annotations

import pytest
from prometheus_client import CollectorRegistry
from spu_assigner.stream.audit.ui.app import make_app
from spu_assigner.stream.job.metrics.health import JobHealth, StartStep
from spu_assigner.stream.job.metrics.server import application
from spu_assigner.stream.kafka.config.settings import Settings
from support.pages.ui_pages import Still, known_of, outputs
from support.project import chart
from support.project.chart import (
    NAME,
    Manifest,
    Values,
    container,
    environ,
    given,
    parsed,
    pod_specs,
    render,
)


def probes(only: Manifest) -> dict[str, tuple[str, str]]:
    """Path and port of each probe, by its kind."""
    return {
        name: (each["httpGet"]["path"], each["httpGet"]["port"])
        for name, each in only.items()
        if name.endswith("Probe")
    }


def waits(only: Manifest) -> dict[str, tuple[int, int, int]]:
    """Seconds between questions and for an answer, and how many may fail, by the probe's kind."""
    return {
        name: (each["periodSeconds"], each["timeoutSeconds"], each["failureThreshold"])
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
    asked = application(CollectorRegistry(), health).test_client()
    assert (asked.get("/live").status_code, asked.get("/ready").status_code) == (200, 503)
    for step in StartStep:
        health.done(step)
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


def test_services_lead_to_the_ports_of_their_pods() -> None:
    """By the names that containers give their ports; a job that is not ready is scraped, too."""
    services = {
        each["metadata"]["name"].removeprefix(f"{NAME}-"): each["spec"]
        for each in render(given("minimal"))
        if each["kind"] == "Service"
    }
    assert services.keys() == {"job", "ui"}
    for part, spec in services.items():
        [port], [offered] = spec["ports"], container(part, "minimal")["ports"]
        assert port == {
            "name": offered["name"],
            "port": offered["containerPort"],
            "targetPort": offered["name"],
            "protocol": "TCP",
        }
    assert (services["job"]["clusterIP"], services["job"]["publishNotReadyAddresses"]) == (
        "None",
        True,
    )
    assert services["ui"]["type"] == "ClusterIP"


def test_a_paused_job_waits_for_commands_on_its_volume() -> None:
    """No job runs, nothing is probed, and settings and volume are the job's."""
    pause: Values = {"job": {"pause": True}}
    paused, usual = container("job", **pause), container("job")
    assert paused["command"] == ["sleep", "infinity"]
    assert usual.keys() - paused.keys() == {
        "args",
        "startupProbe",
        "livenessProbe",
        "readinessProbe",
    }
    assert paused["env"] == usual["env"]
    assert paused["volumeMounts"] == usual["volumeMounts"]


def test_a_job_has_time_to_start_and_to_end() -> None:
    """Ten minutes until it must be live, a minute of silence then, a minute to stop."""
    spec = pod_specs("full")["job"]
    assert waits(container("job")) == {
        "startupProbe": (5, 5, 120),
        "livenessProbe": (10, 5, 6),
        "readinessProbe": (5, 5, 3),
    }
    assert waits(container("ui")) == {"livenessProbe": (10, 5, 6), "readinessProbe": (5, 5, 3)}
    assert spec["terminationGracePeriodSeconds"] == 60
    assert spec["shareProcessNamespace"] is True
