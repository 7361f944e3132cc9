"""The chart of docker/helm: rendered and linted by Helm's own code, held to Kubernetes' schemas.

Its values are held to the schema and the documentation in `test_chart_values.py`, what its pods are
called with to the product in `test_chart_pods.py`.
"""

from __future__ import annotations

import copy
import shutil
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.project import chart
from support.project.chart import Manifest, Values, given, merged, render
from support.project.promql import alert_rules

_ROOT = Path(__file__).parents[4]
_NAME = "place-spu-assigner"


def found(manifests: list[Manifest], kind: str, name: str) -> Manifest:
    [manifest] = [
        each
        for each in manifests
        if (each["kind"], each["metadata"]["name"]) == (kind, f"{_NAME}-{name}".rstrip("-"))
    ]
    return manifest


def names(manifests: list[Manifest]) -> list[str]:
    return sorted(f"{each['kind']}/{each['metadata']['name']}" for each in manifests)


@pytest.mark.parametrize("name", chart.GIVEN)
def test_helm_finds_nothing_to_complain_of(name: str) -> None:
    """`helm lint --strict`, with the least and with every option."""
    assert chart.lint_faults(given(name)) == []


def test_helm_lint_reports_a_broken_chart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Or the test above would show nothing."""
    (tmp_path / "templates").mkdir()
    (tmp_path / "Chart.yaml").write_text("apiVersion: v2\nname: x\nversion: one\n", "utf-8")
    monkeypatch.setattr(chart, "CHART", tmp_path)
    assert any("version" in fault for fault in chart.lint_faults({}))


@pytest.mark.parametrize("version", chart.VERSIONS)
@pytest.mark.parametrize("name", chart.GIVEN)
def test_what_is_rendered_fits_kubernetes_own_schemas(name: str, version: str) -> None:
    """Of the oldest Kubernetes that the chart admits and of the newest."""
    assert chart.schema_faults(render(given(name)), version) == []


@pytest.mark.parametrize("name", chart.GIVEN)
def test_the_command_helm_renders_the_same(name: str) -> None:
    """The library is Helm's code; where the command is on the PATH, it is asked as well."""
    if (helm := shutil.which("helm")) is None:
        pytest.skip("there is no `helm` on the PATH; Helm's code as a library was asked above")
    file = chart.CHART / "ci" / f"{name}-values.yaml"
    command = [helm, "template", chart.RELEASE, str(chart.CHART), "--values", str(file)]
    done = subprocess.run(
        [*command, "--namespace", chart.NAMESPACE], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    rendered = [each for each in yaml.safe_load_all(done.stdout) if each is not None]
    assert sorted(map(repr, rendered)) == sorted(map(repr, render(given(name))))


def test_without_the_command_helm_nothing_is_claimed_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A test that asserts nothing and passes would say that both render the same."""
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(pytest.skip.Exception, match="there is no `helm` on the PATH"):
        test_the_command_helm_renders_the_same("minimal")


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("spec", "replicas"), "one"),
        (("spec", "template", "spec", "containers", 0, "readynessProbe"), {}),
        (("spec", "template", "spec", "containers", 0, "image"), 7),
        (("spec", "volumeClaimTemplates", 0, "spec", "accessModes"), "ReadWriteOnce"),
        (("apiVersion",), "apps/v9"),
    ],
)
def test_a_wrong_field_does_not_fit_the_schemas(path: tuple[Any, ...], value: object) -> None:
    """Of a wrong type, of a name that does not exist, of an API that does not exist."""
    manifest = copy.deepcopy(found(render(given("minimal")), "StatefulSet", "job"))
    place: Any = manifest
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    assert len(chart.schema_faults([manifest], chart.VERSIONS[-1])) == 1


def test_names_that_yaml_takes_for_something_else_stay_names() -> None:
    """`::` at the end of a line begins a table, `1` is a number, `true` is none of both."""
    tls = {
        "ca": {"secret": "1", "key": "2"},
        "client": {"secret": "3", "certificate": "4", "key": "5"},
        "keyPassword": {"secret": "6", "key": "7"},
    }
    odd: Values = {
        "listenAddress": "::",
        "nameOverride": "1",
        "image": {"tag": "1.10"},
        "job": {"checkpoint": "8", "storage": {"storageClass": "9"}},
        "follow": {"clusters": [{"name": "true", "grace": "60"}]},
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


def test_the_least_is_a_job_and_a_page_closed_to_others() -> None:
    """Nothing is followed without a name of a cluster, nothing scraped without an operator."""
    assert names(render(given("minimal"))) == [
        f"Deployment/{_NAME}-ui",
        f"NetworkPolicy/{_NAME}-job",
        f"NetworkPolicy/{_NAME}-ui",
        f"Service/{_NAME}-job",
        f"Service/{_NAME}-ui",
        f"ServiceAccount/{_NAME}",
        f"StatefulSet/{_NAME}-job",
    ]


def test_with_every_option_each_followed_cluster_has_a_deployment() -> None:
    """And what is scraped has a ServiceMonitor."""
    assert names(render(given("full"))) == [
        f"ConfigMap/{_NAME}-follow-prod",
        f"Deployment/{_NAME}-follow-prod",
        f"Deployment/{_NAME}-follow-staging",
        f"Deployment/{_NAME}-ui",
        f"NetworkPolicy/{_NAME}-follow",
        f"NetworkPolicy/{_NAME}-job",
        f"NetworkPolicy/{_NAME}-ui",
        f"Service/{_NAME}-job",
        f"Service/{_NAME}-ui",
        "ServiceAccount/placer",
        f"ServiceMonitor/{_NAME}-job",
        f"StatefulSet/{_NAME}-job",
    ]


def test_there_is_one_job_with_a_volume_of_its_own() -> None:
    """A second pod would fence the first; the volume stays when the pod goes."""
    job = found(render(given("minimal")), "StatefulSet", "job")["spec"]
    assert (job["replicas"], job["serviceName"]) == (1, f"{_NAME}-job")
    [claim] = job["volumeClaimTemplates"]
    assert claim["metadata"]["name"] == "state"
    assert claim["spec"] == {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "10Gi"}},
    }
    [claim] = found(render(given("full")), "StatefulSet", "job")["spec"]["volumeClaimTemplates"]
    assert claim["spec"] == {
        "accessModes": ["ReadWriteOncePod"],
        "storageClassName": "fast",
        "resources": {"requests": {"storage": "20Gi"}},
    }


def test_a_claim_of_ones_own_takes_the_place_of_the_chart_s() -> None:
    """For a volume that was there before."""
    own = {"job": {"storage": {"existingClaim": "mine"}}}
    manifests = render(merged(given("minimal"), own))
    job = found(manifests, "StatefulSet", "job")["spec"]
    assert "volumeClaimTemplates" not in job
    volumes = {each["name"]: each for each in job["template"]["spec"]["volumes"]}
    assert volumes["state"] == {"name": "state", "persistentVolumeClaim": {"claimName": "mine"}}
    assert chart.schema_faults(manifests, chart.VERSIONS[0]) == []


def selected(manifests: list[Manifest], labels: Values) -> list[str]:
    """The objects whose pods have these labels."""
    return sorted(
        name
        for name, pod in chart.pods(manifests)
        if labels.items() <= pod["metadata"]["labels"].items()
    )


def test_each_selector_finds_the_pods_that_it_is_about() -> None:
    """One letter of difference, and a Service has no pods, or a policy guards none."""
    manifests = render(given("full"))
    of = {
        "job": [f"{_NAME}-job"],
        "ui": [f"{_NAME}-ui"],
        "follow": [f"{_NAME}-follow-prod", f"{_NAME}-follow-staging"],
    }
    asked = 0
    for manifest in manifests:
        name, spec = manifest["metadata"]["name"], manifest.get("spec", {})
        part = name.removeprefix(f"{_NAME}-")
        match manifest["kind"]:
            case "Service":
                assert selected(manifests, spec["selector"]) == of[part]
            case "NetworkPolicy":
                assert selected(manifests, spec["podSelector"]["matchLabels"]) == of[part]
            case "Deployment" | "StatefulSet":
                assert selected(manifests, spec["selector"]["matchLabels"]) == [name]
            case "ServiceMonitor":
                labels = spec["selector"]["matchLabels"].items()
                services = [each for each in manifests if each["kind"] == "Service"]
                assert [
                    each["metadata"]["name"]
                    for each in services
                    if labels <= each["metadata"]["labels"].items()
                ] == [f"{_NAME}-job"]
            case _:
                continue
        asked += 1
    assert asked == 2 + 3 + 4 + 1


def test_two_releases_do_not_select_each_other_s_pods() -> None:
    """Each selector has the release in it."""
    for manifest in render(given("full")):
        spec = manifest.get("spec", {})
        selector = spec.get("podSelector", spec.get("selector", {}))
        if manifest["kind"] not in ("ConfigMap", "ServiceAccount"):
            labels = selector.get("matchLabels", selector)
            assert labels["app.kubernetes.io/instance"] == chart.RELEASE


def test_every_object_says_what_it_is_part_of() -> None:
    """Kubernetes' recommended labels, by which tools find what belongs together."""
    facts = yaml.safe_load((chart.CHART / "Chart.yaml").read_text(encoding="utf-8"))
    for manifest in render(given("full")):
        labels = manifest["metadata"]["labels"]
        part = labels.pop("app.kubernetes.io/component", None)
        assert part in {"job", "follow", "ui"} or manifest["kind"] == "ServiceAccount"
        labels.pop("release", None)  # of the ServiceMonitor, as ci/full-values.yaml asks
        assert labels == {
            "app.kubernetes.io/name": facts["name"],
            "app.kubernetes.io/instance": chart.RELEASE,
            "app.kubernetes.io/version": facts["appVersion"],
            "app.kubernetes.io/managed-by": "Helm",
            "helm.sh/chart": f"{facts['name']}-{facts['version']}",
        }


def test_nobody_reaches_the_pods_and_they_reach_dns_and_kafka() -> None:
    """Metrics and page have no password. What Kafka's ports are follows from the addresses."""
    dns = {"ports": [{"port": 53, "protocol": "UDP"}, {"port": 53, "protocol": "TCP"}]}
    manifests = render(given("minimal"))
    for part in ("job", "ui"):
        spec = found(manifests, "NetworkPolicy", part)["spec"]
        assert spec["policyTypes"] == ["Ingress", "Egress"]
        assert spec["ingress"] == []
        assert spec["egress"] == [dns, {"ports": [{"port": 9092, "protocol": "TCP"}]}]


def test_who_is_let_in_reaches_one_port_and_who_is_reached_is_kafka() -> None:
    """With peers on both sides; the watched cluster's ports are among Kafka's."""
    manifests = render(given("full"))

    def namespace(name: str) -> Values:
        return {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": name}}}

    let_in = {
        "job": [
            {
                "from": [namespace("monitoring")],
                "ports": [{"port": "metrics", "protocol": "TCP"}],
            }
        ],
        "ui": [
            {
                "from": [{"podSelector": {"matchLabels": {"app": "gateway"}}}],
                "ports": [{"port": "http", "protocol": "TCP"}],
            }
        ],
        "follow": [],
    }
    for part, ingress in let_in.items():
        spec = found(manifests, "NetworkPolicy", part)["spec"]
        assert spec["policyTypes"] == ["Ingress", "Egress"]
        assert spec["ingress"] == ingress
        assert spec["egress"][1:] == [
            {
                "ports": [{"port": port, "protocol": "TCP"} for port in (9093, 9094, 9095)],
                "to": [namespace("kafka")],
            },
            {"to": [{"ipBlock": {"cidr": "10.0.0.0/8"}}]},
        ]
    ports = {"networkPolicy": {"kafkaPorts": [31000]}}
    manifests = render(merged(given("full"), ports))
    [kafka] = found(manifests, "NetworkPolicy", "job")["spec"]["egress"][1]["ports"]
    assert kafka == {"port": 31000, "protocol": "TCP"}


def test_prometheus_gives_the_job_the_name_that_the_alerts_ask_for() -> None:
    """Of the operator's fields there is no schema here, so all of them stand here."""
    manifests = render(given("full"))
    monitor = found(manifests, "ServiceMonitor", "job")
    service = found(manifests, "Service", "job")
    assert monitor["apiVersion"] == "monitoring.coreos.com/v1"
    assert monitor["metadata"]["labels"]["release"] == "prometheus"
    spec = monitor["spec"]
    assert spec.keys() == {"jobLabel", "selector", "namespaceSelector", "endpoints"}
    assert spec["endpoints"] == [{"port": "metrics", "path": "/metrics", "interval": "30s"}]
    assert spec["endpoints"][0]["port"] in {each["name"] for each in service["spec"]["ports"]}
    assert spec["namespaceSelector"] == {"matchNames": [chart.NAMESPACE]}
    job = service["metadata"]["labels"][spec["jobLabel"]]
    alerts = yaml.safe_load((_ROOT / "docker/prometheus/alerts.yml").read_text(encoding="utf-8"))
    asked = [rule["expr"] for rule in alert_rules(alerts) if "job=" in rule["expr"]]
    assert asked
    assert all(f'job="{job}"' in query for query in asked)
