"""`verbena cli`: a client for the store and other servers with the Redis protocol, like redis-cli."""

from __future__ import annotations

import argparse
import os
import ssl
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from verbena.cli.help.parser import Parser
from verbena.cli.resp import modes as kv_modes
from verbena.cli.resp import shell as kv_shell
from verbena.cli.resp import text as kv_text
from verbena.errors import setup_error
from verbena.kv.client.resp_connection import ErrorReply, PushReply, RespConnection

EPILOG = """\
examples:
  verbena cli                               prompt with completion; `help set` explains a command
  verbena cli set greeting hello            one command
  verbena cli --scan --pattern 'user:*'     matching keys
"""
NOTES = """\
more examples:
  verbena cli --latency -h db1 -p 7000      round-trip times
  verbena cli info rdma                     RDMA counters
  verbena cli --stat                        statistics every second
  verbena cli --pipe < commands             many commands at once

The password comes from -a or from the environment variable VERBENA_CLI_AUTH, which other users cannot see.

exit status: 0 success, 1 error reply or failed connection, 2 wrong usage
"""


_RARE = ("database", "version", "repeat", "interval", "stdin", "path", "user", "pattern", "count")


def add_parser(commands: argparse._SubParsersAction[Parser]) -> Parser:
    parser = commands.add_parser(
        "cli",
        description="Sends commands to a server that speaks the Redis protocol.",
        epilog=EPILOG,
        notes=NOTES,
        add_help=False,  # -h is the host, as in redis-cli
    )
    add = parser.add_argument
    add("--help", action="help", help="show this help")
    add(
        "-h",
        dest="host",
        default="127.0.0.1",
        metavar="HOST",
        help="host of the server (default: 127.0.0.1)",
    )
    add("-p", dest="port", type=int, default=6379, metavar="PORT", help="port of the server (default: 6379)")
    add("-s", dest="path", default="", metavar="PATH", help="connect to this Unix socket")
    add("-a", dest="password", default="", metavar="PASSWORD", help="password")
    add("--user", default="", metavar="NAME", help="user (default: default)")
    add("-n", dest="database", type=int, default=0, metavar="DB", help="database number")
    add("-3", dest="version", action="store_const", const=3, default=2, help="use RESP3")
    add("-r", dest="repeat", type=int, default=1, metavar="COUNT", help="run the command COUNT times")
    add(
        "-i",
        dest="interval",
        type=float,
        default=0.0,
        metavar="SECONDS",
        help="interval between repetitions, or between lines of --stat",
    )
    add("-x", dest="stdin", action="store_true", help="read the last argument from standard input")
    tls = parser.add_argument_group("TLS")
    tls.add_argument("--tls", action="store_true", help="use TLS")
    tls.add_argument("--cacert", default="", metavar="FILE", help="trusted certificate authority")
    tls.add_argument("--cert", default="", metavar="FILE", help="client certificate")
    tls.add_argument("--key", default="", metavar="FILE", help="key of the client certificate")
    tls.add_argument("--sni", default="", metavar="NAME", help="server name to send (SNI)")
    tls.add_argument("--insecure", action="store_true", help="do not verify the certificate")
    how = parser.add_argument_group("output format").add_mutually_exclusive_group()
    how.add_argument(
        "--raw", dest="style", action="store_const", const="raw", help="print replies unformatted"
    )
    how.add_argument(
        "--no-raw", dest="style", action="store_const", const="formatted", help="print replies formatted"
    )
    how.add_argument("--csv", dest="style", action="store_const", const="csv", help="print replies as CSV")
    how.add_argument(
        "--json", dest="style", action="store_const", const="json", help="print replies as JSON (uses RESP3)"
    )
    modes = parser.add_argument_group("modes").add_mutually_exclusive_group()
    modes.add_argument(
        "--stat", action="store_true", help="print statistics of the server, one line per interval"
    )
    modes.add_argument(
        "--latency",
        action="store_true",
        help="measure round-trip times until interrupted (or for -i seconds)",
    )
    modes.add_argument("--pipe", action="store_true", help="send standard input and count the replies")
    modes.add_argument("--scan", action="store_true", help="list keys with SCAN")
    add("--pattern", default="", metavar="PATTERN", help="with --scan: only keys that match")
    add("--count", type=int, default=1000, metavar="COUNT", help="with --scan: COUNT of each SCAN")
    add("command", nargs=argparse.REMAINDER, metavar="COMMAND", help="command to run; without it, a prompt")
    parser.hide(*(action for action in parser._actions if action.dest in _RARE))
    parser.hide(*how._group_actions[:3], *tls._group_actions[1:])
    return parser


def run(options: argparse.Namespace) -> int:
    try:
        with connect(options) as wire:
            if options.stat:
                return kv_modes.stat(
                    wire, options.interval or 1.0, options.repeat if options.repeat > 1 else 0
                )
            if options.latency:
                return kv_modes.latency(wire, options.interval)
            if options.pipe:
                return kv_modes.pipe(wire, sys.stdin.buffer)
            if options.scan:
                return kv_modes.scan(wire, options.pattern, options.count)
            show = _printer(options)
            if options.command:
                return _run_once(wire, options, show)
            if sys.stdin.isatty():
                return kv_shell.run(wire, show, partial(connect, options))
            return _run_lines(wire, show)
    except EOFError:
        print("verbena: the server closed the connection", file=sys.stderr)
        return 1


def connect(options: argparse.Namespace) -> RespConnection:
    """Connects, authenticates, and selects protocol version and database. Raises VerbenaError if a step
    fails."""
    wire = RespConnection(
        options.host, options.port, path=options.path, tls=_tls(options), server_name=options.sni
    )
    password = options.password or os.environ.get("VERBENA_CLI_AUTH", "")
    steps: list[tuple[str, ...]] = []
    if password:
        steps.append(("AUTH", options.user, password) if options.user else ("AUTH", password))
    if options.version == 3 or options.style == "json":
        steps.append(("HELLO", "3"))
    if options.database:
        steps.append(("SELECT", str(options.database)))
    for words in steps:
        reply = wire.call(*words)
        if isinstance(reply, ErrorReply):
            wire.close()
            raise setup_error("credentials", operation=words[0], peer=wire.where, detail=str(reply))
    return wire


def _tls(options: argparse.Namespace) -> ssl.SSLContext | None:
    if not options.tls:
        return None
    try:
        context = ssl.create_default_context(cafile=options.cacert or None)
        if options.insecure:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        if options.cert:
            context.load_cert_chain(options.cert, options.key or None)
    except (OSError, ssl.SSLError) as error:
        raise setup_error("tls_file", operation="connect", detail=str(error)) from error
    return context


def _printer(options: argparse.Namespace) -> Callable[[Any], None]:
    style = options.style or ("formatted" if sys.stdout.isatty() else "raw")

    def show(reply: Any) -> None:
        if style == "raw":
            sys.stdout.buffer.write(kv_text.raw(reply) + b"\n")
            sys.stdout.buffer.flush()
        else:
            text = {"formatted": kv_text.formatted, "csv": kv_text.csv, "json": kv_text.as_json}[style](reply)
            print(text, flush=True)

    return show


def _run_once(wire: RespConnection, options: argparse.Namespace, show: Callable[[Any], None]) -> int:
    words = [os.fsencode(word) for word in options.command]
    if options.stdin:
        words.append(sys.stdin.buffer.read())
    status = 0
    for number in range(options.repeat):
        if number and options.interval:
            time.sleep(options.interval)
        reply = wire.call(*words)
        show(kv_text.prepare_reply(words, reply))
        status = 1 if isinstance(reply, ErrorReply) else status
    if words[0].upper() in (b"SUBSCRIBE", b"PSUBSCRIBE", b"SSUBSCRIBE", b"MONITOR") and not status:
        while True:
            message = wire.read()
            show(list(message) if isinstance(message, PushReply) else message)
    return status


def _run_lines(wire: RespConnection, show: Callable[[Any], None]) -> int:
    """Runs commands from standard input, one per line. Returns 1 if any failed."""
    status = 0
    for line in sys.stdin:
        try:
            words = kv_shell.split(line)
        except kv_shell.BadQuotes:
            print("Invalid argument(s)", file=sys.stderr)
            status = 1
            continue
        if words:
            reply = wire.call(*words)
            show(kv_text.prepare_reply(words, reply))
            status = 1 if isinstance(reply, ErrorReply) else status
    return status
