"""Queries of a dashboard and of alerts against a scrape: names, labels and values must be there."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import promql_parser
from prometheus_client.parser import text_string_to_metric_families
from promql_parser import AggregateExpr, BinaryExpr, Expr, Matcher, MatchOp, VectorSelector

TARGET_LABELS: Final = ("job", "instance")  # that Prometheus adds to each sample
# Grafana's variables, as something that PromQL takes.
VARIABLES: Final[Mapping[str, str]] = {
    "$__rate_interval": "1m",
    "$__interval": "1m",
    "$__range": "1h",
    "$instance": ".*",
    "$cluster": ".*",
}
_LABEL_VALUES: Final = re.compile(r"label_values\((\w+), (\w+)\)")


@dataclass(frozen=True, slots=True)
class Sample:
    """One line of a scrape."""

    name: str
    labels: Mapping[str, str]


def samples_of(text: str) -> list[Sample]:
    """What a scrape holds, with the labels that Prometheus adds."""
    added = dict.fromkeys(TARGET_LABELS, "somewhere:1")
    return [
        Sample(sample.name, {**sample.labels, **added})
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    ]


def expressions(dashboard: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """Each query of a dashboard: panel, expression, legend."""
    return [
        (panel["title"], target["expr"], target["legendFormat"])
        for panel in dashboard["panels"]
        for target in panel.get("targets", ())
    ]


def dashboard_faults(dashboard: Mapping[str, Any], samples: Sequence[Sample]) -> list[str]:
    """What a dashboard asks for that no sample has."""
    found_faults = []
    for title, expression, legend in expressions(dashboard):
        found_faults += [
            f"{title}: {fault}" for fault in faults(expression, samples, legend=legend)
        ]
    for variable in dashboard["templating"]["list"]:
        if variable["type"] == "query":
            asked = _LABEL_VALUES.fullmatch(variable["query"])
            if asked is None:
                found_faults.append(
                    f"variable {variable['name']}: {variable['query']} is not understood"
                )
            elif not any(each.name == asked[1] and asked[2] in each.labels for each in samples):
                found_faults.append(f"variable {variable['name']}: no {asked[1]} has a {asked[2]}")
    return found_faults


def alert_rules(file: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """All rules of a file of Prometheus's."""
    return [rule for group in file["groups"] for rule in group["rules"]]


def alert_faults(file: Mapping[str, Any], samples: Sequence[Sample], *, job: str) -> list[str]:
    """What alerts name that no sample has; `job`: as Prometheus's configuration calls it."""
    there = [Sample(each.name, {**each.labels, "job": job}) for each in samples]
    there.append(Sample("up", {**dict.fromkeys(TARGET_LABELS, "somewhere:1"), "job": job}))
    return [
        f"{rule['alert']}: {fault}"
        for rule in alert_rules(file)
        for fault in faults(rule["expr"], there)
    ]


def with_values(expression: str) -> str:
    """The expression as Prometheus takes it."""
    for variable in sorted(VARIABLES, key=len, reverse=True):
        expression = expression.replace(variable, VARIABLES[variable])
    return expression


def faults(expression: str, samples: Sequence[Sample], *, legend: str = "") -> list[str]:
    """What an expression names that no sample has."""
    try:
        parsed = promql_parser.parse(with_values(expression))
    except ValueError as reason:
        return [f"{expression!r} is no PromQL: {reason}"]
    found_faults: list[str] = []
    selected: list[Sample] = []
    named: set[str] = set(re.findall(r"\{\{(\w+)\}\}", legend)) - {"__name__"}

    def visit(part: Expr) -> None:
        match part:
            case AggregateExpr(modifier=modifier) if modifier is not None:
                named.update(modifier.labels)
            case BinaryExpr(modifier=modifier) if modifier is not None:
                named.update(modifier.group_labels or ())
                named.update(modifier.matching.labels if modifier.matching is not None else ())
            case VectorSelector():
                found = [sample for sample in samples if _is_selected(sample, part)]
                selected.extend(found)
                if not found:
                    found_faults.append(f"no sample is selected by {part}")
            case _:
                pass

    promql_parser.walk(parsed, pre_visit=visit)
    there = {label for sample in selected for label in sample.labels}
    found_faults += [f"no sample of it has the label {label!r}" for label in sorted(named - there)]
    return found_faults if selected or found_faults else [f"{expression!r} selects nothing"]


def _is_selected(sample: Sample, selector: VectorSelector) -> bool:
    """As Prometheus does, but that each label must be there."""
    labels = {"__name__": sample.name, **sample.labels}
    return selector.name in (None, sample.name) and all(
        each.name in labels and _matches(labels[each.name], each)
        for each in selector.matchers.matchers
    )


def _matches(actual: str, matcher: Matcher) -> bool:
    is_pattern = matcher.op in (MatchOp.Re, MatchOp.NotRe)
    is_equal = bool(re.fullmatch(matcher.value, actual)) if is_pattern else actual == matcher.value
    return is_equal is (matcher.op in (MatchOp.Equal, MatchOp.Re))
