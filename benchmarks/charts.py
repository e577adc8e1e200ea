"""Bar charts as SVG, without a library: they are images in the documentation, and must not change unless figures do.

A chart has a card as its own background, and colours for light and dark, like the other drawings of the documentation.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

WIDTH, LEFT, RIGHT, ROW, TOP = 880, 340, 120, 28, 62
_STYLE = """\
    .card { fill: #ffffff; stroke: #d0d7de; }
    .text { fill: #1f2328; }
    .soft { fill: #59636e; }
    .line { stroke: #8c959f; }
    .spread { stroke: #1f2328; }
    .ours { fill: #0969da; }
    .other { fill: #8c959f; }
    .good { fill: #1a7f37; }
    .bad { fill: #cf222e; }
    @media (prefers-color-scheme: dark) {
      .card { fill: #0d1117; stroke: #3d444d; }
      .text { fill: #f0f6fc; }
      .soft { fill: #9198a1; }
      .line { stroke: #656c76; }
      .spread { stroke: #f0f6fc; }
      .ours { fill: #4493f8; }
      .other { fill: #656c76; }
      .good { fill: #3fb950; }
      .bad { fill: #f85149; }
    }"""


@dataclass(frozen=True, slots=True)
class Bar:
    """One figure: its label, its value, and the quartiles around it if there are several samples."""

    label: str
    value: float
    ours: bool
    quartiles: tuple[float, float] | None = None


@dataclass(frozen=True, slots=True)
class Margin:
    """How a ratio compares with what is wanted of it: 1 is just enough, more is better."""

    label: str
    margin: float
    told: str


def bars(title: str, subtitle: str, rows: Sequence[Bar]) -> str:
    """Horizontal bars from zero; ours are coloured."""
    longest = max([bar.value for bar in rows] + [bar.quartiles[1] for bar in rows if bar.quartiles]) or 1.0
    scale = (WIDTH - LEFT - RIGHT) / longest
    parts = []
    for number, bar in enumerate(rows):
        y, end = TOP + number * ROW, LEFT + bar.value * scale
        parts.append(_label(bar.label, y))
        kind = "ours" if bar.ours else "other"
        parts.append(f'<rect x="{LEFT}" y="{y}" width="{max(1.0, bar.value * scale):.1f}" height="16" class="{kind}"/>')
        told_at = end
        if bar.quartiles and bar.quartiles[0] != bar.quartiles[1]:
            low, high = (LEFT + quartile * scale for quartile in bar.quartiles)
            parts.append(
                f'<path d="M{low:.1f},{y + 8} H{high:.1f} M{low:.1f},{y + 4} v8 M{high:.1f},{y + 4} v8" class="spread"/>'
            )
            told_at = max(end, high)
        parts.append(f'<text x="{told_at + 8:.1f}" y="{y + 13}" class="text">{number_text(bar.value)}</text>')
    return _drawing(title, subtitle, parts, len(rows))


def margins(title: str, subtitle: str, rows: Sequence[Margin]) -> str:
    """Bars on a logarithmic scale, to the right of the line if what was wanted is reached, to the left if not."""
    widest = max(math.log10(10), *(abs(math.log10(row.margin)) for row in rows)) if rows else 1.0
    middle = LEFT + (WIDTH - LEFT - RIGHT) * 0.5
    scale = (WIDTH - LEFT - RIGHT) * 0.5 / widest
    parts = []
    for number, row in enumerate(rows):
        y, length = TOP + number * ROW, math.log10(row.margin) * scale
        left, kind = (middle, "good") if length >= 0 else (middle + length, "bad")
        parts.append(_label(row.label, y))
        parts.append(f'<rect x="{left:.1f}" y="{y}" width="{max(1.0, abs(length)):.1f}" height="16" class="{kind}"/>')
        parts.append(f'<text x="{WIDTH - RIGHT + 8}" y="{y + 13}" class="text">{escape(row.told)}</text>')
    parts.append(f'<path d="M{middle:.1f},{TOP - 8} V{TOP + len(rows) * ROW - 4}" class="line"/>')
    return _drawing(title, subtitle, parts, len(rows))


def number_text(value: float) -> str:
    """A figure as a person reads it: three digits, or whole numbers with separators."""
    if value == 0:
        return "0"
    if abs(value) >= 1_000:
        digits = 3 - 1 - math.floor(math.log10(abs(value)))
        return f"{round(value, digits):,.0f}"
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _label(text: str, y: float) -> str:
    return f'<text x="{LEFT - 10}" y="{y + 13}" text-anchor="end" class="text">{escape(text)}</text>'


def _drawing(title: str, subtitle: str, parts: Sequence[str], rows: int) -> str:
    height = TOP + rows * ROW + 12
    lines = "\n".join(f"    {part}" for part in parts)
    return f"""\
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" aria-labelledby="title description"
     font-family="system-ui, -apple-system, 'Segoe UI', Roboto, 'DejaVu Sans', sans-serif">
  <title id="title">{escape(title)}</title>
  <desc id="description">{escape(subtitle)}</desc>
  <style>
{_STYLE}
  </style>
  <rect x="1" y="1" width="{WIDTH - 2}" height="{height - 2}" rx="10" class="card"/>
  <text x="24" y="30" font-size="16" font-weight="600" class="text">{escape(title)}</text>
  <text x="24" y="48" font-size="12" class="soft">{escape(subtitle)}</text>
  <g font-size="13" stroke-width="1.5">
{lines}
  </g>
</svg>
"""
