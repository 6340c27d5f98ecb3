"""Follows a move of slots until the map has its outcome, and shows the progress."""

from __future__ import annotations

import argparse
import asyncio
import sys
from typing import Any

from verbena.cli.progress import Progress
from verbena.cli.shards.node import NodeSession
from verbena.config import Config
from verbena.errors import VerbenaError, setup_error
from verbena.kv.commands.replies import CommandError
from verbena.shards.cluster_map import ClusterMap, Member, Move
from verbena.shards.stores import MapStore

_POLL_S = 0.1
PHASES = {
    "prepared": (0.0, "prepared"),
    "base_copy": (0.0, "base copy"),
    "catch_up": (0.9, "catch-up"),
    "cut_over": (0.97, "cut-over"),
    "deciding": (0.98, "deciding"),
    "moved": (0.99, "moved, cleaning up"),
    "done": (1.0, "done"),
    "rolled_back": (1.0, "rolled back"),
}


async def watch(
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
            f"slots {move.slots} moved to {name_of(map, move.target)}: {sent / 2**20:.1f} MiB over"
            f" {last.get('wire', '?')}, commands paused for {last.get('pause_ms', 0.0):.1f} ms"
        )
    elif not options.json:
        print(f"slots {move.slots} remain on {name_of(map, move.source)}: {last.get('why', 'see its log')}")
    return int(not moved), {**last, "moved": moved}


def _progress_of(report: dict[str, Any]) -> tuple[float, str]:
    done, words = PHASES.get(report.get("phase", "prepared"), (0.0, ""))
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


def name_of(map: ClusterMap, id: str) -> str:
    return map.members[id].name or id[:8] if id in map.members else id[:8]
