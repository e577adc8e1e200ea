"""The dashboard as Grafana reads it (JSON)."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

from tidegate.metrics import catalog
from tidegate.metrics.dashboard import SECTIONS, Look, Panel, Section

UID = "tidegate-jobs"
_COLUMNS = 24
_SIZES = {Look.NUMBER: (4, 4), Look.CHART: (8, 7)}
"""Width and height of a panel, in cells of Grafana's grid."""
_SOURCE = {"type": "prometheus", "uid": "${datasource}"}
_SCHEMA = 39
"""Grafana 11's; newer versions migrate it when they load it."""


def dashboard_file() -> str:
    return json.dumps(dashboard(), indent=2, ensure_ascii=False) + "\n"


def dashboard() -> dict[str, Any]:
    return {
        "uid": UID,
        "title": "tidegate jobs",
        "description": "Jobs of tidegate: health, throughput, checkpoints, output and tasks.",
        "tags": ["tidegate"],
        "schemaVersion": _SCHEMA,
        "version": 1,
        "editable": True,
        "graphTooltip": 1,
        "timezone": "browser",
        "refresh": "10s",
        "time": {"from": "now-1h", "to": "now"},
        "annotations": {"list": []},
        "links": [],
        "templating": {"list": list(_variables())},
        "panels": list(_placed(SECTIONS)),
    }


def _variables() -> Iterator[dict[str, Any]]:
    yield {
        "name": "datasource",
        "label": "Data source",
        "type": "datasource",
        "query": "prometheus",
        "hide": 0,
        "multi": False,
        "includeAll": False,
        "options": [],
        "refresh": 1,
    }
    query = f"label_values({catalog.UPTIME.prometheus_name}, job)"
    yield {
        "name": "job",
        "label": "Job",
        "type": "query",
        "datasource": _SOURCE,
        "query": {"query": query, "refId": "jobs"},
        "hide": 0,
        "multi": True,
        "includeAll": True,
        "allValue": ".*",
        "current": {"text": ["All"], "value": ["$__all"]},
        "options": [],
        "refresh": 2,
        "sort": 1,
    }


def _placed(sections: Iterable[Section]) -> Iterator[dict[str, Any]]:
    """Give each panel its number and place: sections below each other, panels from left to right."""
    number = y = 0
    for section in sections:
        number += 1
        yield {
            "id": number,
            "type": "row",
            "title": section.title,
            # An open row has no panels of its own. Grafana shows those that follow it in the list.
            "collapsed": False,
            "gridPos": {"h": 1, "w": _COLUMNS, "x": 0, "y": y},
            "panels": [],
        }
        x, y, tallest = 0, y + 1, 0
        for panel in section.panels:
            number += 1
            width, height = _SIZES[panel.look]
            # The row is full: the next panel begins a new one below the tallest of this one.
            if x + width > _COLUMNS:
                x, y, tallest = 0, y + tallest, 0
            yield _panel(panel, number, {"h": height, "w": width, "x": x, "y": y})
            x, tallest = x + width, max(tallest, height)
        y += tallest


def _panel(panel: Panel, number: int, place: dict[str, int]) -> dict[str, Any]:
    return {
        "id": number,
        "type": str(panel.look),
        "title": panel.title,
        "description": panel.about,
        "datasource": _SOURCE,
        "gridPos": place,
        "targets": [
            {
                # Grafana names the queries of a panel A, B, C.
                "refId": chr(ord("A") + place_in_list),
                "datasource": _SOURCE,
                "expr": query.expr,
                "legendFormat": query.legend,
                "range": True,
            }
            for place_in_list, query in enumerate(panel.queries)
        ],
        "fieldConfig": {"defaults": _field(panel), "overrides": []},
        "options": _options(panel),
    }


def _field(panel: Panel) -> dict[str, Any]:
    config: dict[str, Any] = {
        "unit": str(panel.unit),
        "min": 0,
        "thresholds": {"mode": "absolute", "steps": _steps(panel)},
    }
    if panel.look is Look.CHART:
        config["custom"] = {
            "drawStyle": "line",
            "lineWidth": 1,
            "fillOpacity": 10,
            "showPoints": "never",
            "spanNulls": False,
            "stacking": {"mode": "normal" if panel.stacked else "none", "group": "A"},
        }
    return config


def _steps(panel: Panel) -> list[dict[str, Any]]:
    if panel.limits is None:
        # Steps begin at minus infinity, which Grafana writes as null.
        return [{"color": "green", "value": None}]
    first, second = panel.limits
    if first < second:
        return [
            {"color": "green", "value": None},
            {"color": "yellow", "value": first},
            {"color": "red", "value": second},
        ]
    return [{"color": "red", "value": None}, {"color": "yellow", "value": second}, {"color": "green", "value": first}]


def _options(panel: Panel) -> dict[str, Any]:
    if panel.look is Look.NUMBER:
        is_status = panel.title == "Status"
        return {
            "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
            "colorMode": "value" if panel.limits else "none",
            "graphMode": "none" if is_status else "area",
            "textMode": "name" if is_status else "value_and_name",
            "justifyMode": "auto",
            "orientation": "auto",
        }
    return {
        "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True, "calcs": []},
        "tooltip": {"mode": "multi", "sort": "desc"},
    }
