"""What the node's page shows, as one JSON document: status, panels of the program's, recent errors explained.
The page itself is plain files beside the package: no build step, nothing from elsewhere."""

from __future__ import annotations

import json
from collections.abc import Callable
from importlib import resources
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from verbena.errors import EXPLANATIONS, explain
from verbena.transport.observe import log
from verbena.transport.observe.metrics.ledger import snapshot
from verbena.transport.observe.status import status

if TYPE_CHECKING:
    from verbena.transport.node import Node

# A panel: `title`, and `fields` {name: value} or `columns` and `rows`. A value is text, a number,
# {"text", "mood": good, warn or bad} or {"progress": 0 … 1}.
Panel = dict[str, Any]
MakePanel = Callable[[], Panel | None]

MOST_ERRORS = 50
FILES = {
    "/": ("index.html", "text/html; charset=utf-8"),
    "/page.js": ("page.js", "text/javascript; charset=utf-8"),
    "/page.css": ("page.css", "text/css; charset=utf-8"),
}
# The browser is told to load nothing but what lies beside the page.
POLICY = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; base-uri 'none'"


def file(path: str) -> tuple[str, str]:
    """The content type and the text of one of FILES."""
    name, kind = FILES[path]
    text = resources.files("verbena.transport.observe").joinpath("page", name)
    return kind, text.read_text(encoding="utf-8")


def document(node: Node) -> str:
    """status.json. From any thread."""
    return json.dumps(
        {
            "version": version("verbena"),
            "status": status(snapshot(node)),
            "panels": [panel for title, make in list(node.panels.items()) if (panel := _panel(title, make))],
            "errors": [_explained(event) for event in log.recent(MOST_ERRORS)],
        }
    )


def _panel(title: str, make: MakePanel) -> Panel | None:
    """A panel that fails says so; the others stay."""
    try:
        panel = make()
    except Exception as error:
        return {"title": title, "failure": f"{type(error).__name__}: {error}"}
    return None if panel is None else {"title": title, **panel}


def _explained(event: log.Recent) -> dict[str, Any]:
    """With the words for its reason, if that is the code of a failure."""
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
        "what": event.words,
        "fields": event.fields,
        "explanation": explanation,
    }
