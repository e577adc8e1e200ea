"""What pytest processes left in their JUnit files, as one summary that ends like a single run of pytest."""

from __future__ import annotations

import xml.etree.ElementTree as xml
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

WIDTH = 80


@dataclass(slots=True)
class Summary:
    """Counts and durations of all tests of some parts."""

    outcomes: Counter[str] = field(default_factory=Counter)
    seconds: dict[str, float] = field(default_factory=dict)
    failed: list[str] = field(default_factory=list)

    def add(self, junit: Path) -> None:
        for case in xml.parse(junit).getroot().iter("testcase"):
            name = f"{case.get('classname', '').replace('.', '/')}::{case.get('name', '')}"
            self.seconds[name] = self.seconds.get(name, 0.0) + float(case.get("time", "0"))
            for kind, outcome in (("failure", "failed"), ("error", "error"), ("skipped", "skipped")):
                if case.find(kind) is not None:
                    self.outcomes[outcome] += 1
                    if outcome != "skipped":
                        self.failed.append(f"{outcome.upper()} {name}")
                    break
            else:
                self.outcomes["passed"] += 1

    def slowest(self, count: int) -> list[tuple[str, float]]:
        return sorted(self.seconds.items(), key=lambda item: -item[1])[:count]

    def closing_line(self, took_s: float) -> str:
        """As pytest writes it, so that whoever reads the output of one run can read that of many."""
        counts = ", ".join(
            f"{self.outcomes[kind]} {kind}" for kind in ("failed", "passed", "skipped") if self.outcomes[kind]
        )
        if errors := self.outcomes["error"]:
            counts += f", {errors} error{'s' if errors > 1 else ''}"
        minutes, seconds = divmod(round(took_s), 60)
        text = f" {counts or 'no tests ran'} in {took_s:.2f}s ({minutes // 60}:{minutes % 60:02d}:{seconds:02d}) "
        return text.center(WIDTH, "=")
