"""The actions of `verbena shards`: they read and change the map in its store, and query nodes."""

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
from verbena.cli.shards.follow import PHASES, find, name_of, watch
from verbena.cli.shards.node import NodeSession
from verbena.config import Config
from verbena.config.flags import load_with_flags
from verbena.errors import BusyError, VerbenaError, setup_error
from verbena.kv.commands.replies import CommandError
from verbena.shards.cluster_map import ClusterMap, Move
from verbena.shards.rebalance import plan
from verbena.shards.slots import SlotRange
from verbena.shards.stores import MapStore, change
from verbena.shards.stores.configured import open_configured

_POLL_S = 0.1
_HEALTH = {"pfail": "suspected", "fail": "failed"}


def run(options: argparse.Namespace) -> int:
    config = load_with_flags(options)
    return asyncio.run(_run(options, config))


async def _run(options: argparse.Namespace, config: Config) -> int:
    store = open_configured(config, create=False)
    try:
        return int(await _ACTIONS[options.action](options, config, store))
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
        print(f"moving {move.slots}: {name_of(map, move.source)} → {name_of(map, move.target)} ({move.id})")
    return 0


async def _move(options: argparse.Namespace, config: Config, store: MapStore) -> int:
    map = (await store.load()).map
    try:
        slots = SlotRange.parse(options.slots)
    except ValueError as error:
        options.parser.error(str(error))
    source = map.owner_of(slots.first)
    if source is None:
        raise setup_error("map_refused", operation="move", detail=f"slot {slots.first} has no owner")
    move = Move(secrets.token_hex(16), slots, source, find(map, options.target).id)
    await change(store, lambda map: map.begin_move(move))
    if options.detach:
        print(json.dumps({"id": move.id}) if options.json else move.id)
        return 0
    status, report = await watch(options, config, store, move)
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
            options.parser.error(f"--weight {word}: NODE=NUMBER, 0 or more")
    try:
        moves = plan(map, weights)
    except ValueError as error:
        options.parser.error(str(error))
    if options.json and options.dry_run:
        print(json.dumps([[str(slots), source, target] for slots, source, target in moves]))
        return 0
    if not moves and not options.json:
        print("already balanced")
    reports, status = list[dict[str, Any]](), 0
    for slots, source, target in moves:
        if not options.json:
            print(f"{slots}: {name_of(map, source)} → {name_of(map, target)}", flush=True)
        if options.dry_run:
            continue
        move = Move(secrets.token_hex(16), slots, source, target)
        await change(store, partial(ClusterMap.begin_move, move=move))
        status, report = await watch(options, config, store, move)
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
            name_of(map, view["id"]),
            "itself" if view["id"] == asked else name_of(map, asked),
            _HEALTH.get(view["health"], view["health"]),
            f"{view['load']}" if view["health"] == "alive" else "-",
            "-" if view["id"] == asked else _ago(view["silent_s"]),
            view["wire"] or "-",
        )
        for view, asked in sorted(
            ((view, asked) for asked, views in found.items() for view in views),
            key=lambda one: (name_of(map, one[0]["id"]), one[0]["id"] != one[1], name_of(map, one[1])),
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
            name_of(map, one["source"]),
            name_of(map, one["target"]),
            PHASES[one["phase"]][1],
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


def _ago(seconds: float | None) -> str:
    return "never" if seconds is None else f"{seconds:.1f} s ago"


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    print(text.table([heads, *rows]))


_ACTIONS = {
    "map": _map,
    "move": _move,
    "rebalance": _rebalance,
    "status": _status,
    "nodes": _nodes,
    "abort": _abort,
}
