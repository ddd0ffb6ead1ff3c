"""Lines over a common axis as an SVG file, which every browser shows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

_WIDTH, _HEIGHT, _LEFT, _TOP, _GAP = 860, 170, 70, 46, 62
_COLOURS = ("#1f6feb", "#d1242f", "#2da44e", "#8250df")


@dataclass(frozen=True)
class Line:
    """A named line through points (x, y)."""

    name: str
    points: Sequence[tuple[float, float]]


@dataclass(frozen=True)
class Panel:
    """Lines that share an axis of values, to `most` where one of them would dwarf the others: it ends there."""

    title: str
    lines: Sequence[Line]
    most: float | None = None


def plot(path: Path, title: str, x_title: str, panels: Sequence[Panel]) -> None:
    """Draws the panels one below the other."""
    last = max(x for panel in panels for line in panel.lines for x, _ in line.points)
    height = _TOP + len(panels) * (_HEIGHT + _GAP)
    drawn = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_LEFT + _WIDTH + 30} {height}" '
        'font-family="sans-serif" font-size="12">',
        '<rect width="100%" height="100%" fill="white"/>',
        f'<text x="{_LEFT}" y="20" font-size="15">{escape(title)}</text>',
    ]
    for number, panel in enumerate(panels):
        drawn += _panel(panel, _TOP + number * (_HEIGHT + _GAP), last)
    drawn.append(f'<text x="{_LEFT + _WIDTH}" y="{height - 12}" text-anchor="end">{escape(x_title)}</text></svg>')
    path.write_text("\n".join(drawn), encoding="utf-8")


def _panel(panel: Panel, top: float, last: float) -> list[str]:
    most = _round(panel.most or max(y for line in panel.lines for _, y in line.points))
    drawn = [f'<text x="{_LEFT}" y="{top + 4}" font-weight="bold">{escape(panel.title)}</text>']
    top += 14

    def at(x: float, y: float) -> str:
        return f"{_LEFT + x / last * _WIDTH:.1f},{top + _HEIGHT - y / most * _HEIGHT:.1f}"

    for step in range(5):
        value = most * step / 4
        level = top + _HEIGHT - _HEIGHT * step / 4
        drawn.append(f'<path d="M{_LEFT} {level}H{_LEFT + _WIDTH}" stroke="#d0d7de"/>')
        drawn.append(f'<text x="{_LEFT - 8}" y="{level + 4}" text-anchor="end">{value:,.4g}</text>')
        x = last * step / 4
        place = _LEFT + x / last * _WIDTH
        drawn.append(f'<text x="{place}" y="{top + _HEIGHT + 16}" text-anchor="middle">{x:.0f}</text>')
    for number, line in enumerate(panel.lines):
        colour = _COLOURS[number % len(_COLOURS)]
        points = " ".join(at(x, y) for x, y in line.points if y <= most)
        drawn.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="1.5"/>')
        name = f'<text x="{_LEFT + _WIDTH - 8}" y="{top + 16 + 16 * number}" text-anchor="end" fill="{colour}">'
        drawn.append(f"{name}{escape(line.name)}</text>")
    return drawn


def _round(value: float) -> float:
    """The next number that makes four steps of round numbers."""
    step = 10.0 ** math.floor(math.log10(value / 4 or 1.0))
    return 4 * step * next(times for times in (1, 1.5, 2, 2.5, 3, 4, 5, 7.5, 10) if times * step >= value / 4)
