"""The values of the chart of docker/helm: each is used, described, checked, and shown as it is."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from helm_python.errors import HelmError
from spu_assigner.stream.kafka.config.settings import SPECS
from support.project import chart
from support.project.chart import Values, given, merged, render

_ROOT = Path(__file__).parents[4]
_SCHEMA = json.loads((chart.CHART / "values.schema.json").read_text(encoding="utf-8"))
_PAGE = (_ROOT / "docs" / "kubernetes.md").read_text(encoding="utf-8")
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
        {"follow": {"clusters": [{"name": "prod", "placeNew": True}]}},
        {"follow": {"clusters": [{"name": "prod", "placeNew": True, "topics": []}]}},
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
