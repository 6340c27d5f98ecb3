"""Session events as records of the logger "verbena", each with named fields and a message.
Nothing is written until the program configures logging or calls configure(). Secrets, keys and payloads are
never fields."""

from __future__ import annotations

import itertools
import json
import logging
import sys
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TextIO

logger = logging.getLogger("verbena")
logger.addHandler(logging.NullHandler())

Field = str | int | float | None
MAX_RECENT = 100
MAX_FIELD_LENGTH = 300  # longer fields are truncated, since peers choose some of them

# All events: level and message.
EVENTS: Mapping[str, tuple[int, str]] = {
    "listening": (logging.INFO, "accepting sessions"),
    "wire_absent": (logging.WARNING, "a configured wire is not usable"),
    "wire_removed": (logging.WARNING, "the device of a wire was removed"),
    "wire_returned": (logging.INFO, "the device of a wire is back"),
    "gid_chosen": (
        logging.WARNING,
        "the default GID index does not exist; the best entry is used",
    ),
    "session_opened": (logging.INFO, "session opened"),
    "session_closed": (logging.INFO, "session closed"),
    "session_failed": (logging.ERROR, "session failed"),
    "link_up": (logging.INFO, "link up"),
    "link_lost": (logging.WARNING, "link lost"),
    "dial_failed": (logging.INFO, "connection attempt on a wire failed"),
    "step_down": (logging.WARNING, "session fell back to another wire"),
    "step_up": (logging.INFO, "session is back on a better wire"),
    "hello_refused": (logging.WARNING, "handshake rejected"),
    "link_refused": (logging.WARNING, "link rejected"),
    "accept_failed": (logging.WARNING, "a wire cannot accept links; it tries again"),
    "drill": (logging.WARNING, "failover drill: links broken on purpose"),
}


@dataclass(frozen=True)
class RecentEvent:
    """A warning or error, kept for the status page."""

    number: int
    time_s: float
    name: str
    level: str
    message: str
    fields: Mapping[str, Field]


_numbers = itertools.count(1)
_recent: deque[RecentEvent] = deque(maxlen=MAX_RECENT)


def recent(most: int = MAX_RECENT) -> list[RecentEvent]:
    """Returns the latest warnings and errors of this process, newest first."""
    return list(_recent)[: -most - 1 : -1]


def event(name: str, **fields: Field) -> None:
    """Logs an event if its level is enabled. A session is identified by its id in hexadecimal."""
    level, message = EVENTS[name]
    if level < logging.WARNING and not logger.isEnabledFor(level):
        return
    kept = {key: value for key, value in fields.items() if value not in (None, "")}
    if level >= logging.WARNING:
        shortened = {
            key: value[:MAX_FIELD_LENGTH] if isinstance(value, str) else value for key, value in kept.items()
        }
        kind = logging.getLevelName(level).lower()
        _recent.append(RecentEvent(next(_numbers), time.time(), name, kind, message, shortened))
    if logger.isEnabledFor(level):
        shown = " ".join(f"{key}={_format_value(value)}" for key, value in kept.items())
        logger.log(
            level, "%s", f"{message}: {shown}" if shown else message, extra={"event": name, "fields": kept}
        )


class TextFormatter(logging.Formatter):
    """One line of text: time, level, message, fields."""

    def format(self, record: logging.LogRecord) -> str:
        line = f"{_time(record)} {record.levelname} {record.getMessage()}"
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


class JsonFormatter(logging.Formatter):
    """One JSON object per line: time, level, event, message, then the event's fields."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {
            "time": _time(record),
            "level": record.levelname.lower(),
            "event": getattr(record, "event", "log"),
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps({**getattr(record, "fields", {}), **line}, ensure_ascii=False)


def configure(*, level: str = "info", style: str = "text", stream: TextIO | None = None) -> logging.Handler:
    """Writes events of `level` and above to `stream` (default: standard error) as "text" or "json".
    Returns the handler. Another call replaces it."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.set_name("verbena")
    handler.setFormatter(JsonFormatter() if style == "json" else TextFormatter())
    for former in [one for one in logger.handlers if one.get_name() == "verbena"]:
        logger.removeHandler(former)
    logger.addHandler(handler)
    logger.setLevel(level.upper())
    return handler


def _time(record: logging.LogRecord) -> str:
    second, millisecond = divmod(int(record.created * 1000), 1000)
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(second))}.{millisecond:03d}Z"


def _format_value(value: Field) -> str:
    """Formats a value; quotes texts that could be mistaken for other lines or fields, since peers choose
    some of them."""
    if isinstance(value, float):
        return f"{value:.3f}"
    text = str(value)
    return text if text.isprintable() and not set(' "=') & set(text) else json.dumps(text)
