"""The check of dashboards: it finds what it is for."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.project.promql import dashboard_faults, expressions, faults, samples_of, with_values

_DASHBOARD = Path(__file__).parents[3] / "docker" / "grafana" / "spu-assigner.json"
_SCRAPE = """\
# TYPE spu_assigner_answers counter
spu_assigner_answers_total{request="create",status="assigned",code=""} 3
# TYPE spu_assigner_batch_seconds histogram
spu_assigner_batch_seconds_bucket{le="1.0"} 1
spu_assigner_batch_seconds_bucket{le="+Inf"} 2
spu_assigner_batch_seconds_count 2
spu_assigner_batch_seconds_sum 2
"""


@pytest.mark.parametrize(
    "expression",
    [
        "spu_assigner_answers_total",
        'sum by (status, code) (rate(spu_assigner_answers_total{request="create"}[1m]))',
        'histogram_quantile(0.5, sum by (le) (rate(spu_assigner_batch_seconds_bucket{job=~".*"}'
        "[$__rate_interval])))",
        '{__name__=~"spu_assigner_batch_.+_sum"}',
        'spu_assigner_answers_total{instance=~"$instance", status!="rejected"} / on () '
        "group_left () sum(spu_assigner_batch_seconds_count)",
    ],
)
def test_a_query_of_what_is_there_is_right(expression: str) -> None:
    """A check that finds fault with everything is none."""
    assert faults(expression, samples_of(_SCRAPE)) == []


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("spu_assigner_answer_total", "no sample is selected"),
        ('spu_assigner_answers_total{state="assigned"}', "no sample is selected"),
        ('spu_assigner_answers_total{status="granted"}', "no sample is selected"),
        ("sum by (statuses) (spu_assigner_answers_total)", "label 'statuses'"),
        ("sum by (le) (rate(spu_assigner_answers_total[1m]))", "label 'le'"),
        ("ratio(spu_assigner_answers_total)", "unknown function"),
        ("rate", "no sample is selected by rate"),
        ('{__name__=~"spu_assigner_batches_.+"}', "no sample is selected"),
        ("spu_assigner_answers_total ; 1", "is no PromQL"),
        ("1 + 1", "selects nothing"),
        ("spu_assigner_answers_total / spu_assigner_batches_total", "no sample is selected"),
    ],
)
def test_a_misspelt_query_is_found(expression: str, message: str) -> None:
    """A metric, a label, a value, or what is no query at all."""
    assert any(message in fault for fault in faults(expression, samples_of(_SCRAPE)))


def test_a_label_in_a_legend_is_held_too() -> None:
    """Else a panel's lines would all have an empty name."""
    scrape = samples_of(_SCRAPE)
    assert faults("spu_assigner_answers_total", scrape, legend="{{status}} {{__name__}}") == []
    assert faults("spu_assigner_answers_total", scrape, legend="{{state}}") == [
        "no sample of it has the label 'state'"
    ]


def test_the_dashboard_needs_what_a_scrape_has() -> None:
    """Against a scrape that lacks most of it every panel but a few is reported."""
    dashboard = json.loads(_DASHBOARD.read_text(encoding="utf-8"))
    titles = {title for title, _, _ in expressions(dashboard)}
    reported = dashboard_faults(dashboard, samples_of(_SCRAPE))
    named = {fault.split(": ")[0] for fault in reported}
    assert titles - named == {"Creates answered", "All answers", "Batch time"}
    assert named - titles == {"variable instance", "variable cluster"}


def test_moves_and_their_bytes_have_a_panel_each_by_state() -> None:
    """An operator sees pending, done and failed beside each other."""
    dashboard = json.loads(_DASHBOARD.read_text(encoding="utf-8"))
    shown = {
        text.partition("{")[0]: target["legendFormat"]
        for panel in dashboard["panels"]
        for target in panel.get("targets", ())
        if (text := target["expr"]).startswith("spu_assigner_moves")
    }
    assert shown == {"spu_assigner_moves": "{{state}}", "spu_assigner_moves_bytes": "{{state}}"}


def test_every_panel_has_a_place_and_a_number_of_its_own() -> None:
    """Panels that overlap cannot be read; queries hold no variable that is unknown here."""
    dashboard = json.loads(_DASHBOARD.read_text(encoding="utf-8"))
    panels = dashboard["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    cells = [
        (x, y)
        for place in (panel["gridPos"] for panel in panels)
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]
    assert len(set(cells)) == len(cells)
    assert max(x for x, _ in cells) == 23
    assert [text for _, text, _ in expressions(dashboard) if "$" in with_values(text)] == []
