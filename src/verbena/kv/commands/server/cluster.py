"""ASKING, READONLY, READWRITE and the queries of CLUSTER: clients find nodes, slots and keys."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from verbena.kv.commands.arguments import integer
from verbena.kv.commands.declare import Function, command
from verbena.kv.commands.replies import CommandError, Reply
from verbena.kv.server.call import Call
from verbena.shards.cluster_map import Member
from verbena.shards.liveness import Health
from verbena.shards.slots import SLOTS, slot_of

if TYPE_CHECKING:
    from verbena.kv.cluster import ClusterNode

INTROSPECTION = "loading stale"
_OFF = "ERR This instance has cluster support disabled"


def node_of(call: Call) -> ClusterNode:
    if call.server.services.cluster is None:
        raise CommandError(_OFF)
    return call.server.services.cluster


def id_from(call: Call, arg: bytes, otherwise: str = "Unknown node") -> str:
    found = arg.decode("latin-1").lower()
    if found not in node_of(call).map.members:
        raise CommandError(f"ERR {otherwise} {found[:64]}")
    return found


def declare(
    name: str, arity: int, summary: str, *, flags: str = INTROSPECTION, since: str = "3.0.0"
) -> Callable[[Function], Function]:
    return command(f"CLUSTER {name}", arity=arity, flags=flags, group="cluster", summary=summary, since=since)


@command("ASKING", arity=1, flags="fast", group="cluster", since="3.0.0",
         summary="Allows the next command to access a slot that is being imported.")  # fmt: skip
def asking(call: Call) -> Reply:
    node_of(call)
    call.client.native.asking = True
    return "OK"


@command("READONLY", arity=1, flags="fast loading stale", group="cluster", since="3.0.0",
         summary="Allows this client to read from a replica.")  # fmt: skip
def readonly(call: Call) -> Reply:
    node_of(call)
    call.client.native.reads_replica = True
    return "OK"


@command("READWRITE", arity=1, flags="fast loading stale", group="cluster", since="3.0.0",
         summary="Ends READONLY: a replica redirects this client's reads again.")  # fmt: skip
def readwrite(call: Call) -> Reply:
    node_of(call)
    call.client.native.reads_replica = False
    return "OK"


@declare("INFO", 2, "Returns the state of the cluster.")
def info(call: Call) -> Reply:
    fields = node_of(call).info()
    return "".join(f"{name}:{value}\r\n" for name, value in fields.items()).encode()


def _flags(node: ClusterNode, id: str) -> str:
    flags = ["myself"] if id == node.id else []
    flags.append("slave" if id in node.map.replicas else "master")
    health = node.gossip.health(id)
    if health is not Health.ALIVE:
        flags.append("fail?" if health is Health.SUSPECTED else "fail")
    return ",".join(flags)


def _line(node: ClusterNode, member: Member) -> str:
    map, health = node.map, node.gossip.health(member.id)
    asked_ms, heard_ms = node.gossip.times_of(member.id)
    slots = [str(found) for found in map.slots_of(member.id)]
    if member.id == node.id:
        for move in map.moves.values():
            arrow = f"->-{move.target}" if move.source == node.id else f"-<-{move.source}"
            if node.id in (move.source, move.target):
                slots += [f"[{slot}{arrow}]" for slot in move.slots]
        for slot, (how, other) in sorted(node.guard.open_slots.items()):
            slots.append(f"[{slot}{'->-' if how == 'migrating' else '-<-'}{other}]")
    args = [
        member.id,
        f"{member.address}@{member.sessions.rpartition(':')[2]}",
        _flags(node, member.id),
        map.replicas.get(member.id, "-"),
        *(str(asked_ms), str(heard_ms), str(map.epoch)),
        "connected" if health is Health.ALIVE else "disconnected",
        *slots,
    ]
    return " ".join(args)


@declare("NODES", 2, "Lists the members with their roles, slots and states.")
def nodes(call: Call) -> Reply:
    node = node_of(call)
    return "".join(_line(node, member) + "\n" for _, member in sorted(node.map.members.items())).encode()


@declare("SLAVES", 3, "Lists the replicas of a primary. Deprecated: use CLUSTER REPLICAS.")
@declare("REPLICAS", 3, "Lists the replicas of a primary.", since="5.0.0")
def replicas(call: Call, id: bytes) -> Reply:
    node = node_of(call)
    found = node.map.replicas_of(id_from(call, id))
    return [_line(node, node.map.members[one]).encode() for one in found]


def _contact(member: Member) -> list[Any]:
    return [member.host.encode(), member.port, member.id.encode(), []]


@declare("SLOTS", 2, "Lists the ranges of slots with the nodes that serve them.")
def slots(call: Call) -> Reply:
    map = node_of(call).map
    return [
        [found.first, found.last, *(_contact(map.members[id]) for id in (owner, *map.replicas_of(owner)))]
        for found, owner in map.owners
    ]


@declare("SHARDS", 2, "Lists the primaries with their replicas and slots.", since="7.0.0")
def shards(call: Call) -> Reply:
    node = node_of(call)
    map = node.map
    found: list[Any] = []
    for primary in (id for id in sorted(map.members) if id not in map.replicas):
        ranges = [slot for one in map.slots_of(primary) for slot in (one.first, one.last)]
        group = [_shard_member(node, id) for id in (primary, *map.replicas_of(primary))]
        found.append({b"slots": ranges, b"nodes": group})
    return found


def _shard_member(node: ClusterNode, id: str) -> dict[bytes, Any]:
    member = node.map.members[id]
    alive = node.gossip.health(id) is Health.ALIVE
    return {
        b"id": id.encode(),
        b"port": member.port,
        b"ip": member.host.encode(),
        b"endpoint": member.host.encode(),
        b"sessions": member.sessions.encode(),
        b"role": b"replica" if id in node.map.replicas else b"master",
        b"replication-offset": node.promotion.position if id == node.id else node.gossip.positions.get(id, 0),
        b"health": b"online" if alive else b"failed",
    }


@declare("MYID", 2, "Returns the id of this node.")
def myid(call: Call) -> Reply:
    return node_of(call).id.encode()


@declare("MYSHARDID", 2, "Returns the id of this node's shard, which is that of its primary.", since="7.2.0")
def myshardid(call: Call) -> Reply:
    node = node_of(call)
    return node.map.replicas.get(node.id, node.id).encode()


@declare("LINKS", 2, "Lists the sessions with the other members.", since="7.0.0")
def links(call: Call) -> Reply:
    return [
        {
            b"direction": b"to",
            b"node": id.encode(),
            b"create-time": created_ms,
            b"events": b"rw",
            b"send-buffer-allocated": 0,
            b"send-buffer-used": 0,
        }
        for id, created_ms in node_of(call).sessions.links()
    ]


@declare(
    "MOVES", 2, "Returns the running and recent moves whose source is this node, as JSON.", since="7.0.0"
)
def moves(call: Call) -> Reply:
    return json.dumps(node_of(call).moves.status()).encode()


@declare("VIEWS", 2, "Returns the state of every member as this node sees it, as JSON.", since="7.0.0")
def views(call: Call) -> Reply:
    return json.dumps(node_of(call).gossip.views()).encode()


@declare("KEYSLOT", 3, "Returns the slot of a key.")
def keyslot(call: Call, key: bytes) -> Reply:
    node_of(call)
    return slot_of(key)


@declare("COUNTKEYSINSLOT", 3, "Returns the number of keys that this node has in a slot.")
def countkeysinslot(call: Call, slot: bytes) -> Reply:
    node_of(call)
    if not 0 <= (number := integer(slot)) < SLOTS:
        raise CommandError("ERR Invalid slot")
    return call.server.engine.count_slot(number)


@declare("GETKEYSINSLOT", 4, "Returns some of the keys that this node has in a slot.")
def getkeysinslot(call: Call, slot: bytes, count: bytes) -> Reply:
    node_of(call)
    number, most = integer(slot), integer(count)
    if not 0 <= number < SLOTS or most < 0:
        raise CommandError("ERR Invalid slot or number of keys")
    return list(call.server.engine.slot_keys(number, min(most, 1 << 20)))


@declare("COUNT-FAILURE-REPORTS", 3, "Returns how many members report a node as unreachable.")
def count_failure_reports(call: Call, id: bytes) -> Reply:
    return node_of(call).gossip.failure_reports(id_from(call, id))
