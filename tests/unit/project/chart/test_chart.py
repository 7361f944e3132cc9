"""The chart of docker/helm: rendered and linted by Helm's own code, held to Kubernetes' schemas.

Its values are held to the schema and the documentation in `test_chart_values.py`, what its pods are
called with to the product in `test_chart_pods.py`.
"""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
import yaml
from support.project import chart
from support.project.chart import Values, given, merged, render
from support.project.promql import alert_rules

_ROOT = Path(__file__).parents[4]


@pytest.mark.parametrize("name", chart.GIVEN)
def test_what_is_rendered_is_as_it_was_read(name: str) -> None:
    """Each object was read when it was stored: rights, volumes, selectors, policies, labels."""
    stored = (chart.RENDERED / f"{name}.yaml").read_text(encoding="utf-8")
    assert chart.rendered_text(given(name)) == stored, "read what differs; `make chart` stores it"


@pytest.mark.parametrize("name", chart.GIVEN)
def test_helm_finds_nothing_to_complain_of(name: str) -> None:
    """`helm lint --strict`, with the least and with every option."""
    assert chart.lint_faults(given(name)) == []


@pytest.mark.parametrize("version", chart.VERSIONS)
@pytest.mark.parametrize("name", chart.GIVEN)
def test_what_is_rendered_fits_kubernetes_own_schemas(name: str, version: str) -> None:
    """Of the oldest Kubernetes that the chart admits and of the newest."""
    assert chart.schema_faults(render(given(name)), version) == []


def test_names_that_yaml_takes_for_something_else_stay_names() -> None:
    """`::` at the end of a line begins a table, `1` is a number, `true` is none of both."""
    tls = {
        "ca": {"secret": "1", "key": "2"},
        "client": {"secret": "3", "certificate": "4", "key": "5"},
    }
    odd: Values = {
        "listenAddress": "::",
        "nameOverride": "1",
        "image": {"tag": "1.10"},
        "job": {"checkpoint": "8", "storage": {"storageClass": "9"}},
        "follow": {"clusters": [{"name": "true", "grace": 60}]},
        "security": {"protocol": "SASL_SSL", "tls": tls}
        | {"sasl": {"username": "10", "secret": "11", "key": "12"}},
        "serviceAccount": {"name": "13"},
        "serviceMonitor": {"enabled": True},
    }
    manifests = render(merged(given("minimal"), odd))
    assert chart.schema_faults(manifests, chart.VERSIONS[-1]) == []
    [pod] = [pod for name, pod in chart.pods(manifests) if name.endswith("follow-true")]
    assert pod["metadata"]["labels"]["spu-assigner/follow"] == "true"
    own: Values = {"job": {"storage": {"existingClaim": "14"}}}
    assert chart.schema_faults(render(merged(given("minimal"), own)), chart.VERSIONS[-1]) == []


def test_the_oldest_kubernetes_is_one_that_is_checked() -> None:
    """A chart must not admit what it was not held to."""
    facts = yaml.safe_load((chart.CHART / "Chart.yaml").read_text(encoding="utf-8"))
    assert facts["kubeVersion"] == f">={chart.VERSIONS[0]}.0-0"


def test_the_chart_has_the_release_of_the_product() -> None:
    """And takes the image of that release, unless another is named."""
    project = tomllib.loads((_ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    facts = yaml.safe_load((chart.CHART / "Chart.yaml").read_text(encoding="utf-8"))
    assert facts["appVersion"] == project["version"]
    assert facts["version"].replace("-dev.", ".dev") == project["version"]
    for values, image in (
        (given("minimal"), f"spu-assigner:{project['version']}"),
        (given("full"), "registry.example/spu-assigner:1.2.3"),
    ):
        for _, pod in chart.pods(render(values)):
            spec = pod["spec"]
            images = [each["image"] for each in spec["containers"] + spec.get("initContainers", [])]
            assert set(images) == {image}


def test_prometheus_gives_the_job_the_name_that_the_alerts_ask_for() -> None:
    """The operator takes it from a label of the Service."""
    manifests = {each["kind"]: each for each in render(given("full")) if "job" in repr(each)}
    [service] = [
        each["metadata"]["labels"]
        for each in render(given("full"))
        if each["kind"] == "Service" and each["metadata"]["name"].endswith("-job")
    ]
    job = service[manifests["ServiceMonitor"]["spec"]["jobLabel"]]
    alerts = yaml.safe_load((_ROOT / "docker/prometheus/alerts.yml").read_text(encoding="utf-8"))
    asked = [rule["expr"] for rule in alert_rules(alerts) if "job=" in rule["expr"]]
    assert asked
    assert all(f'job="{job}"' in query for query in asked)
