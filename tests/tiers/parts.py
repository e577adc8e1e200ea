"""The parts that a tier consists of. A part is one pytest process; two run side by side, if they get along."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Part:
    """One pytest process. `paths` may name single files; a path of another part inside one of them is left out."""

    name: str
    paths: tuple[str, ...]
    rank: int
    """The larger, the earlier it begins."""
    weight: int = 1
    """1 without a JVM, 2 with a local Spark, 3 with a cluster of six JVMs. See `CAPACITY`."""


CAPACITY = 4
"""What may run at once on two cores. A cluster beside a second Spark starves: Python workers take half a minute to start, and
what the tests wait for does not come in time."""

FAST = (
    Part(
        "unit",
        (
            "tests/architecture",
            "tests/compat",
            "tests/unit/api",
            "tests/unit/operators",
            "tests/unit/state",
            "tests/unit/testing",
        ),
        40,
    ),
    Part("rest of unit", ("tests/unit",), 40),
)

CI = (
    Part("integration", ("tests/integration",), 900, weight=2),
    Part("kafka", ("tests/integration/kafka",), 700, weight=2),
    Part("pipelines", ("tests/cluster/test_pipelines.py",), 600, weight=3),
    Part("chaos", ("tests/cluster/test_chaos.py",), 500, weight=3),
    Part("cluster", ("tests/cluster",), 400, weight=3),
    Part("docs", ("tests/integration/test_docs.py", "tests/integration/test_benchmarks.py"), 800, weight=2),
    Part("contract", ("tests/contract",), 300),
    Part("recovery", ("tests/recovery",), 200),
    Part("engine", ("tests/unit/runtime", "tests/unit/checkpoint", "tests/unit/savepoint"), 310),
    Part("unit", ("tests/architecture", "tests/compat", "tests/unit"), 320),
)
"""Their ranks put first what most likely finds a mistake, and of those without a JVM what takes longest: at the end no core waits
for the other. With the unit tests last, one core did nothing for the last 400 s of 1,990 s."""


def next_part(waiting: Sequence[Part], running: Sequence[Part]) -> Part | None:
    """The part to begin now, if there is one that fits beside what is running."""
    free = CAPACITY - sum(part.weight for part in running)
    return max((part for part in waiting if part.weight <= free), key=lambda part: part.rank, default=None)


def part_of(test: str, parts: tuple[Part, ...] = CI) -> str | None:
    """The part that runs a test, by the path of its file, with or without the ending."""
    holding = [
        (len(path), part.name)
        for part in parts
        for path in (each.removesuffix(".py") for each in part.paths)
        if test.removesuffix(".py") == path or test.startswith(f"{path}/")
    ]
    return max(holding)[1] if holding else None


def left_out(part: Part, parts: tuple[Part, ...]) -> list[str]:
    """Paths inside this part's that belong to another part."""
    others = [path for other in parts if other is not part for path in other.paths]
    return [path for path in others if any(path != mine and path.startswith(f"{mine}/") for mine in part.paths)]
