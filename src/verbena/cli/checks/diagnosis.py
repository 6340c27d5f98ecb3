"""One diagnosis in the report of `verbena doctor`, and the system folders that the checks read."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from verbena.errors import EXPLANATIONS, VerbenaError


class Verdict(str, enum.Enum):
    """OK: works. WARN: works, but could be better. ERROR: does not work."""

    OK = "OK"
    WARN = "WARN"
    ERROR = "ERROR"


@dataclass(frozen=True)
class Diagnosis:
    """What was checked and what was found. Unless the verdict is OK, also how to fix it, and usually the
    reason."""

    check: str
    verdict: Verdict
    finding: str
    reason: str = ""
    remedy: str = ""

    def as_json(self) -> dict[str, str]:
        return {
            "check": self.check,
            "verdict": self.verdict.value,
            "finding": self.finding,
            "reason": self.reason,
            "remedy": self.remedy,
        }


@dataclass(frozen=True)
class Roots:
    """The system's folders; tests replace them."""

    sys: Path = Path("/sys")
    proc: Path = Path("/proc")
    dev: Path = Path("/dev")
    modules: Path = Path("/lib/modules")
    etc: Path = Path("/etc")
    root: Path = Path("/")


def ok(check: str, finding: str) -> Diagnosis:
    return Diagnosis(check, Verdict.OK, finding)


def warn(check: str, finding: str, *, reason: str = "", remedy: str) -> Diagnosis:
    return Diagnosis(check, Verdict.WARN, finding, reason, remedy)


def error(check: str, finding: str, *, reason: str, remedy: str) -> Diagnosis:
    return Diagnosis(check, Verdict.ERROR, finding, reason, remedy)


def explained(
    check: str,
    verdict: Verdict,
    finding: str,
    *,
    code: str,
    command: str,
    reason: str = "",
    values: Mapping[str, object] | None = None,
) -> Diagnosis:
    """Builds a diagnosis from the explanation of an error code, with `command` before its remedy. `reason`
    replaces the error's causes if nothing has failed yet."""
    row = EXPLANATIONS[code].filled(values or {})
    causes = "\nor ".join(row.causes)
    return Diagnosis(check, verdict, finding, reason or causes, f"{command}\n{row.remedy}")


def failed(check: str, failure: VerbenaError) -> Diagnosis:
    """Builds the diagnosis of an error that was raised."""
    where = f"{failure.operation} failed" if failure.operation else "failed"
    finding = ": ".join(filter(None, (where, failure.what, failure.detail)))
    code = f" [{failure.code}]" if failure.code else ""
    return Diagnosis(check, Verdict.ERROR, finding + code, "\nor ".join(failure.causes), failure.remedy)


def text_of(path: Path) -> str:
    """Returns a file's text, stripped; "" if it cannot be read."""
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return ""


def names_in(folder: Path) -> list[str]:
    """Returns the sorted names in a folder; an empty list if it cannot be read."""
    try:
        return sorted(entry.name for entry in folder.iterdir())
    except OSError:
        return []
