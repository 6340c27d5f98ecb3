"""Shared by commands that run a service: stop signals, the mode of new files, and the --listen flag."""

from __future__ import annotations

import asyncio
import os
import signal
import sys

from verbena.cli.help.parser import Parser

_STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)


def add_listen_flag(parser: Parser) -> None:
    parser.add_argument(
        "--listen",
        default="",
        metavar="HOST:PORT",
        help="session address (default: session.listen_address and _port)",
    )


def keep_files_private() -> None:
    """Sets the umask so that files and folders which the service creates are usable by its user only."""
    os.umask(0o077)


def stop_signal() -> asyncio.Future[signal.Signals]:
    """Returns a future that SIGTERM or SIGINT completes. Call it on the running event loop."""
    loop = asyncio.get_running_loop()
    stopped: asyncio.Future[signal.Signals] = loop.create_future()

    def stop(number: signal.Signals) -> None:
        if not stopped.done():
            stopped.set_result(number)

    for number in _STOP_SIGNALS:
        loop.add_signal_handler(number, stop, number)
    return stopped


def stop_event() -> asyncio.Event:
    """Returns an event that SIGTERM and SIGINT set. Call it on the running event loop."""
    loop = asyncio.get_running_loop()
    stopped = asyncio.Event()
    for number in _STOP_SIGNALS:
        loop.add_signal_handler(number, stopped.set)
    return stopped


def stopped_by(number: signal.Signals) -> int:
    """Prints the signal to standard error; returns the exit status, 128 + n."""
    print(f"verbena: ended by {number.name}", file=sys.stderr)
    return 128 + number
