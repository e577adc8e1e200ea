"""The parts that a tier consists of. A part is one pytest process; two of them run side by side, the longest first."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Part:
    """One pytest process. `paths` may name single files; a path of another part inside one of them is left out."""

    name: str
    paths: tuple[str, ...]
    seconds: int
    """About how long it takes beside another part. Only decides which part begins first."""


FAST = (
    Part(
        "unit", ("tests/architecture", "tests/compat", "tests/unit/api", "tests/unit/state", "tests/unit/testing"), 40
    ),
    Part("rest of unit", ("tests/unit",), 40),
)

CI = (
    Part("cluster", ("tests/cluster",), 600),
    Part("pipelines", ("tests/cluster/test_pipelines.py",), 400),
    Part("chaos", ("tests/cluster/test_chaos.py",), 300),
    Part("integration", ("tests/integration",), 600),
    Part("kafka", ("tests/integration/kafka",), 200),
    Part("docs", ("tests/integration/test_docs.py", "tests/integration/test_benchmarks.py"), 300),
    Part("unit", ("tests/architecture", "tests/compat", "tests/unit"), 200),
    Part("contract", ("tests/contract",), 200),
    Part("recovery", ("tests/recovery",), 150),
)


def left_out(part: Part, parts: tuple[Part, ...]) -> list[str]:
    """Paths inside this part's that belong to another part."""
    others = [path for other in parts if other is not part for path in other.paths]
    return [path for path in others if any(path != mine and path.startswith(f"{mine}/") for mine in part.paths)]
