"""`verbena cert`: a certificate authority for development, node certificates and a revocation list."""

from __future__ import annotations

import argparse
import socket

from verbena.transport.handshake.authority import (
    AUTHORITY_DAYS,
    LIST_DAYS,
    NODE_DAYS,
    Authority,
    local_addresses,
)

EPILOG = """\
examples:
  verbena cert init                                         create an authority in ./certificates
  verbena cert issue node1 --name node1.lan --name 10.0.0.1 issue a certificate with two names
  verbena cert issue node1 --days 7                         valid for a week
  verbena cert revoke certificates/node1.pem                revoke it, and distribute revoked.pem
  verbena cert init --folder /etc/verbena/tls --common-name "Our cluster"

Each node needs ca.pem, its certificate and its key. Keep ca.key private. New connections use replaced files
without a restart. In production, use your own certificate authority.
"""


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> argparse.ArgumentParser:
    parser = commands.add_parser(
        "cert",
        help="create certificates for development",
        description="Creates a certificate authority, node certificates and a revocation list.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("what", choices=("init", "issue", "revoke"), help="what to do")
    parser.add_argument(
        "node",
        nargs="?",
        default="",
        metavar="NODE",
        help="issue: name of the node and of its files (default: the host name); revoke: the certificate",
    )
    parser.add_argument(
        "--folder", default="certificates", help="folder of the authority (default: certificates)"
    )
    parser.add_argument(
        "--name",
        action="append",
        default=[],
        metavar="NAME",
        help="issue: a name or address of the node; may be repeated (default: NODE;"
        " for this host also localhost and its addresses)",
    )
    parser.add_argument(
        "--days",
        type=int,
        help=f"lifetime in days (default: {AUTHORITY_DAYS} for the authority, {NODE_DAYS} for a node)",
    )
    parser.add_argument(
        "--common-name",
        default="Verbena development",
        metavar="TEXT",
        help="init: name of the authority (default: Verbena development)",
    )
    return parser


def run(options: argparse.Namespace) -> int:
    if options.what == "init":
        made = Authority.create(
            options.folder,
            name=options.common_name,
            days=AUTHORITY_DAYS if options.days is None else options.days,
        )
        print(f"{made.certificate}: CA certificate, for every node\n{made.key}: CA key; keep it private")
        print(f"{made.revoked}: revocation list, empty; valid for {LIST_DAYS} days")
        return 0
    authority = Authority(options.folder)
    if options.what == "revoke":
        if not options.node:
            print("verbena: name the certificate to revoke, for example certificates/node1.pem")
            return 2
        print(f"{authority.revoke(options.node)}: updated; copy it to every node")
        return 0
    node = options.node or socket.gethostname()
    names = options.name or [node]
    if not options.node and not options.name:
        names += ["localhost", *local_addresses()]
    issued = authority.issue(node, names, days=NODE_DAYS if options.days is None else options.days)
    until = f"{issued.expires:%Y-%m-%d %H:%M} UTC"
    print(f"{issued.certificate}: certificate for {', '.join(names)}, valid until {until}")
    print(f"{issued.key}: private key of {node}")
    return 0
