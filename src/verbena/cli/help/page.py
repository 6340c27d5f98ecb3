"""The page that `verbena` and `verbena help` print."""

from __future__ import annotations

from verbena.cli.help.catalog import GROUPS

_HEAD = "Verbena: RDMA for Python, with a Redis-compatible store, a container registry and shared memory."
_TAIL = """\
Examples:
  verbena serve             run a store; in another shell: redis-cli ping
  verbena doctor            check this machine, with a transfer on each device
  verbena demo              see two processes read and write one array

`verbena help COMMAND` explains a command; `verbena help COMMAND --all` lists every option.
Documentation: docs/guide/start.md, and the other pages of docs/, in the source of Verbena.
Exit status: 0 success, 1 failure, 2 wrong usage, 128 + n ended by signal n.
"""
_COLUMN = 18


def page() -> str:
    lines = [_HEAD, "", "Usage: verbena COMMAND [options]", ""]
    for group, commands in GROUPS.items():
        lines.append(f"{group}:")
        lines += [f"  {name:<{_COLUMN - 2}}{summary}" for name, summary in commands.items()]
        lines.append("")
    return "\n".join(lines) + "\n" + _TAIL
