"""The HTML report of a run: machine, commit, a table and a chart for each question; raw data in a JSON file.
Charts are inline SVG; the page loads nothing."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.figure import HEADER, Figure

UNITS = {"ns": 1e-9, "µs": 1e-6, "ms": 1e-3, "s": 1.0}
UNITS |= {"B/s": 1.0, "KB/s": 1e3, "MB/s": 1e6, "GB/s": 1e9, "/s": 1.0, "K/s": 1e3, "M/s": 1e6}
_QUANTITY = re.compile(
    rf"([\d,.]+) ?({'|'.join(sorted(map(re.escape, UNITS), key=len, reverse=True))})(?![\w/])"
)
ROW, BAR, LABEL, WIDTH = 46, 15, 330, 900

STYLE = Path(__file__).with_name("report.css")


def quantity(text: str) -> tuple[float, str] | None:
    """Returns the last quantity in a text in its base unit, and its kind (time, bytes or rate); None if there
    is none."""
    found = _QUANTITY.findall(text)
    if not found:
        return None
    number, unit = found[-1]
    kind = "bytes" if unit.endswith("B/s") else "rate" if unit.endswith("/s") else "time"
    return float(number.replace(",", "")) * UNITS[unit], kind


def chart(figures: Sequence[Figure]) -> str:
    """Draws two bars, ours and the baseline, for each figure with two quantities of one kind."""
    rows = []
    for figure in figures:
        own, base = quantity(figure.measured), quantity(figure.baseline)
        if own is not None and base is not None and own[1] == base[1] and max(own[0], base[0]) > 0:
            rows.append((figure, own[0], base[0], own[1]))
    if not rows:
        return ""
    parts = []
    for place, (figure, own, base, kind) in enumerate(rows):
        y, longest = place * ROW, max(own, base)
        room = WIDTH - LABEL - 170
        ours, theirs = room * own / longest, room * base / longest
        better = "shorter is better" if kind == "time" else "longer is better"
        parts.append(
            f'<text x="0" y="{y + 18}">{_words(figure.name, 50)}</text>'
            f'<text class="dim" x="0" y="{y + 34}">{html.escape(figure.ratio)} · {better}</text>'
            f'<rect class="own" x="{LABEL}" y="{y + 5}" width="{ours:.1f}" height="{BAR}"/>'
            f'<text x="{LABEL + ours + 6:.1f}" y="{y + 17}">{_words(figure.measured, 30)}</text>'
            f'<rect class="base" x="{LABEL}" y="{y + 22}" width="{theirs:.1f}" height="{BAR}"/>'
            f'<text class="dim" x="{LABEL + theirs + 6:.1f}" y="{y + 34}">'
            f"{_words(figure.baseline, 30)}</text>"
        )
    box = f'viewBox="0 0 {WIDTH} {ROW * len(rows) + 4}" role="img" aria-label="measured beside baseline"'
    return f"<svg {box}>{''.join(parts)}</svg>"


def page(answers: Mapping[str, Sequence[Figure]], failed: Sequence[str], where: Mapping[str, Any]) -> str:
    """Returns the whole report as HTML."""
    figures = [figure for answer in answers.values() for figure in answer]
    bounds = [figure for figure in figures if figure.passed is not None]
    kept = sum(figure.passed is True for figure in bounds)
    machine, versions = where["machine"], where["versions"]
    parts = [
        "<!doctype html><html lang=en><meta charset=utf-8><title>Verbena's figures</title>",
        f"<style>{STYLE.read_text()}</style><h1>Verbena's figures</h1>",
        f"<p>{html.escape(str(machine['cpu']))}, {machine['cores']} cores,"
        f" Linux {html.escape(versions['kernel'])},"
        f" Python {html.escape(versions['python'])}, commit {html.escape(str(where['commit'] or 'none'))},"
        f" load before {where['load']:.1f}. {kept} of {len(bounds)} bounds kept."
        ' Raw data: <a href="bench-report.json">bench-report.json</a>.</p>',
    ]
    if where["load"] > 1.5:
        parts.append(
            "<p class=MISSED>The machine was busy: times of this run say little, ratios something.</p>"
        )
    for question, answer in answers.items():
        rows = "".join(_row(figure) for figure in answer)
        head = "".join(f"<th scope=col>{name}</th>" for name in HEADER)
        parts.append(
            f"<h2>{html.escape(question)}</h2>{chart(answer)}<table><thead><tr>{head}</tr></thead>{rows}</table>"
        )
    if failed:
        items = "".join(f"<li>{html.escape(reason)}</li>" for reason in failed)
        parts.append(f"<h2>Not measured</h2><ul>{items}</ul>")
    return "\n".join(parts) + "\n"


def write(
    path: Path, answers: Mapping[str, Sequence[Figure]], failed: Sequence[str], where: Mapping[str, Any]
) -> None:
    """Writes the page to `path` and the raw data beside it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    raw = {
        "environment": where,
        "questions": {question: [vars(figure) for figure in answer] for question, answer in answers.items()},
        "not_measured": list(failed),
    }
    path.with_suffix(".json").write_text(json.dumps(raw, indent=2, ensure_ascii=False) + "\n")
    path.write_text(page(answers, failed, where).replace("bench-report.json", path.with_suffix(".json").name))


def _row(figure: Figure) -> str:
    cells = "".join(f"<td>{html.escape(cell)}</td>" for cell in figure.cells[:-1])
    return f'<tr>{cells}<td class="{figure.verdict}">{figure.verdict}</td></tr>'


def _words(text: str, most: int) -> str:
    return html.escape(text if len(text) <= most else text[: most - 1] + "…")
