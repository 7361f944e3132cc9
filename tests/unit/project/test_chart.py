"""The chart of docker/helm: rendered and linted by Helm's own code, held to Kubernetes' schemas.

What its parts are called with is held to the product in `test_chart_pods.py`.
"""

from __future__ import annotations

import copy
import json
import re
import shutil
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from helm_python.errors import HelmError
from spu_assigner.stream.config.settings import SPECS
from support.project import chart
from support.project.chart import Manifest, Values, given, merged, render
from support.project.promql import alert_rules

_ROOT = Path(__file__).parents[3]
_SCHEMA = json.loads((chart.CHART / "values.schema.json").read_text(encoding="utf-8"))
_PAGE = (_ROOT / "docs" / "kubernetes.md").read_text(encoding="utf-8")
_NAME = "place-spu-assigner"
# Where ci/full-values.yaml has the default for the sake of other options, or the default is none.
_OTHERS: dict[str, object] = {
    "kafka.bootstrapServers": "other:9092",
    "nameOverride": "assigner",
    "fullnameOverride": "assigner",
    "listenAddress": "::",
    "scratch.tmp": "3Gi",
    "scratch.work": "3Gi",
    "serviceAccount.create": False,
    "networkPolicy.enabled": False,
    "networkPolicy.kafkaPorts": [9999],
    "ui.enabled": False,
    "job.pause": True,
    "job.storage.existingClaim": "mine",
    "job.terminationGracePeriodSeconds": 90,
    "job.resources": {"limits": {"memory": "8Gi"}},
    "follow.resources": {"limits": {"memory": "8Gi"}},
    "ui.resources": {"limits": {"memory": "8Gi"}},
    "security.sasl.mechanism": "SCRAM-SHA-256",
    "security.sasl.secret": "other",
    "security.sasl.username": "other",
    "security.tls.ca.key": "other.crt",
}
# A ServiceAccount that is not created is named nowhere but in the pods.
_FIRST = {"serviceAccount.create": {"serviceAccount": {"name": ""}}}


def leaves(values: Values, path: str = "") -> Iterator[tuple[str, object]]:
    """Each value that is no table, or an empty one, with its name."""
    for name, value in values.items():
        if isinstance(value, dict) and value and name != "resources":
            yield from leaves(value, f"{path}{name}.")
        else:
            yield f"{path}{name}", value


def nested(path: str, value: object) -> Values:
    for name in reversed(path.split(".")):
        value = {name: value}
    assert isinstance(value, dict)
    return value


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
        return  # What can be held without it was held above.
    file = chart.CHART / "ci" / f"{name}-values.yaml"
    command = [helm, "template", chart.RELEASE, str(chart.CHART), "--values", str(file)]
    done = subprocess.run(
        [*command, "--namespace", chart.NAMESPACE], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    rendered = [each for each in yaml.safe_load_all(done.stdout) if each is not None]
    assert sorted(map(repr, rendered)) == sorted(map(repr, render(given(name))))


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


def test_the_oldest_kubernetes_is_one_that_is_checked() -> None:
    """A chart must not admit what it was not held to."""
    facts = yaml.safe_load((chart.CHART / "Chart.yaml").read_text(encoding="utf-8"))
    assert facts["kubeVersion"] == f">={chart.VERSIONS[0]}.0-0"


def test_the_chart_has_the_release_of_the_product() -> None:
    """And takes the image of that release, unless another is named."""
    project = tomllib.loads((_ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    facts = yaml.safe_load((chart.CHART / "Chart.yaml").read_text(encoding="utf-8"))
    assert facts["version"] == facts["appVersion"] == project["version"]
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


@pytest.mark.parametrize("path", [path for path, _ in leaves(chart.defaults())])
def test_every_value_changes_what_is_rendered(path: str) -> None:
    """A value that no template reads would be a promise that nothing keeps."""
    [default] = [value for name, value in leaves(chart.defaults()) if name == path]
    full = merged(given("full"), _FIRST.get(path, {}))
    if path in _OTHERS:
        changed, before = merged(full, nested(path, _OTHERS[path])), full
        assert _OTHERS[path] != default
    else:
        # A table is laid over a table, so the default is one without it.
        changed, before = copy.deepcopy(full), full
        place: Any = changed
        *parents, last = path.split(".")
        for name in parents:
            place = place[name]
        assert place[last] != default, f"ci/full-values.yaml has the default of {path}"
        del place[last]
    assert chart.render_texts(changed) != chart.render_texts(before)


def test_every_value_is_in_the_schema_and_the_other_way_round() -> None:
    """Helm rejects what the schema does not name; a name without a default is described nowhere."""

    def properties(schema: Values, path: str = "") -> Iterator[str]:
        if "$ref" in schema:
            if path.count(".") > 1:  # of a part: it overrides what is described at the top
                yield path[:-1]
                return
            schema = _SCHEMA["definitions"][schema["$ref"].rpartition("/")[2]]
        inner = schema.get("properties")
        if inner is None or path == "job.settings.":
            yield path[:-1]
            return
        assert schema["additionalProperties"] is False, path
        for name, each in inner.items():
            yield from properties(each, f"{path}{name}.")

    assert sorted(properties(_SCHEMA)) == sorted(
        ["global", *(path for path, _ in leaves(chart.defaults()))]
    )


def test_the_schema_knows_the_settings_that_the_chart_does_not_make_itself() -> None:
    """Each by the name that the settings file has for it, with the words that the job accepts."""
    made_here = {"bootstrap_servers", "topic_prefix", "checkpoint", "metrics_port", "metrics_host"}
    of_no_use = {"master", "ui_port"}  # one pod; Spark's page is on the pod's loopback
    settings = _SCHEMA["properties"]["job"]["properties"]["settings"]["properties"]
    own = [spec for spec in SPECS if not spec.name.startswith(("security", "sasl", "ssl"))]
    assert set(settings) == {spec.name for spec in own} - made_here - of_no_use
    for spec in own:
        if "enum" in settings.get(spec.name, {}):
            assert sorted(settings[spec.name]["enum"]) == sorted(spec.expected.split(", "))
    security = _SCHEMA["definitions"]["security"]["properties"]
    expected = {spec.name: sorted(spec.expected.split(", ")) for spec in SPECS}
    assert sorted(security["protocol"]["enum"]) == expected["security_protocol"]
    mechanisms = security["sasl"]["properties"]["mechanism"]["enum"]
    assert sorted(mechanisms) == expected["sasl_mechanism"]


@pytest.mark.parametrize(
    "wrong",
    [
        {"job": {"replicas": 2}},
        {"job": {"settings": {"default_polciy": "kafka"}}},
        {"job": {"settings": {"shards": 0}}},
        {"job": {"checkpoint": "../elsewhere"}},
        {"job": {"storage": {"accessMode": "ReadOnlyMany"}}},
        {"kafka": {"bootstrapServers": "kafka"}},
        {"kafka": {"bootstrapServers": "kafka:9092, other:9092"}},
        {"security": {"protocol": "TLS"}},
        {"security": {"sasl": {"password": "in-the-open"}}},
        {"follow": {"clusters": [{"cluster": "c1"}]}},
        {"follow": {"clusters": [{"name": "Prod"}]}},
        {"follow": {"clusters": [{"name": "prod", "interval": "often"}]}},
        {"networkPolicy": {"metricsFrom": [{}]}},
        {"image": {"repository": "spu-assigner:latest"}},
        {"monitoring": True},
    ],
)
def test_a_wrong_value_is_rejected_before_anything_is_installed(wrong: Values) -> None:
    """A typing error in a name, too: it would be ignored otherwise. Passwords are never values."""
    with pytest.raises(HelmError, match="don't meet the specifications of the schema"):
        render(merged(given("minimal"), wrong))


def test_what_is_missing_is_named() -> None:
    """One line that says which value is empty and what is expected."""
    for security, missing in (
        ({"protocol": "SASL_SSL"}, "security.sasl.username is empty; expected a user"),
        (
            {"protocol": "SASL_SSL", "sasl": {"username": "u"}},
            "security.sasl.secret is empty; expected the Secret with the password",
        ),
    ):
        with pytest.raises(HelmError, match=missing):
            render(merged(given("minimal"), {"security": security}))
    with pytest.raises(HelmError, match=r"kafka\.bootstrapServers is empty; expected host:port"):
        render({})


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


def test_the_page_s_examples_of_values_can_be_rendered() -> None:
    """What docs/kubernetes.md shows is what the chart takes, together with the least."""
    fences = re.findall(r"^```yaml\n# values\b.*?\n(.*?)^```", _PAGE, re.DOTALL | re.MULTILINE)
    assert len(fences) >= 3
    for fence in fences:
        manifests = render(merged(given("minimal"), yaml.safe_load(fence)))
        assert chart.schema_faults(manifests, chart.VERSIONS[-1]) == []


def test_the_page_names_values_that_there_are() -> None:
    """In text as `job.pause`, in commands as `--set job.pause=true`."""
    known = {path for path, _ in leaves(chart.defaults())} | {
        f"{path.rpartition('.')[0]}" for path, _ in leaves(chart.defaults())
    }
    settings = _SCHEMA["properties"]["job"]["properties"]["settings"]["properties"]
    known |= {f"job.settings.{name}" for name in settings}
    tops = "|".join(name for name in chart.defaults())
    named = set(re.findall(rf"`((?:{tops})\.[A-Za-z_.]+)`", _PAGE))
    named |= set(re.findall(r"--set(?:-string)? ([A-Za-z_.]+)=", _PAGE))
    assert len(named) >= 10
    assert named <= known
