"""The content of the status page as one JSON document: status, panels of the program, recent errors.
The page consists of static files in the package; it has no build step and loads nothing from other hosts."""

from __future__ import annotations

import json
from collections.abc import Callable
from importlib import resources
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from verbena.errors import EXPLANATIONS, explain
from verbena.transport.observe import log
from verbena.transport.observe.metrics.node_totals import snapshot
from verbena.transport.observe.status import status

if TYPE_CHECKING:
    from verbena.transport.node import Node

# A panel: `title`, and `fields` {name: value} or `columns` and `rows`. A value is text, a number,
# {"text", "mood": good, warn or bad} or {"progress": 0 … 1}.
Panel = dict[str, Any]
MakePanel = Callable[[], Panel | None]

MAX_ERRORS = 50
FILES = {
    "/": ("index.html", "text/html; charset=utf-8"),
    "/page.js": ("page.js", "text/javascript; charset=utf-8"),
    "/page.css": ("page.css", "text/css; charset=utf-8"),
}
# Content-Security-Policy: the browser loads only the files of the page.
POLICY = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; base-uri 'none'"


def file(path: str) -> tuple[str, str]:
    """Returns the content type and the text of one of FILES."""
    name, kind = FILES[path]
    text = resources.files("verbena.transport.observe").joinpath("page", name)
    return kind, text.read_text(encoding="utf-8")


def document(node: Node) -> str:
    """Returns the text of status.json. From any thread."""
    return json.dumps(
        {
            "version": version("verbena"),
            "status": status(snapshot(node)),
            "panels": [panel for title, make in list(node.panels.items()) if (panel := _panel(title, make))],
            "errors": [_explained(event) for event in log.recent(MAX_ERRORS)],
        }
    )


def _panel(title: str, make: MakePanel) -> Panel | None:
    """Creates a panel. An exception is shown in the panel, so that the others still work."""
    try:
        panel = make()
    except Exception as error:
        return {"title": title, "failure": f"{type(error).__name__}: {error}"}
    return None if panel is None else {"title": title, **panel}


def _explained(event: log.RecentEvent) -> dict[str, Any]:
    """Returns the event, with an explanation if its reason is an error code."""
    code = str(event.fields.get("reason", ""))
    explanation = None
    if code in EXPLANATIONS:
        row = explain(code)
        explanation = {"what": row.what, "causes": list(row.causes), "remedy": row.remedy}
    return {
        "number": event.number,
        "time": event.time_s,
        "event": event.name,
        "level": event.level,
        "what": event.message,
        "fields": event.fields,
        "explanation": explanation,
    }
