"""Finds the commands in the documentation pages, and runs those of one page in order, in one shell.

A block of `sh` is run unless a comment before it gives a reason: <!-- not run: REASON -->. A block of another
language after <!-- file: NAME --> is written to that file. A line that ends in & runs in the background, and
the next one waits until it has printed that it is ready; if it ends before the page does, its status must be
0. Commands that install or build the project are checked, not run."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
HOSTS = "127.0.0.1 localhost first-machine db1 node7 host1\n"

_BLOCK = re.compile(r"((?:<!--[^\n]*-->\n\n?)?)^```(\w+)[^\n]*\n(.*?)^```", re.MULTILINE | re.DOTALL)
_COMMENT = re.compile(r"\s+#\s.*$")
# CI runs these as separate steps, or users run them to install: only their names are checked.
_OURS = ("make ", "pip install ", ". .venv/bin/activate")


@dataclass(frozen=True)
class Block:
    """A fenced block: its position, and the directive of the comment before it."""

    page: str
    line: int
    language: str
    text: str
    not_run: str = ""
    file: str = ""

    @property
    def commands(self) -> list[str]:
        """Its commands, without comments and with continuation lines joined."""
        lines = self.text.replace("\\\n", " ").splitlines()
        return [
            line for line in (_COMMENT.sub("", line).strip() for line in lines) if line and line[0] != "#"
        ]


def blocks(path: Path) -> list[Block]:
    text = path.read_text()
    found = []
    for match in _BLOCK.finditer(text):
        note, language, body = match.groups()
        line = text.count("\n", 0, match.start(3))
        not_run = re.search(r"<!-- not run: (.*?) -->", note)
        file = re.search(r"<!-- file: (\S+) -->", note)
        page = str(path.relative_to(ROOT))
        found.append(
            Block(page, line, language, body, not_run[1] if not_run else "", file[1] if file else "")
        )
    return found


def is_ours(command: str) -> bool:
    return command.startswith(_OURS)


def script(found: list[Block]) -> str:
    """A bash script that prints and runs each command, and exits with the status of the first that fails."""
    lines = ["set -u", "background=() folder=$PWD"]
    lines.append("trap 'kill \"${background[@]}\" 2>/dev/null; wait' EXIT")
    number = 0
    for block in found:
        if block.file:
            lines.append(f"cat > {block.file} <<'END OF FILE'\n{block.text}END OF FILE")
        if block.language != "sh" or block.not_run:
            continue
        for command in block.commands:
            if is_ours(command):
                continue
            where = shlex.quote(f"{block.page}:{block.line}: {command}")
            lines.append(f"echo {where}")
            if command.endswith("&"):
                number += 1
                said, ours = f"$folder/.said-{number}", command.startswith("verbena ")
                lines.append(f"{command[:-1]} >{said} 2>{said}-errors & background+=($!)")
                ended = f"{{ cat {said}*; echo 'it ended'; exit 1; }}"
                # Verbena's programs log to standard error before they are ready; other programs only log.
                said_so = f"[ -s {said} ]" + ("" if ours else f" || [ -s {said}-errors ]")
                lines.append(f"until {said_so}; do kill -0 $! 2>&- || {ended}; sleep 0.02; done")
            else:
                failed = '{ echo "failed with status $?"; cat "$folder"/.said-* 2>/dev/null; exit 1; }'
                lines.append(f"{command} || {failed}")
    ended = '{ echo "background $number ended with status $?"; cat "$folder/.said-$number"*; exit 1; }'
    lines += ["number=0", 'for pid in "${background[@]}"; do', "    number=$((number + 1))"]
    lines += [f'    kill -0 "$pid" 2>&- || wait "$pid" || {ended}', "done"]
    return "\n".join(lines) + "\n"


def has_commands(found: list[Block]) -> bool:
    return any(
        not is_ours(command)
        for block in found
        if block.language == "sh" and not block.not_run
        for command in block.commands
    )


def run(found: list[Block], folder: Path, *, timeout_s: float) -> subprocess.CompletedProcess[str]:
    """Runs the script in its own network namespace and with its own hosts file, so that the pages' ports are
    free and no packet leaves the machine."""
    (folder / "examples").symlink_to(ROOT / "examples")
    (folder / "deploy").symlink_to(ROOT / "deploy")
    (folder / "hosts").write_text(HOSTS)
    (folder / "page.sh").write_text(script(found))
    inside = (
        "mount --bind hosts /etc/hosts && ip link set lo up && ip address add 10.0.0.1/8 dev lo"
        f" && TMPDIR=$PWD PATH={shlex.quote(str(Path(sys.executable).parent))}:$PATH exec bash page.sh"
    )
    return subprocess.run(
        [*namespaces(), "sh", "-c", inside],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
        stdin=subprocess.DEVNULL,
    )


def namespaces() -> list[str]:
    return [
        "unshare",
        "--net",
        "--mount",
        "--map-root-user",
        "--kill-child",
        "--pid",
        "--fork",
        "--mount-proc",
    ]


def why_not() -> str:
    """The reason why pages cannot be run here, or an empty string."""
    if shutil.which("unshare") is None or shutil.which("ip") is None:
        return "unshare (util-linux) and ip (iproute2) are needed"
    done = subprocess.run([*namespaces(), "ip", "link"], capture_output=True, text=True, check=False)
    return "" if done.returncode == 0 else f"namespaces are not permitted: {done.stderr.strip()}"
