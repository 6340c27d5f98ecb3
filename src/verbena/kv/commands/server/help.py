"""The HELP subcommands, generated from the declarations of the other subcommands."""

from __future__ import annotations

from verbena.kv.commands.declare import COMMANDS, Function, command
from verbena.kv.commands.replies import Reply
from verbena.kv.server.call import Call

# Command with subcommands → its group.
CONTAINERS = {
    "ACL": "server",
    "CLIENT": "connection",
    "CLUSTER": "cluster",
    "COMMAND": "server",
    "CONFIG": "server",
    "DEBUG": "server",
    "LATENCY": "server",
    "MEMORY": "server",
    "PUBSUB": "pubsub",
    "SLOWLOG": "server",
}


def _helper(container: str) -> Function:
    def help_(call: Call) -> Reply:
        lines = [f"{container} <subcommand> [<argument> ...], where the subcommand is one of:"]
        for name, found in sorted(COMMANDS.items()):
            if name.startswith(f"{container} "):
                lines += [name.removeprefix(f"{container} "), f"    {found.summary}"]
        return list(lines)

    return help_


for _name, _group in CONTAINERS.items():
    command(
        f"{_name} HELP",
        arity=2,
        flags="loading stale",
        group=_group,
        summary=f"Returns help for the {_name} subcommands.",
        since="5.0.0",
    )(_helper(_name))
