"""`verbena cert`: a certificate authority for development, node certificates and a revocation list."""

from __future__ import annotations

import argparse
import json
import socket

from verbena.cli.help.parser import Parser

EPILOG = """\
examples:
  verbena cert init                                         create an authority in ./certificates
  verbena cert issue node1 --name node1.lan --name 10.0.0.1 issue a certificate with two names
  verbena cert issue node1 --days 7                         valid for a week
  verbena cert revoke certificates/node1.pem                revoke it, and distribute revoked.pem
  verbena cert init --folder /etc/verbena/tls --common-name "Our cluster"
"""
NOTES = """\
Each node needs ca.pem, its certificate and its key. Keep ca.key private. New connections use replaced
files without a restart. Without NODE and --name, a certificate is also for localhost and all addresses of
this host. In production, use your own certificate authority.
"""


def add_parser(commands: argparse._SubParsersAction[Parser]) -> Parser:
    parser = commands.add_parser(
        "cert",
        description="Creates a certificate authority, node certificates and a revocation list.",
        epilog=EPILOG,
        notes=NOTES,
    )
    parser.add_argument("what", choices=("init", "issue", "revoke"), help="what to do")
    parser.add_argument(
        "node",
        nargs="?",
        default="",
        metavar="NODE",
        help="issue: name of the node (default: the host name); revoke: the certificate",
    )
    parser.add_argument(
        "--folder", default="certificates", help="folder of the authority (default: certificates)"
    )
    parser.add_argument(
        "--name",
        action="append",
        default=[],
        metavar="NAME",
        help="issue: a name or address of the node; may be repeated (default: NODE)",
    )
    parser.add_argument(
        "--days",
        type=int,
        help="lifetime in days (default: 365 for the authority, 30 for a node)",
    )
    parser.add_argument(
        "--common-name",
        default="Verbena development",
        metavar="TEXT",
        help="init: name of the authority (default: Verbena development)",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    parser.set_defaults(parser=parser)
    return parser


def run(options: argparse.Namespace) -> int:
    from verbena.transport.handshake.authority import (
        AUTHORITY_DAYS,
        LIST_DAYS,
        NODE_DAYS,
        Authority,
        local_addresses,
    )

    if options.what == "init":
        made = Authority.create(
            options.folder,
            name=options.common_name,
            days=AUTHORITY_DAYS if options.days is None else options.days,
        )
        files = {"certificate": made.certificate, "key": made.key, "revoked": made.revoked}
        text = (
            f"{made.certificate}: CA certificate, for every node\n{made.key}: CA key; keep it private\n"
            f"{made.revoked}: revocation list, empty; valid for {LIST_DAYS} days"
        )
        return _print(options, text, **files)
    authority = Authority(options.folder)
    if options.what == "revoke":
        if not options.node:
            options.parser.error("missing: the certificate to revoke, for example certificates/node1.pem")
        revoked = authority.revoke(options.node)
        return _print(options, f"{revoked}: updated; copy it to every node", revoked=revoked)
    node = options.node or socket.gethostname()
    names = options.name or [node]
    if not options.node and not options.name:
        names += ["localhost", *local_addresses()]
    issued = authority.issue(node, names, days=NODE_DAYS if options.days is None else options.days)
    until = f"{issued.expires:%Y-%m-%d %H:%M} UTC"
    text = (
        f"{issued.certificate}: certificate for {', '.join(names)}, valid until {until}\n"
        f"{issued.key}: private key of {node}"
    )
    files = {"certificate": issued.certificate, "key": issued.key}
    return _print(options, text, **files, names=names, expires=issued.expires.isoformat())


def _print(options: argparse.Namespace, text: str, **fields: object) -> int:
    print(json.dumps(fields, default=str) if options.json else text)
    return 0
