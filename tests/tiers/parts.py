"""The parts that a tier consists of. A part is one pytest process; two of them run side by side, the longest first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Part:
    """One pytest process. `paths` may name single files; a path of another part inside one of them is left out."""

    name: str
    paths: tuple[str, ...]
    seconds: int
    """About how long it takes beside another part. Only decides which part begins first."""
    heavy: bool = False
    """Whether it runs a cluster of six JVMs. Two of those at once starve each other."""


FAST = (
    Part(
        "unit", ("tests/architecture", "tests/compat", "tests/unit/api", "tests/unit/state", "tests/unit/testing"), 40
    ),
    Part("rest of unit", ("tests/unit",), 40),
)

CI = (
    Part("cluster", ("tests/cluster",), 600, heavy=True),
    Part("pipelines", ("tests/cluster/test_pipelines.py",), 400, heavy=True),
    Part("chaos", ("tests/cluster/test_chaos.py",), 300, heavy=True),
    Part("integration", ("tests/integration",), 600),
    Part("kafka", ("tests/integration/kafka",), 200),
    Part("docs", ("tests/integration/test_docs.py", "tests/integration/test_benchmarks.py"), 300),
    Part("unit", ("tests/architecture", "tests/compat", "tests/unit"), 200),
    Part("contract", ("tests/contract",), 200),
    Part("recovery", ("tests/recovery",), 150),
)


def next_part(waiting: Sequence[Part], running: Sequence[Part]) -> Part | None:
    """The part to begin now: a heavy one if none is running, otherwise one that is not; the longest first."""
    heavy_runs = any(part.heavy for part in running)
    fitting = [part for part in waiting if not (part.heavy and heavy_runs)]
    return max(fitting, key=lambda part: (part.heavy, part.seconds), default=None)


def left_out(part: Part, parts: tuple[Part, ...]) -> list[str]:
    """Paths inside this part's that belong to another part."""
    others = [path for other in parts if other is not part for path in other.paths]
    return [path for path in others if any(path != mine and path.startswith(f"{mine}/") for mine in part.paths)]
