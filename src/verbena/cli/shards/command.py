"""`verbena shards`: prints the owners of slots, and moves slots while they are in use. It changes the map in
its store, and asks nodes by CLUSTER commands, as a user of the store: it is not a member of the cluster."""

from __future__ import annotations

import argparse

from verbena.cli.help.parser import Parser

EPILOG = """\
examples:
  verbena shards map                           print the owners of all slots
  verbena shards move 0-99 n2                  move these slots to n2 and show the progress
  verbena shards rebalance --weight n3=0       equal shares for all nodes, none for n3
  verbena shards status                        print running and recent moves
  verbena shards abort 5f3a…                   roll a running move back

exit status: 0 success, 1 failed or rolled back, 2 wrong usage
"""
_COMMON = """\
A node is named by its name, address or a prefix of its id. The cluster map is read from cluster.map_store;
--cluster-map-store etcd://HOST:PORT selects another store. Reports of nodes are read with CLUSTER MOVES and
CLUSTER VIEWS, after AUTH with the password of kv.password_file if that is set.
"""
_STATUS = "exit status: 0 success, 1 failed or rolled back, 2 wrong usage"
_MOVING = """\
Clients can use the slots during a move. At its end their commands wait for at most
cluster.write_pause_budget_ms, then clients are redirected to the new owner. The nodes do the work: if this
command is interrupted, the move continues.
"""


def add_parser(commands: argparse._SubParsersAction[Parser]) -> Parser:
    parser = commands.add_parser(
        "shards",
        description="Shows the owners of slots in a cluster, and moves slots while they are in use.",
        epilog=EPILOG,
        notes=_COMMON,
    )
    actions = parser.add_subparsers(title="actions", metavar="ACTION", required=True, help="what to do")

    def action(name: str, help: str, more: str = "") -> Parser:
        found = actions.add_parser(
            name,
            help=help,
            description=help[0].upper() + help[1:] + ".",
            epilog=_STATUS,
            notes="\n".join(filter(None, (more, _COMMON))),
        )
        found.set_defaults(action=name, parser=found)
        found.add_argument("--json", action="store_true", help="print one JSON document")
        if name not in ("map", "abort"):
            found.add_argument(
                "--user",
                default="",
                metavar="NAME",
                help="user of the store; its password: kv.password_file",
            )
        found.add_config("cluster.map_store")
        return found

    action("map", "print the owners of all slots and the running moves")
    move = action("move", "move slots to a node while they are in use", _MOVING)
    move.add_argument("slots", metavar="SLOTS", help="a slot or a range: 7, 0-99")
    move.add_argument("target", metavar="NODE", help="new owner of the slots")
    move.add_argument("--detach", action="store_true", help="return at once; the nodes continue the move")
    balance = action(
        "rebalance",
        "move slots until every primary has its share",
        "The result depends only on the map and the weights. Ranges are moved one after the other.\n"
        + _MOVING,
    )
    balance.add_argument(
        "--weight", action="append", default=[], metavar="NODE=NUMBER", help="share of a node (default: 1)"
    )
    balance.add_argument("--dry-run", action="store_true", help="print the moves without starting them")
    action("status", "print running and recent moves")
    action("nodes", "print the links between nodes, their wires and the load of each node")
    abort = action(
        "abort",
        "roll a move back",
        "The slots stay with their owner, and the target deletes its copy."
        " Status 1: the move was already decided.\n",
    )
    abort.add_argument("move", metavar="ID", help="ID of the move as printed by `status`, or a prefix of it")
    return parser


def run(options: argparse.Namespace) -> int:
    from verbena.cli.shards import actions

    return actions.run(options)
