"""`verbena shards`: prints the owners of slots, and moves slots while they are in use. It changes the map in
its store, and asks nodes by CLUSTER commands, as a user of the store: it is not a member of the cluster."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import secrets
import sys
from collections.abc import Sequence
from functools import partial
from typing import Any

from verbena.cli import text
from verbena.cli.progress import Progress
from verbena.cli.shards_node import NodeSession
from verbena.config import Config
from verbena.config.flags import add_flags, load_with_flags
from verbena.errors import BusyError, VerbenaError, setup_error
from verbena.kv.commands.replies import CommandError
from verbena.shards.cluster_map import ClusterMap, Member, Move
from verbena.shards.rebalance import plan
from verbena.shards.slots import SlotRange
from verbena.shards.stores import MapStore, change
from verbena.shards.stores.configured import open_configured

EPILOG = """\
examples:
  verbena shards map                           print the owners of all slots
  verbena shards move 0-99 n2                  move these slots to n2 and show the progress
  verbena shards rebalance --weight n3=0       equal shares for all nodes, none for n3
  verbena shards status                        print running and recent moves
  verbena shards nodes                         print links between nodes and commands per second
  verbena shards abort 5f3a…                   roll a running move back

"""
_COMMON = """\
A node is named by its name, address or a prefix of its id. The cluster map is read from cluster.map_store;
--cluster-map-store etcd://HOST:PORT selects another store. Reports of nodes are read with CLUSTER MOVES and
CLUSTER VIEWS, after AUTH with the password of kv.password_file if that is set.

exit status: 0 success, 1 failed or rolled back, 2 wrong usage
"""
_MOVING = """\
Clients can use the slots during a move. At its end their commands wait for at most
cluster.write_pause_budget_ms, then clients are redirected to the new owner. The nodes do the work: if this
command is interrupted, the move continues.
"""
_POLL_S = 0.1
_HEALTH = {"pfail": "suspected", "fail": "failed"}
_PHASES = {
    "prepared": (0.0, "prepared"),
    "base_copy": (0.0, "base copy"),
    "catch_up": (0.9, "catch-up"),
    "cut_over": (0.97, "cut-over"),
    "deciding": (0.98, "deciding"),
    "moved": (0.99, "moved, cleaning up"),
    "done": (1.0, "done"),
    "rolled_back": (1.0, "rolled back"),
}


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> argparse.ArgumentParser:
    parser = commands.add_parser(
        "shards",
        help="show and move the slots of a cluster",
        description="Shows the owners of slots in a cluster, and moves slots while they are in use.",
        epilog=EPILOG + _COMMON,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    actions = parser.add_subparsers(title="actions", metavar="ACTION", required=True, help="what to do")

    def action(name: str, function: Any, help: str, more: str = "") -> argparse.ArgumentParser:
        found = actions.add_parser(
            name,
            help=help,
            description=help[0].upper() + help[1:] + ".",
            epilog="\n".join(filter(None, (more, _COMMON))),
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        found.set_defaults(action=function)
        found.add_argument("--json", action="store_true", help="print one JSON document")
        if function not in (_map, _abort):
            found.add_argument(
                "--user",
                default="",
                metavar="NAME",
                help="user of the store; its password: kv.password_file",
            )
        add_flags(found, listed=())
        return found

    action("map", _map, "print the owners of all slots and the running moves")
    move = action("move", _move, "move slots to a node while they are in use", _MOVING)
    move.add_argument("slots", metavar="SLOTS", help="a slot or a range: 7, 0-99")
    move.add_argument("target", metavar="NODE", help="new owner of the slots")
    move.add_argument("--detach", action="store_true", help="return at once; the nodes continue the move")
    balance = action(
        "rebalance",
        _rebalance,
        "move slots until every primary has its share",
        "The result depends only on the map and the weights. Ranges are moved one after the other.\n"
        + _MOVING,
    )
    balance.add_argument(
        "--weight", action="append", default=[], metavar="NODE=NUMBER", help="share of a node (default: 1)"
    )
    balance.add_argument("--dry-run", action="store_true", help="print the moves without starting them")
    action("status", _status, "print running and recent moves")
    action("nodes", _nodes, "print the links between nodes, their wires and the load of each node")
    abort = action(
        "abort",
        _abort,
        "roll a move back",
        "The slots stay with their owner, and the target deletes its copy."
        " Status 1: the move was already decided.\n",
    )
    abort.add_argument("move", metavar="ID", help="ID of the move as printed by `status`, or a prefix of it")
    return parser


def run(options: argparse.Namespace) -> int:
    config = load_with_flags(options)
    return asyncio.run(_run(options, config))


async def _run(options: argparse.Namespace, config: Config) -> int:
    store = open_configured(config, create=False)
    try:
        return int(await options.action(options, config, store))
    finally:
        await store.close()


async def _map(options: argparse.Namespace, config: Config, store: MapStore) -> int:
    held = await store.load()
    map = held.map
    if options.json:
        print(json.dumps({"revision": held.revision, **map.describe()}))
        return 0
    leaseholders = await store.leaseholders()
    rows = []
    for id, member in sorted(map.members.items(), key=lambda one: one[1].name):
        copied = map.replicas.get(id)
        owned = sum(len(slots) for slots in map.slots_of(id))
        rows.append(
            (
                member.name,
                id[:8],
                member.address,
                f"replica of {map.members[copied].name}" if copied else "primary",
                "held" if id in leaseholders else "none",
                str(owned),
                ",".join(map_range for map_range in (str(slots) for slots in map.slots_of(id))) or "-",
            )
        )
    print(f"epoch {map.epoch}, {sum(owner is not None for owner in map.table)} of 16384 slots assigned")
    _table(("node", "id", "address", "role", "lease", "slots", "ranges"), rows)
    for move in map.moves.values():
        print(f"moving {move.slots}: {_name(map, move.source)} → {_name(map, move.target)} ({move.id})")
    return 0


async def _move(options: argparse.Namespace, config: Config, store: MapStore) -> int:
    map = (await store.load()).map
    try:
        slots = SlotRange.parse(options.slots)
    except ValueError as error:
        print(f"verbena: {error}", file=sys.stderr)
        return 2
    source = map.owner_of(slots.first)
    if source is None:
        raise setup_error("map_refused", operation="move", detail=f"slot {slots.first} has no owner")
    move = Move(secrets.token_hex(16), slots, source, find(map, options.target).id)
    await change(store, lambda map: map.begin_move(move))
    if options.detach:
        print(json.dumps({"id": move.id}) if options.json else move.id)
        return 0
    status, report = await _watch(options, config, store, move)
    if options.json:
        print(json.dumps(report))
    return status


async def _rebalance(options: argparse.Namespace, config: Config, store: MapStore) -> int:
    map = (await store.load()).map
    weights = {}
    for word in options.weight:
        name, _, number = word.partition("=")
        try:
            weights[find(map, name).id] = weight = float(number)
            if not 0 <= weight < float("inf"):
                raise ValueError
        except ValueError:
            print(f"verbena: --weight {word}: NODE=NUMBER, 0 or more", file=sys.stderr)
            return 2
    try:
        moves = plan(map, weights)
    except ValueError as error:
        print(f"verbena: {error}", file=sys.stderr)
        return 2
    if options.json and options.dry_run:
        print(json.dumps([[str(slots), source, target] for slots, source, target in moves]))
        return 0
    if not moves and not options.json:
        print("already balanced")
    reports, status = list[dict[str, Any]](), 0
    for slots, source, target in moves:
        if not options.json:
            print(f"{slots}: {_name(map, source)} → {_name(map, target)}", flush=True)
        if options.dry_run:
            continue
        move = Move(secrets.token_hex(16), slots, source, target)
        await change(store, partial(ClusterMap.begin_move, move=move))
        status, report = await _watch(options, config, store, move)
        reports.append(report)
        if status:
            break
    if options.json:
        print(json.dumps(reports))
    return status


async def _query_all(
    options: argparse.Namespace, config: Config, map: ClusterMap, what: str
) -> dict[str, list[dict[str, Any]]]:
    """Returns the reports of all nodes that respond, by id; prints a warning for each of the others."""
    found = {}
    for member in map.members.values():
        node = NodeSession(options, config)
        try:
            found[member.id] = await node.query(member, what)
        except CommandError as error:
            print(f"verbena: {member.name} refused: {error}", file=sys.stderr)
        except VerbenaError as error:
            print(f"verbena: {member.name} does not respond: {error.what}", file=sys.stderr)
        finally:
            await node.close()
    return found


async def _nodes(options: argparse.Namespace, config: Config, store: MapStore) -> int:
    map = (await store.load()).map
    found = await _query_all(options, config, map, "VIEWS")
    if options.json:
        print(json.dumps(found))
        return 0
    rows = [
        (
            _name(map, view["id"]),
            "itself" if view["id"] == asked else _name(map, asked),
            _HEALTH.get(view["health"], view["health"]),
            f"{view['load']}" if view["health"] == "alive" else "-",
            "-" if view["id"] == asked else _ago(view["silent_s"]),
            view["wire"] or "-",
        )
        for view, asked in sorted(
            ((view, asked) for asked, views in found.items() for view in views),
            key=lambda one: (_name(map, one[0]["id"]), one[0]["id"] != one[1], _name(map, one[1])),
        )
    ]
    _table(("node", "reported by", "state", "commands/s", "last heard", "wire"), rows)
    return 0


async def _status(options: argparse.Namespace, config: Config, store: MapStore) -> int:
    map = (await store.load()).map
    found = [one for moves in (await _query_all(options, config, map, "MOVES")).values() for one in moves]
    if options.json:
        print(json.dumps(found))
        return 0
    rows = [
        (
            one["id"],
            one["slots"],
            _name(map, one["source"]),
            _name(map, one["target"]),
            _PHASES[one["phase"]][1],
            one["wire"] or "-",
            f"{(one['bytes_transferred'] + one['fallback_bytes']) / 2**20:.1f} MiB",
            f"{one['pause_ms']:.1f} ms" if "pause_ms" in one else "-",
            one.get("why", ""),
        )
        for one in sorted(found, key=lambda one: float(one["at"]))
    ]
    _table(("move", "slots", "from", "to", "phase", "wire", "copied", "pause", ""), rows)
    return 0


async def _abort(options: argparse.Namespace, config: Config, store: MapStore) -> int:
    map = (await store.load()).map
    found = [id for id in map.moves if options.move and id.startswith(options.move)]
    if len(found) != 1:
        detail = f"{len(found)} running moves match {options.move!r}"
        raise setup_error("map_refused", operation="abort", detail=detail)
    move = map.moves[found[0]]
    await change(store, lambda map: map.ask_abort(move.id))
    while True:
        held = await store.load()
        map = held.map
        if move.id not in map.moves:
            break
        if move.source not in await store.leaseholders():
            # The source is down and cannot abort; it will read the map when it is back.
            with contextlib.suppress(BusyError):
                await store.compare_and_swap(
                    held.revision, map.abort_move(move.id), without_lease=move.source
                )
            continue
        await asyncio.sleep(_POLL_S)
    moved = map.owner_of(move.slots.first) == move.target
    if options.json:
        print(json.dumps({"id": move.id, "slots": str(move.slots), "moved": moved}))
    elif moved:
        print("too late to abort: the slots have moved")
    else:
        print(f"move aborted: slots {move.slots} keep their owner")
    return int(moved)


async def _watch(
    options: argparse.Namespace, config: Config, store: MapStore, move: Move
) -> tuple[int, dict[str, Any]]:
    """Shows progress from the source's reports until the map has the outcome. Returns exit status and last
    report."""
    node = NodeSession(options, config)
    try:
        return await _follow(options, store, move, node)
    except asyncio.CancelledError:
        print(
            f"verbena: the move continues; `verbena shards status` shows it,"
            f" `verbena shards abort {move.id[:8]}` aborts it",
            file=sys.stderr,
        )
        raise
    finally:
        await node.close()


async def _follow(
    options: argparse.Namespace, store: MapStore, move: Move, node: NodeSession
) -> tuple[int, dict[str, Any]]:
    last: dict[str, Any] = {}
    with Progress(f"slots {move.slots}", enabled=not options.json) as bar:
        while True:
            map = (await store.load()).map
            try:
                reports = await node.query(map.members[move.source], "MOVES")
                known = [one for one in reports if one["id"] == move.id]
                last = (
                    known[0]
                    if known
                    else {**last, "note": "the source has not started the move, or was restarted"}
                )
            except CommandError as error:
                last = {**last, "note": f"the source refused: {error}"}
            except (VerbenaError, KeyError):
                last = {**last, "note": "the source does not respond"}
            done, note = _progress_of(last)
            bar.update(done, note=note)
            if move.id not in map.moves and (last.get("phase") in ("done", "rolled_back") or "note" in last):
                break
            await asyncio.sleep(_POLL_S)
    moved = map.owner_of(move.slots.first) == move.target
    if moved and not options.json:
        sent = last.get("bytes_transferred", 0) + last.get("fallback_bytes", 0)
        print(
            f"slots {move.slots} moved to {_name(map, move.target)}: {sent / 2**20:.1f} MiB over"
            f" {last.get('wire', '?')}, commands paused for {last.get('pause_ms', 0.0):.1f} ms"
        )
    elif not options.json:
        print(f"slots {move.slots} remain on {_name(map, move.source)}: {last.get('why', 'see its log')}")
    return int(not moved), {**last, "moved": moved}


def _progress_of(report: dict[str, Any]) -> tuple[float, str]:
    done, words = _PHASES.get(report.get("phase", "prepared"), (0.0, ""))
    if report.get("phase") == "base_copy":
        done = 0.9 * float(report.get("fraction", 0.0))
        words += f", {report.get('acknowledged', 0) / 2**20:.1f} MiB over {report.get('wire') or '…'}"
    if "behind" in report:
        words += f", {report['behind']} records behind"
    return done, report.get("note", words)


def find(map: ClusterMap, name: str) -> Member:
    """Finds a member by name, address or prefix of its id. Raises StateError unless exactly one matches."""
    exact = [one for one in map.members.values() if name in (one.name, one.address, one.id)]
    found = exact or [one for one in map.members.values() if one.id.startswith(name.lower())]
    if len(found) != 1:
        known = ", ".join(sorted(one.name for one in map.members.values())) or "none"
        detail = f"{len(found)} nodes match {name!r}; known nodes: {known}"
        raise setup_error("map_refused", operation="find a node", detail=detail)
    return found[0]


def _name(map: ClusterMap, id: str) -> str:
    return map.members[id].name or id[:8] if id in map.members else id[:8]


def _ago(seconds: float | None) -> str:
    return "never" if seconds is None else f"{seconds:.1f} s ago"


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    print(text.table([heads, *rows]))
