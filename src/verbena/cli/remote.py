"""Commands that ask a running node: the session, and its answers."""

from __future__ import annotations

import argparse
import json
from typing import Any

from verbena.config.flags import add_flags, load_with_flags
from verbena.errors import VerbenaError
from verbena.transport import Session, connect_blocking

NO_ADDRESS = """\
{command} asks a running node over a session: say where it listens.
  verbena {command} 127.0.0.1:7471
A node is any program that has called verbena.listen(), by default at [session] listen_address, listen_port.
Secret and certificates come from verbena.toml or the environment, as the node's own do:
  VERBENA_SESSION_SECRET=… verbena {command} HOST:PORT
"""


def add_arguments(parser: argparse.ArgumentParser, *, optional: str) -> None:
    """HOST:PORT, and every key of the configuration as a flag. `optional`: what happens without it."""
    parser.add_argument(
        "address", nargs="?", metavar="HOST:PORT", help=f"session address of the node ({optional})"
    )
    add_flags(parser)


def open_session(options: argparse.Namespace) -> Session:
    """As the configuration says. The errors of connect()."""
    return connect_blocking(options.address, config=load_with_flags(options))


def ask(asker: Session, method: str, /, timeout_s: float, **arguments: Any) -> dict[str, Any]:
    """One of Verbena's own methods. RemoteError if the node refuses."""
    answer: dict[str, Any] = json.loads(
        asker.sync.call(method, json.dumps(arguments).encode(), timeout_s=timeout_s)
    )
    return answer


def refusal(error: VerbenaError) -> str:
    """What the node's handler said, without the name of its exception."""
    return (error.detail or str(error)).partition(": ")[2] or str(error)
