"""The results that the repository keeps in `benchmarks/results`: a file for each run, with what `docs/benchmarks.md` needs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).with_name("results")
_DROPPED = {"epochs", "samples", "rounds"}
"""Every single epoch and sample: most of the bytes of a report, and none of its page."""


@dataclass(frozen=True, slots=True)
class Ratio:
    """A ratio of two figures of one run, and what is wanted of it, if anything is."""

    name: str
    value: float
    wanted: float | None
    at_most: bool

    @property
    def reached(self) -> bool | None:
        if self.wanted is None:
            return None
        return self.value <= self.wanted if self.at_most else self.value >= self.wanted

    @property
    def margin(self) -> float | None:
        """How many times better than wanted: 1 is just enough. None if nothing, or zero, is wanted."""
        if not self.wanted or not self.value:
            return None
        return self.wanted / self.value if self.at_most else self.value / self.wanted


@dataclass(frozen=True, slots=True)
class Result:
    """One run of one benchmark."""

    name: str
    report: Mapping[str, Any]

    @property
    def figures(self) -> Mapping[str, Mapping[str, Any]]:
        return self.report["figures"]

    @property
    def ratios(self) -> list[Ratio]:
        return [
            Ratio(name, each["value"], each["wanted"], each["at_most"]) for name, each in self.report["ratios"].items()
        ]

    def value(self, name: str) -> tuple[float, str]:
        """The figure or ratio of this name, and its unit."""
        if name in self.figures:
            return self.figures[name]["median"], self.figures[name]["unit"]
        for ratio in self.ratios:
            if ratio.name == name:
                return ratio.value, ""
        raise KeyError(f"{self.name} has no figure or ratio {name!r}")


def read_results(folder: Path = RESULTS) -> dict[str, Result]:
    return {path.stem: Result(path.stem, json.loads(path.read_text())) for path in sorted(folder.glob("*.json"))}


def keep(report_file: Path, folder: Path = RESULTS, note: str = "") -> Path:
    """Put a report into the repository, without its single samples, under the name of its file. `note`: what else a reader of
    its figures should know about the run."""
    kept = _shortened(json.loads(report_file.read_text()))
    if note:
        kept["notes"] = [*kept.get("notes", ()), note]
    folder.mkdir(exist_ok=True)
    target = folder / report_file.name
    target.write_text(json.dumps(kept, indent=1, ensure_ascii=False) + "\n")
    return target


def _shortened(value: Any) -> Any:
    if isinstance(value, dict):
        counted = {"n": len(value["samples"])} if isinstance(value.get("samples"), list) else {}
        return {key: _shortened(each) for key, each in value.items() if key not in _DROPPED} | counted
    if isinstance(value, list):
        return [_shortened(each) for each in value]
    return float(f"{value:.6g}") if isinstance(value, float) else value
