"""How many examples a property test looks at in each tier."""

from __future__ import annotations

import os

import hypothesis

from tests.tiers.budgets import tier

_FACTORS = {"fast": 0.25, "ci": 1.0, "nightly": 10.0, "thorough": 20.0}
_USUAL = 100

SIZE = "TIDEGATE_NIGHTLY_SIZE"
"""Set by `make nightly SIZE=…`: the share of a night's examples that a shortened night looks at."""


def profile() -> str:
    """`HYPOTHESIS_PROFILE` if it is set, or else what belongs to the tier."""
    return os.environ.get("HYPOTHESIS_PROFILE") or tier() or "ci"


def examples(count: int) -> int:
    """As many examples as a test with a number of its own gets in this tier, if it gets `count` of them in CI."""
    return max(3, round(count * _factor(profile())))


def _factor(name: str) -> float:
    return _FACTORS[name] * (float(os.environ.get(SIZE, "1")) if name == "nightly" else 1.0)


def load() -> None:
    """`fast` and `ci` see the same examples every time, so that a failure can be repeated; the others look further."""
    for name in _FACTORS:
        fixed = {"derandomize": True} if name in ("fast", "ci") else {}
        count = max(3, round(_USUAL * _factor(name)))
        hypothesis.settings.register_profile(name, max_examples=count, deadline=None, print_blob=True, **fixed)
    hypothesis.settings.load_profile(profile())
