"""The customers of the shop: who there is, and from where."""

from __future__ import annotations

COUNTRIES = ("de", "fr", "it", "nl", "pt")


def customers(count: int = 40) -> dict[str, str]:
    """Country by customer."""
    return {f"c-{number:03d}": COUNTRIES[number * 7 % len(COUNTRIES)] for number in range(count)}
