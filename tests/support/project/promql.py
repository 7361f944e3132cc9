"""Queries of a dashboard and of alerts against a scrape: each name, label and value must be there.

It reads as much of PromQL as these need: selectors with matchers, functions, aggregations, labels
that they name, comparisons and set operators. What it does not know is a fault too, never passed
over.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from prometheus_client.parser import text_string_to_metric_families

TARGET_LABELS: Final = ("job", "instance")  # that Prometheus adds to each sample
# Grafana's variables, as something that PromQL takes.
VARIABLES: Final[Mapping[str, str]] = {
    "$__rate_interval": "1m",
    "$__interval": "1m",
    "$__range": "1h",
    "$instance": ".*",
    "$cluster": ".*",
}
SEVERITIES: Final = ("critical", "warning")
_RULE_PARTS: Final = frozenset({"alert", "expr", "for", "labels", "annotations"})
_AGGREGATIONS: Final = frozenset({"sum", "avg", "min", "max", "count"})
_FUNCTIONS: Final = frozenset({"rate", "increase", "histogram_quantile", "scalar", "clamp_min"})
_OPERATORS: Final = frozenset({"and", "or", "unless", "offset"})
_LISTS: Final = frozenset({"by", "without", "on", "ignoring", "group_left", "group_right"})
_TOKENS: Final = re.compile(
    r"""\s*(?:(?P<string>"(?:[^"\\]|\\.)*")|(?P<duration>\[[0-9]+[smhd]\]|[0-9]+[smhd]\b)|(?P<number>[0-9.]+)
    |(?P<name>[A-Za-z_:][A-Za-z0-9_:]*)|(?P<operator>=~|!~|!=|==|<=|>=|[-+*/(){},=<>]))""",
    re.VERBOSE,
)
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
    told = []
    for title, expression, legend in expressions(dashboard):
        told += [f"{title}: {fault}" for fault in faults(expression, samples, legend=legend)]
    for variable in dashboard["templating"]["list"]:
        if variable["type"] == "query":
            asked = _LABEL_VALUES.fullmatch(variable["query"])
            if asked is None:
                told.append(f"variable {variable['name']}: {variable['query']} is not understood")
            elif not any(each.name == asked[1] and asked[2] in each.labels for each in samples):
                told.append(f"variable {variable['name']}: no {asked[1]} has a {asked[2]}")
    return told


def alert_rules(file: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """All rules of a file of Prometheus's."""
    return [rule for group in file["groups"] for rule in group["rules"]]


def alert_faults(file: Mapping[str, Any], samples: Sequence[Sample], *, job: str) -> list[str]:
    """What is wrong with rules: parts that are missing, and what they name that no sample has.

    Args:
        samples: what the scraped job shows.
        job: the name that Prometheus's configuration gives it.
    """
    there = [Sample(each.name, {**each.labels, "job": job}) for each in samples]
    there.append(Sample("up", {**dict.fromkeys(TARGET_LABELS, "somewhere:1"), "job": job}))
    told = []
    for rule in alert_rules(file):
        if rule.keys() != _RULE_PARTS:
            told.append(f"{rule.get('alert')}: has {sorted(rule)}; expected {sorted(_RULE_PARTS)}")
            continue
        found = faults(rule["expr"], there)
        if re.fullmatch(r"[0-9]+[smhd]", rule["for"]) is None:
            found.append(f"for is {rule['for']!r}")
        if rule["labels"].get("severity") not in SEVERITIES:
            found.append(f"labels are {rule['labels']}; expected a severity of {SEVERITIES}")
        lists = re.findall(r"by \(([^)]*)\)", rule["expr"])
        kept = [set(re.findall(r"\w+", labels)) for labels in lists]
        kept.append({label for each in there if each.name in rule["expr"] for label in each.labels})
        for part in ("summary", "description"):
            text = rule["annotations"].get(part, "")
            asked = set(re.findall(r"\$labels\.(\w+)", text))
            if not text:
                found.append(f"has no {part}")
            if lacking := asked - set.intersection(*kept):
                found.append(f"no result has the labels {sorted(lacking)} of its {part}")
        told += [f"{rule['alert']}: {fault}" for fault in found]
    return told


def with_values(expression: str) -> str:
    """The expression as Prometheus takes it."""
    for variable in sorted(VARIABLES, key=len, reverse=True):
        expression = expression.replace(variable, VARIABLES[variable])
    return expression


def faults(expression: str, samples: Sequence[Sample], *, legend: str = "") -> list[str]:
    """What an expression names that no sample has."""
    tokens = _tokens(with_values(expression))
    if tokens is None:
        return [f"{expression!r} is not understood"]
    told: list[str] = []
    selected: list[Sample] = []
    named: set[str] = set(re.findall(r"\{\{(\w+)\}\}", legend)) - {"__name__"}
    position = 0
    while position < len(tokens):
        kind, text = tokens[position]
        following = tokens[position + 1][1] if position + 1 < len(tokens) else ""
        position += 1
        if kind == "name" and text in _OPERATORS:
            continue
        if kind == "name" and text in _LISTS:
            position, labels = _label_list(tokens, position)
            named |= labels
        elif kind == "name" and text in _AGGREGATIONS | _FUNCTIONS:
            if following != "(" and following not in {"by", "without"}:
                told.append(f"{text} is a function, and is not called")
        elif kind == "name" and following == "(":
            told.append(f"{text} is no function that is known here")
        elif kind == "name" or text == "{":
            name = text if kind == "name" else None
            matchers: list[tuple[str, str, str]] = []
            if text == "{" or following == "{":
                position, matchers = _matchers(tokens, position + (text != "{"))
            found = _select(name, matchers, samples)
            if not found:
                told.append(f"no sample is selected by {name or ''}{matchers}")
            selected += found
    there = {label for sample in selected for label in sample.labels}
    told += [f"no sample of it has the label {label!r}" for label in sorted(named - there)]
    if not selected:
        told.append(f"{expression!r} selects nothing")
    return told


def _tokens(expression: str) -> list[tuple[str, str]] | None:
    found, position = [], 0
    while position < len(expression.rstrip()):
        match = _TOKENS.match(expression, position)
        if match is None or match.lastgroup is None:
            return None
        found.append((match.lastgroup, match[match.lastgroup]))
        position = match.end()
    return found


def _label_list(tokens: Sequence[tuple[str, str]], position: int) -> tuple[int, set[str]]:
    """The labels in parentheses from here on, if there are any, and the place behind them."""
    if position >= len(tokens) or tokens[position][1] != "(":
        return position, set()
    end = next(at for at in range(position, len(tokens)) if tokens[at][1] == ")")
    return end + 1, {text for kind, text in tokens[position:end] if kind == "name"}


def _matchers(
    tokens: Sequence[tuple[str, str]], position: int
) -> tuple[int, list[tuple[str, str, str]]]:
    """Label, operator and value of each matcher from here on, and the place behind the brace."""
    end = next(at for at in range(position, len(tokens)) if tokens[at][1] == "}")
    inside = [text for _, text in tokens[position:end] if text != ","]
    return end + 1, [
        (label, operator, value[1:-1])
        for label, operator, value in zip(inside[::3], inside[1::3], inside[2::3], strict=True)
    ]


def _select(
    name: str | None, matchers: Iterable[tuple[str, str, str]], samples: Sequence[Sample]
) -> list[Sample]:
    found = [sample for sample in samples if name is None or sample.name == name]
    for label, operator, value in matchers:
        found = [sample for sample in found if _matches(sample, label, operator, value)]
    return found


def _matches(sample: Sample, label: str, operator: str, value: str) -> bool:
    """As Prometheus does, but that the label must be there."""
    actual = sample.name if label == "__name__" else sample.labels.get(label)
    if actual is None:
        return False
    is_equal = (
        re.fullmatch(value, actual) is not None if operator.endswith("~") else actual == value
    )
    return is_equal is not operator.startswith("!")
