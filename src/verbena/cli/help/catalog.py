"""The one list of commands, in the groups of the page that `verbena` prints."""

from __future__ import annotations

GROUPS = {
    "Services": {
        "serve": "run the key-value store, for Redis and Valkey clients and for sessions",
        "registry": "run a container registry",
        "memory-node": "provide memory to other programs",
        "file-node": "export a folder to other programs",
    },
    "Inspect and diagnose": {
        "doctor": "check this machine and print the fix for what fails",
        "devices": "list usable devices and why others are not usable",
        "explain": "explain an error, a status or a line of a log",
        "config": "check, show or explain the configuration",
        "top": "show sessions, wires, rates and latencies of a running node",
    },
    "Administer": {
        "cli": "send commands to a store, like redis-cli",
        "shards": "show and move the slots of a cluster",
        "kv": "check or repair the files of a store, or benchmark servers",
        "cert": "create certificates for development",
    },
    "Measure and try": {
        "demo": "show two processes that share an array",
        "bench": "measure latency, rate or bandwidth against a raw baseline",
        "failover-drill": "break a wire on purpose and check that sessions continue",
    },
    "Help": {
        "help": "print this page, or the help of a command",
        "version": "print the version",
        "completion": "print a completion script for bash, zsh or fish",
    },
}

SUMMARIES = {name: summary for commands in GROUPS.values() for name, summary in commands.items()}
COMMANDS = tuple(SUMMARIES)
_FOLDERS = ("shards", "help", "completion")  # commands with a folder of their own


def module_of(command: str) -> str:
    """The module of a command: `add_parser` and `run` are in it."""
    folder = ".command" if command in _FOLDERS else ""
    return f"verbena.cli.{command.replace('-', '_')}{folder}"
