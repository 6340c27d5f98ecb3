"""CLUSTER, ASKING, READONLY, READWRITE: lets clients find nodes, and operators change the cluster map."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from verbena.kv.commands.arguments import integer
from verbena.kv.commands.declare import Function, command
from verbena.kv.commands.replies import CommandError, Reply, SyntaxMistake
from verbena.kv.server.call import Call
from verbena.shards.cluster_map import ClusterMap, Member, Move
from verbena.shards.liveness import Health
from verbena.shards.slots import SLOTS, SlotRange, slot_of

if TYPE_CHECKING:
    from verbena.kv.cluster import ClusterNode

LOOK = "loading stale"
CHANGE = "admin stale noscript no_multi"
_OFF = "ERR This instance has cluster support disabled"


def node_of(call: Call) -> ClusterNode:
    if call.server.services.cluster is None:
        raise CommandError(_OFF)
    return call.server.services.cluster


def slot_from(arg: bytes) -> int:
    if not arg.isdigit() or int(arg) >= SLOTS:
        raise CommandError("ERR Invalid or out of range slot")
    return int(arg)


def id_from(call: Call, arg: bytes, otherwise: str = "Unknown node") -> str:
    found = arg.decode("latin-1").lower()
    if found not in node_of(call).map.members:
        raise CommandError(f"ERR {otherwise} {found[:64]}")
    return found


def _too_many(name: str) -> CommandError:
    return CommandError(
        f"ERR unknown subcommand or wrong number of arguments for '{name}'. Try CLUSTER HELP."
    )


def change(call: Call, function: Callable[[ClusterMap], ClusterMap]) -> Reply:
    node = node_of(call)

    async def make() -> Reply:
        await node.current.change(function)
        return "OK"

    return node.reply_later(call, make)


def _declare(
    name: str, arity: int, summary: str, *, flags: str = LOOK, since: str = "3.0.0"
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


# Queries


@_declare("INFO", 2, "Returns the state of the cluster.")
def info(call: Call) -> Reply:
    node = node_of(call)
    map, primaries = node.map, {owner for owner in node.map.table if owner is not None}
    health = {id: node.gossip.health(id) for id in primaries}
    given = sum(owner is not None for owner in map.table)
    failed = sum(owner is not None and health[owner] is Health.FAILED for owner in map.table)
    suspected = sum(owner is not None and health[owner] is Health.SUSPECTED for owner in map.table)
    fields = {
        "cluster_state": "ok" if map.is_covered and not failed else "fail",
        "cluster_slots_assigned": given,
        "cluster_slots_ok": given - failed - suspected,
        "cluster_slots_pfail": suspected,
        "cluster_slots_fail": failed,
        "cluster_known_nodes": len(map.members),
        "cluster_size": len(primaries),
        "cluster_current_epoch": map.epoch,
        "cluster_my_epoch": map.epoch,
        "cluster_stats_messages_sent": node.gossip.messages["sent"],
        "cluster_stats_messages_received": node.gossip.messages["received"],
        "total_cluster_links_buffer_limit_exceeded": 0,
    }
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


@_declare("NODES", 2, "Lists the members with their roles, slots and states.")
def nodes(call: Call) -> Reply:
    node = node_of(call)
    return "".join(_line(node, member) + "\n" for _, member in sorted(node.map.members.items())).encode()


@_declare("SLAVES", 3, "Lists the replicas of a primary. Deprecated: use CLUSTER REPLICAS.")
@_declare("REPLICAS", 3, "Lists the replicas of a primary.", since="5.0.0")
def replicas(call: Call, id: bytes) -> Reply:
    node = node_of(call)
    found = node.map.replicas_of(id_from(call, id))
    return [_line(node, node.map.members[one]).encode() for one in found]


def _contact(member: Member) -> list[Any]:
    return [member.host.encode(), member.port, member.id.encode(), []]


@_declare("SLOTS", 2, "Lists the ranges of slots with the nodes that serve them.")
def slots(call: Call) -> Reply:
    map = node_of(call).map
    return [
        [found.first, found.last, *(_contact(map.members[id]) for id in (owner, *map.replicas_of(owner)))]
        for found, owner in map.owners
    ]


@_declare("SHARDS", 2, "Lists the primaries with their replicas and slots.", since="7.0.0")
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
        b"role": b"replica" if id in node.map.replicas else b"master",
        b"replication-offset": node.failover.position if id == node.id else node.gossip.positions.get(id, 0),
        b"health": b"online" if alive else b"failed",
    }


@_declare("MYID", 2, "Returns the id of this node.")
def myid(call: Call) -> Reply:
    return node_of(call).id.encode()


@_declare("MYSHARDID", 2, "Returns the id of this node's shard, which is that of its primary.", since="7.2.0")
def myshardid(call: Call) -> Reply:
    node = node_of(call)
    return node.map.replicas.get(node.id, node.id).encode()


@_declare("LINKS", 2, "Lists the sessions with the other members.", since="7.0.0")
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


@_declare("KEYSLOT", 3, "Returns the slot of a key.")
def keyslot(call: Call, key: bytes) -> Reply:
    node_of(call)
    return slot_of(key)


@_declare("COUNTKEYSINSLOT", 3, "Returns the number of keys that this node has in a slot.")
def countkeysinslot(call: Call, slot: bytes) -> Reply:
    node_of(call)
    if not 0 <= (number := integer(slot)) < SLOTS:
        raise CommandError("ERR Invalid slot")
    return call.server.engine.count_slot(number)


@_declare("GETKEYSINSLOT", 4, "Returns some of the keys that this node has in a slot.")
def getkeysinslot(call: Call, slot: bytes, count: bytes) -> Reply:
    node_of(call)
    number, most = integer(slot), integer(count)
    if not 0 <= number < SLOTS or most < 0:
        raise CommandError("ERR Invalid slot or number of keys")
    return list(call.server.engine.slot_keys(number, min(most, 1 << 20)))


@_declare("COUNT-FAILURE-REPORTS", 3, "Returns how many members report a node as unreachable.")
def count_failure_reports(call: Call, id: bytes) -> Reply:
    return node_of(call).gossip.failure_reports(id_from(call, id))


# Changes of the map


@_declare("MEET", -4, "Checks that a node is a member: nodes join through the map's store.", flags=CHANGE)
def meet(call: Call, host: bytes, port: bytes, *bus_port: bytes) -> Reply:
    node, place = node_of(call), f"{host.decode('latin-1')}:{port.decode('latin-1')}"
    for what, arg in (("base", port), *(("bus", arg) for arg in bus_port)):
        if not arg.isdigit():
            raise CommandError(f"ERR Invalid TCP {what} port specified: {arg.decode('latin-1')}")
        if not 0 < int(arg) < 65536:
            raise CommandError(f"ERR Invalid node address specified: {place}")
    if len(bus_port) > 1:
        raise _too_many("MEET")

    async def make() -> Reply:
        map = await node.current.refresh()
        if any(member.address == place for member in map.members.values()):
            return "OK"
        return CommandError(
            f"ERR no member is at {place}: start it with cluster.map_store = {node.settings.map_store}"
        )

    return node.reply_later(call, make)


@_declare("FORGET", 3, "Removes a node without slots from the cluster map.", flags=CHANGE)
def forget(call: Call, id: bytes) -> Reply:
    wanted, node = id_from(call, id), node_of(call)
    if wanted == node.id:
        raise CommandError("ERR I tried hard but I can't forget myself...")
    return change(call, lambda map: map.forget(wanted))


def _ranges(args: Sequence[bytes], name: str) -> list[int]:
    if len(args) % 2:
        raise CommandError(f"ERR wrong number of arguments for 'cluster|{name}' command")
    numbers = [slot_from(arg) for arg in args]
    found: list[int] = []
    for first, last in zip(numbers[::2], numbers[1::2], strict=True):
        if first > last:
            raise CommandError(f"ERR start slot number {first} is greater than end slot number {last}")
        found += SlotRange(first, last)
    return _once(found)


def _once(slots: list[int]) -> list[int]:
    if len(set(slots)) != len(slots):
        twice = next(slot for slot, count in Counter(slots).items() if count > 1)
        raise CommandError(f"ERR Slot {twice} specified multiple times")
    return slots


def _own_slots(node: ClusterNode) -> list[int]:
    return [slot for found in node.map.slots_of(node.id) for slot in found]


def _assign(call: Call, slots: list[int]) -> Reply:
    node = node_of(call)
    for slot in slots:
        if node.map.owner_of(slot) is not None:
            raise CommandError(f"ERR Slot {slot} is already busy")
    return change(call, lambda map: map.assign(slots, node.id))


@_declare("ADDSLOTS", -3, "Assigns unassigned slots to this node.", flags=CHANGE)
def addslots(call: Call, *args: bytes) -> Reply:
    return _assign(call, _once([slot_from(arg) for arg in args]))


@_declare(
    "ADDSLOTSRANGE", -4, "Assigns ranges of unassigned slots to this node.", flags=CHANGE, since="7.0.0"
)
def addslotsrange(call: Call, *args: bytes) -> Reply:
    return _assign(call, _ranges(args, "addslotsrange"))


def _unassign(call: Call, slots: list[int]) -> Reply:
    node = node_of(call)
    for slot in slots:
        if node.map.owner_of(slot) is None:
            raise CommandError(f"ERR Slot {slot} is already unassigned")
    return change(call, lambda map: map.unassign(slots, node.id))


@_declare("DELSLOTS", -3, "Unassigns slots of this node.", flags=CHANGE)
def delslots(call: Call, *args: bytes) -> Reply:
    return _unassign(call, _once([slot_from(arg) for arg in args]))


@_declare("DELSLOTSRANGE", -4, "Unassigns ranges of slots of this node.", flags=CHANGE, since="7.0.0")
def delslotsrange(call: Call, *args: bytes) -> Reply:
    return _unassign(call, _ranges(args, "delslotsrange"))


@_declare("FLUSHSLOTS", 2, "Unassigns all slots of this node.", flags=CHANGE)
def flushslots(call: Call) -> Reply:
    node = node_of(call)
    if len(call.db):
        raise CommandError("ERR DB must be empty to perform CLUSTER FLUSHSLOTS.")
    mine = _own_slots(node)
    return change(call, lambda map: map.unassign(mine, node.id))


@_declare("SETSLOT", -4, "Sets the state or the owner of a slot.", flags=CHANGE)
def setslot(call: Call, arg: bytes, how: bytes, *ids: bytes) -> Reply:
    node, slot, wish = node_of(call), slot_from(arg), how.upper()
    mine = node.map.owner_of(slot) == node.id
    if wish == b"STABLE" and not ids:
        node.guard.close_slot(slot)
        return "OK"
    if len(ids) != 1 or wish not in (b"IMPORTING", b"MIGRATING", b"NODE"):
        raise CommandError("ERR Invalid CLUSTER SETSLOT action or number of arguments. Try CLUSTER HELP")
    if wish == b"MIGRATING":
        if not mine:
            raise CommandError(f"ERR I'm not the owner of hash slot {slot}")
        node.guard.open_slot(slot, "migrating", id_from(call, ids[0], "I don't know about node"))
        return "OK"
    if wish == b"IMPORTING":
        if mine:
            raise CommandError(f"ERR I'm already the owner of hash slot {slot}")
        node.guard.open_slot(slot, "importing", id_from(call, ids[0], "I don't know about node"))
        return "OK"
    other = id_from(call, ids[0])
    if mine and other != node.id and call.server.engine.slot_keys(slot, 1):
        raise CommandError(
            f"ERR Can't assign hashslot {slot} to a different node while I still hold keys "
            "for this hash slot."
        )
    node.guard.close_slot(slot)
    return change(call, lambda map: map if map.owner_of(slot) == other else map.give([slot], other))


@_declare("MOVE", -4, "Moves a range of slots to another node while they are in use.", flags=CHANGE,
          since="7.0.0")  # fmt: skip
def move(call: Call, range_: bytes, id: bytes) -> Reply:
    node, target = node_of(call), id_from(call, id)
    try:
        wanted = SlotRange.parse(range_.decode("latin-1"))
    except ValueError as error:
        raise CommandError(f"ERR {error}") from None
    source = node.map.owner_of(wanted.first)
    if source is None:
        raise CommandError(f"ERR nobody has slot {wanted.first}")
    begun = Move(new_migration(), wanted, source, target)

    async def make() -> Reply:
        await node.current.change(lambda map: map.begin_move(begun))
        return begun.id.encode()

    return node.reply_later(call, make)


def new_migration() -> str:
    import secrets

    return secrets.token_hex(16)


@_declare("REPLICATE", 3, "Makes this node a replica of another node.", flags=CHANGE)
def replicate(call: Call, id: bytes) -> Reply:
    node, primary = node_of(call), id_from(call, id)
    if call.server.services.replication is None:
        raise CommandError("ERR this node does not replicate")
    if primary == node.id:
        raise CommandError("ERR Can't replicate myself")
    if primary in node.map.replicas:
        raise CommandError("ERR I can only replicate a master, not a replica.")
    if len(call.db) and node.id not in node.map.replicas:
        raise CommandError("ERR To set a master the node must be empty and without assigned slots.")
    return change(
        call, lambda map: map if map.replicas.get(node.id) == primary else map.replicate(node.id, primary)
    )


@_declare("FAILOVER", -2, "Promotes this replica to primary in place of its own primary.",
          flags=CHANGE)  # fmt: skip
def failover(call: Call, *how: bytes) -> Reply:
    node = node_of(call)
    if len(how) > 1:
        raise _too_many("FAILOVER")
    if any(arg.upper() not in (b"FORCE", b"TAKEOVER") for arg in how):
        raise SyntaxMistake()
    if node.id not in node.map.replicas:
        raise CommandError("ERR You should send CLUSTER FAILOVER to a replica")

    async def make() -> Reply:
        if how:
            await node.failover.take_over(force=how[0].upper() == b"TAKEOVER")
        else:
            await node.failover.run_planned()
        return "OK"

    return node.reply_later(call, make)


@_declare("SET-CONFIG-EPOCH", 3, "Accepted for compatibility: the map has a single epoch.", flags=CHANGE)
def set_config_epoch(call: Call, epoch: bytes) -> Reply:
    node_of(call)
    if integer(epoch) < 0:
        raise CommandError(f"ERR Invalid config epoch specified: {int(epoch)}")
    return "OK"


@_declare("BUMPEPOCH", 2, "Increments the epoch of the cluster map.", flags=CHANGE)
def bumpepoch(call: Call) -> Reply:
    node = node_of(call)

    async def make() -> Reply:
        return f"BUMPED {(await node.current.change(lambda map: map.confirm())).epoch}"

    return node.reply_later(call, make)


@_declare("SAVECONFIG", 2, "Accepted for compatibility: the map is always stored.", flags=CHANGE)
def saveconfig(call: Call) -> Reply:
    node_of(call)
    return "OK"


@_declare("RESET", -2, "Unassigns all slots of this node if it has no keys.", flags=CHANGE)
def reset(call: Call, *how: bytes) -> Reply:
    node = node_of(call)
    if len(how) > 1:
        raise _too_many("RESET")
    if any(arg.upper() not in (b"SOFT", b"HARD") for arg in how):
        raise SyntaxMistake()
    if len(call.db) and node.id not in node.map.replicas:
        raise CommandError("ERR CLUSTER RESET can't be called with master nodes containing keys")
    mine = _own_slots(node)

    def without(map: ClusterMap) -> ClusterMap:
        from dataclasses import replace

        if mine:
            map = map.unassign(mine, node.id)
        if node.id in map.replicas:
            left = {id: primary for id, primary in map.replicas.items() if id != node.id}
            map = replace(map, epoch=map.epoch + 1, replicas=left)
        return map

    return change(call, without)
