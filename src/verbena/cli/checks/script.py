"""The doctor's remedies as a shell script: commands, and all other text as comments. Printed, never run."""

from __future__ import annotations

import re
from collections.abc import Iterable

from verbena.cli.checks.diagnosis import Diagnosis, Verdict

HEAD = """\
#!/bin/bash
# Fixes for the problems that `verbena doctor` found. Read this script before you run it.
set -u"""
# First words of remedy lines that are commands.
_COMMANDS = ("sudo", "ulimit", "printf", "for", "rdma", "ping", "ss", "getent", "verbena")
_PLACEHOLDER = re.compile(r"\b(?:ADDRESS|PREFIX|INTERFACE|COMMAND|HOST|PORT|FILE)\b|…|\$USER     ")
_REBOOT = " && sudo reboot"


def script(diagnoses: Iterable[Diagnosis]) -> str:
    """Returns a bash script. Commands with placeholders become comments; repeated commands are left out; a
    reboot becomes a comment at the end."""
    parts, said, reboot = [HEAD], set[str](), False
    for diagnosis in diagnoses:
        if diagnosis.verdict is Verdict.OK or not diagnosis.remedy:
            continue
        lines = [f"# {diagnosis.verdict.value} {diagnosis.check}: {diagnosis.finding}".splitlines()[0]]
        for line in diagnosis.remedy.splitlines():
            reboot = reboot or line.endswith(_REBOOT)
            wanted = _line(line.removesuffix(_REBOOT))
            lines.append("#   see above" if wanted in said else wanted)
            said.add(wanted)
        parts.append("\n".join(("", *lines)))
    if len(parts) == 1:
        parts.append("# There is nothing to fix.")
    if reboot:
        parts.append("\n# Finally: sudo reboot")
    return "\n".join(parts)


def _line(line: str) -> str:
    command, _, note = line.strip().partition("     ")
    note = note.strip(" ()")
    is_command = command.split(" ", 1)[0] in _COMMANDS and ", " not in command
    if is_command and not _PLACEHOLDER.search(command):
        return f"{command}    # {note}" if note else command
    return f"#   {command}" + (f" ({note})" if note else "")
