"""Draws docs/images/overview.svg, the README's picture of the whole: `python tools/overview.py`."""

from __future__ import annotations

from html import escape
from pathlib import Path

OUT = Path(__file__).resolve().parent.parent / "docs" / "images" / "overview.svg"
WIDTH, HEIGHT = 1000, 580
INK, SOFT, LINE = "#1f2933", "#52606d", "#9aa5b1"
SOURCE, STEP, LEDGER, TABLE, CURE = "#e3f2fd", "#f3e8ff", "#fff4d6", "#e2f7e9", "#fde4e1"
STEPS = (
    ("settle", "decides what", "a dead run left"),
    ("plan", "fixes the ranges", "of this batch"),
    ("open", "opens a Hudi", "instant"),
    ("append", "Spark reads the", "ranges, writes files"),
    ("record", "makes the offsets", "durable: phase one"),
    ("commit", "completes the", "instant: phase two"),
)


def box(x: float, y: float, width: float, height: float, fill: str, title: str, *lines: str) -> str:
    """A rounded box with a title and lines below it."""
    middle, top = x + width / 2, y + 24
    texts = [text(middle, top, title, 15, INK, "600")]
    texts += [text(middle, top + 19 + 16 * number, line, 12, SOFT) for number, line in enumerate(lines)]
    shape = f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="10" fill="{fill}" stroke="{LINE}"/>'
    return "\n".join([shape, *texts])


def text(x: float, y: float, words: str, size: int, colour: str, weight: str = "400", anchor: str = "middle") -> str:
    """One line of text."""
    return (
        f'<text x="{x}" y="{y}" font-size="{size}" fill="{colour}" font-weight="{weight}" '
        f'text-anchor="{anchor}">{escape(words)}</text>'
    )


def arrow(points: str, dashed: bool = False) -> str:
    """A line with a head at its end."""
    dash = ' stroke-dasharray="5 4"' if dashed else ""
    return f'<path d="{points}" fill="none" stroke="{SOFT}" stroke-width="1.6"{dash} marker-end="url(#head)"/>'


def picture() -> str:
    """The whole picture."""
    run = f'<rect x="20" y="150" width="940" height="140" rx="12" fill="none" stroke="{LINE}" stroke-dasharray="2 3"/>'
    parts = [
        run,
        text(490, 174, "one Airflow DAG run = one transaction, fixed before it runs", 13, SOFT, "600"),
    ]
    for number, (name, *lines) in enumerate(STEPS):
        x = 36 + number * 153
        parts.append(box(x, 190, 142, 84, STEP, name, *lines))
        if number:
            parts.append(arrow(f"M {x - 10} 232 L {x - 1} 232"))
    parts += [
        box(
            180,
            30,
            600,
            82,
            LEDGER,
            "Ledger (a SQL database)",
            "transactions, leases, which cursors are committed,",
            "every decision and what was seen",
        ),
        arrow("M 260 188 L 260 114"),
        arrow("M 719 188 L 719 114"),
        box(
            36, 350, 270, 104, SOURCE, "SLS logstore", "hundreds of shards, read by cursor,", "without a consumer group"
        ),
        arrow("M 240 348 L 240 276"),
        arrow("M 286 348 L 286 318 L 540 318 L 540 276"),
        box(
            350,
            350,
            610,
            104,
            TABLE,
            "Hudi table",
            "timeline, base files, log files, metadata table;",
            "each commit carries its transaction and its ranges,",
            "each row the shard and cursor that it came from",
        ),
        arrow("M 413 276 L 413 348"),
        arrow("M 586 276 L 586 348"),
        arrow("M 872 276 L 872 348"),
        box(
            36,
            490,
            924,
            70,
            CURE,
            "Recovery and proof",
            "after any death the next run's settle compares ledger and timeline, then rolls back or commits again",
            "verify compares row keys with ledger and service; rebuild makes the ledger anew from the commits",
        ),
        arrow("M 655 488 L 655 456", dashed=True),
        arrow("M 962 525 L 980 525 L 980 71 L 782 71", dashed=True),
    ]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
        'font-family="Helvetica, Arial, sans-serif" role="img">\n'
        "<title>Logstore, DAG run, ledger, table and recovery</title>\n"
        '<defs><marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        f'<path d="M0 0 L8 4 L0 8 z" fill="{SOFT}"/></marker></defs>\n'
        f'<rect width="{WIDTH}" height="{HEIGHT}" rx="14" fill="#ffffff"/>\n' + "\n".join(parts) + "\n</svg>\n"
    )


if __name__ == "__main__":
    OUT.write_text(picture(), encoding="utf-8")
