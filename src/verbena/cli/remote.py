"""Sessions of commands with a running node."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING, Any

from verbena.cli.help.parser import Parser
from verbena.config.flags import load_with_flags
from verbena.errors import VerbenaError

if TYPE_CHECKING:
    from verbena.sync import Session

NO_ADDRESS = """\
{command} needs the session address of a running node:
  verbena {command} 127.0.0.1:7471
A node is a program that has called verbena.listen(). Its address is session.listen_address and
session.listen_port. The secret and certificates come from verbena.toml or the environment:
  VERBENA_SESSION_SECRET=… verbena {command} HOST:PORT
"""


def add_arguments(parser: Parser, *, optional: str) -> None:
    """Adds HOST:PORT and a flag for every configuration key. `optional` describes what happens without an
    address."""
    parser.add_argument(
        "address", nargs="?", metavar="HOST:PORT", help=f"session address of a node ({optional})"
    )
    parser.add_config()


def open_session(options: argparse.Namespace) -> Session:
    """Opens a session with the configured secret and certificates. Raises the errors of connect()."""
    from verbena.sync import connect  # native code, which help does not need

    return connect(options.address, config=load_with_flags(options))


def ask(session: Session, method: str, /, timeout_s: float, **arguments: Any) -> dict[str, Any]:
    """Calls one of Verbena's own methods. Raises RemoteError if the node refuses."""
    answer: dict[str, Any] = json.loads(
        session.call(method, json.dumps(arguments).encode(), timeout_s=timeout_s)
    )
    return answer


def refusal(error: VerbenaError) -> str:
    """Returns the message of the node's handler, without the name of its exception."""
    return (error.detail or str(error)).partition(": ")[2] or str(error)
