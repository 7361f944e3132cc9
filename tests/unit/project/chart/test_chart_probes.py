"""What the pods of docker/helm's chart offer: probes and ports, asked of what answers them."""

from __future__ import annotations

import pytest
from prometheus_client import CollectorRegistry
from spu_assigner.stream.audit.ui.app import make_app
from spu_assigner.stream.job.metrics.health import JobHealth
from spu_assigner.stream.job.metrics.server import application
from spu_assigner.stream.kafka.config.settings import Settings
from support.pages.ui_pages import Still, known_of, outputs
from support.project import chart
from support.project.chart import (
    Manifest,
    container,
    environ,
    parsed,
)


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
    asked = application(CollectorRegistry(), health).test_client()
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
