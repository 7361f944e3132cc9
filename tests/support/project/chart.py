"""The chart of docker/helm as Helm renders and lints it, and Kubernetes' schemas of what comes out.

Helm is its own Go code, as a library (helm-python-sdk); the schemas are those that Kubernetes
publishes of each release (kubernetes-validate). No cluster is asked, so what an API server decides
beyond its schemas is not checked here. `make chart` stores what is rendered.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final

import click
import kubernetes_validate
import yaml
from helm_python import Chart
from helm_python.chart import lint, values_from_yaml
from spu_assigner.stream.cli import cli
from spu_assigner.stream.kafka.config.settings import SPECS

ROOT: Final = Path(__file__).parents[3]
CHART: Final = ROOT / "docker" / "helm"
RENDERED: Final = ROOT / "tests" / "data" / "chart"
GIVEN: Final = ("minimal", "full")  # the files of docker/helm/ci
RELEASE: Final = "place"
NAMESPACE: Final = "placement"
NAME: Final = "place-spu-assigner"  # what the names of objects begin with
# What the Secrets of ci/full-values.yaml hold, besides certificates.
PASSWORDS: Final = {
    ("job-user", "secret-word"): "of-job",
    ("follower-user", "secret-word"): "of-follower",
    ("everybody-user", "secret-word"): "of-everybody",
    ("everybody-tls", "user.password"): "key-password",
    ("everybody-tls", "other"): "key-password",
}
# The oldest that Chart.yaml admits, and the newest that there are schemas of.
VERSIONS: Final = ("1.25", "1.37")
WITHOUT_SCHEMA: Final = ("ServiceMonitor",)  # not Kubernetes' own: the Prometheus Operator's
INFO: Final = 1  # severity of what `helm lint` only recommends

Values = dict[str, Any]
Manifest = dict[str, Any]


def given(name: str) -> Values:
    """The values of a file of docker/helm/ci, read as Helm reads them."""
    values: Values = values_from_yaml(
        (CHART / "ci" / f"{name}-values.yaml").read_text(encoding="utf-8")
    )
    return values


def defaults() -> Values:
    """What values.yaml says."""
    with Chart.load(CHART) as chart:
        return dict(chart.values)


def merged(values: Mapping[str, Any], over: Mapping[str, Any]) -> Values:
    """Values with others over them, as Helm lays one file over another."""
    result = dict(values)
    for name, value in over.items():
        before = result.get(name)
        is_both = isinstance(before, Mapping) and isinstance(value, Mapping)
        result[name] = merged(before, value) if is_both else value  # type: ignore[arg-type]
    return result


def render_texts(values: Values) -> dict[str, str]:
    """What each template becomes.

    Raises:
        HelmValuesError: the schema of values rejects them.
        HelmRenderError: a template cannot be rendered, or a value is missing.
    """
    return dict(_rendered(json.dumps(values)))


@cache
def _rendered(values: str) -> dict[str, str]:
    with Chart.load(CHART) as chart:
        return dict(chart.render(json.loads(values), name=RELEASE, namespace=NAMESPACE))


def render(values: Values) -> list[Manifest]:
    """The objects that would be sent to Kubernetes."""
    texts = render_texts(values)
    return [
        manifest
        for path in sorted(texts)
        if path.endswith(".yaml")
        for manifest in yaml.load_all(texts[path], Loader=yaml.CSafeLoader)
        if manifest is not None
    ]


def lint_faults(values: Values) -> list[str]:
    """What `helm lint --strict` finds with these values."""
    report = lint(CHART, values, strict=True)
    found = [
        f"{each['path']}: {each['error']}"
        for each in report["messages"]
        if each["severity"] != INFO
    ]
    return [*found, *report["errors"]]


def schema_faults(manifests: Sequence[Manifest], version: str) -> list[str]:
    """How objects differ from the schemas of a Kubernetes; an unknown field is a fault, too."""
    faults = []
    for manifest in manifests:
        if manifest["kind"] in WITHOUT_SCHEMA:
            continue
        try:
            kubernetes_validate.validate(manifest, version, strict=True)
        except kubernetes_validate.ValidationError as error:
            place = ".".join(map(str, error.absolute_path))
            name = f"{manifest['kind']}/{manifest['metadata']['name']}"
            faults.append(f"{name} {place}: {error.message} (Kubernetes {version})")
        except kubernetes_validate.SchemaNotFoundError as error:
            faults.append(error.message)
    return faults


def pods(manifests: Sequence[Manifest]) -> Iterator[tuple[str, Manifest]]:
    """The pod templates, by the name of the object that has each."""
    for manifest in manifests:
        if manifest["kind"] in ("Deployment", "StatefulSet"):
            yield manifest["metadata"]["name"], manifest["spec"]["template"]


def pod_specs(name: str = "full", **over: Any) -> dict[str, Manifest]:
    """The specs of pods by part."""
    manifests = render(merged(given(name), over))
    return {each.removeprefix(f"{NAME}-"): pod["spec"] for each, pod in pods(manifests)}


def container(part: str, name: str = "full", **over: Any) -> Manifest:
    [only] = pod_specs(name, **over)[part]["containers"]
    found: Manifest = only
    return found


def parsed(arguments: list[str]) -> dict[str, Any]:
    """What a command would be called with; the command rejects what it does not know."""
    with click.Context(cli) as parent:
        command = cli.get_command(parent, arguments[0])
        assert command is not None
        return command.make_context(arguments[0], arguments[1:], parent=parent).params


def environ(part: str, name: str = "full", **over: Any) -> dict[str, str]:
    """The variables of a part, with what their Secrets hold."""
    found: dict[str, str] = {}
    for each in container(part, name, **over)["env"]:
        assert each["name"] not in found
        if (source := each.get("valueFrom")) is not None:
            secret = source["secretKeyRef"]
            found[each["name"]] = PASSWORDS[secret["name"], secret["key"]]
        else:
            assert isinstance(each["value"], str)
            found[each["name"]] = each["value"]
    return found


def rendered_text(values: Values) -> str:
    """All objects, each after the template that makes it, as one file."""
    texts = render_texts(values)
    paths = (path for path in sorted(texts) if path.endswith(".yaml"))
    return "".join(f"---\n# Source: {path}\n{texts[path].strip()}\n" for path in paths)


def main() -> None:
    """Store what is rendered; before that, give the chart's schema the words of settings."""
    file = CHART / "values.schema.json"
    schema = json.loads(file.read_text(encoding="utf-8"))
    settings = schema["properties"]["job"]["properties"]["settings"]["properties"]
    for spec in SPECS:
        if "enum" in settings.get(spec.name, {}):
            settings[spec.name]["enum"] = sorted(spec.expected.split(", "))
    file.write_text(json.dumps(schema, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    for name in GIVEN:
        file = RENDERED / f"{name}.yaml"
        file.write_text(rendered_text(given(name)), encoding="utf-8")
        print(f"chart: {file.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
