"""The parts that a tier consists of. A part is one pytest process. Two run side by side, at most one of them with Spark."""

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
    jvm: bool = False
    """Whether it runs Spark. Two of those at once starve each other on two cores: Python workers take half a minute to start,
    and what is waited for does not come in time."""


FAST = (
    Part(
        "unit", ("tests/architecture", "tests/compat", "tests/unit/api", "tests/unit/state", "tests/unit/testing"), 40
    ),
    Part("rest of unit", ("tests/unit",), 40),
)

CI = (
    Part("integration", ("tests/integration",), 900, jvm=True),
    Part("kafka", ("tests/integration/kafka",), 800, jvm=True),
    Part("pipelines", ("tests/cluster/test_pipelines.py",), 700, jvm=True),
    Part("chaos", ("tests/cluster/test_chaos.py",), 600, jvm=True),
    Part("cluster", ("tests/cluster",), 500, jvm=True),
    Part("docs", ("tests/integration/test_docs.py", "tests/integration/test_benchmarks.py"), 400, jvm=True),
    Part("contract", ("tests/contract",), 300),
    Part("recovery", ("tests/recovery",), 200),
    Part("unit", ("tests/architecture", "tests/compat", "tests/unit"), 100),
)
"""In the order in which a mistake is most likely found."""


def next_part(waiting: Sequence[Part], running: Sequence[Part]) -> Part | None:
    """The part to begin now: one with a JVM if none of those is running, otherwise one without."""
    jvm_runs = any(part.jvm for part in running)
    fitting = [part for part in waiting if not (part.jvm and jvm_runs)]
    return max(fitting, key=lambda part: (part.jvm, part.rank), default=None)


def left_out(part: Part, parts: tuple[Part, ...]) -> list[str]:
    """Paths inside this part's that belong to another part."""
    others = [path for other in parts if other is not part for path in other.paths]
    return [path for path in others if any(path != mine and path.startswith(f"{mine}/") for mine in part.paths)]
