"""The changes of CLUSTER: operators change the cluster map, move slots and promote replicas."""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from verbena.kv.commands.arguments import integer
from verbena.kv.commands.replies import CommandError, InvalidSyntax, Reply
from verbena.kv.commands.server.cluster import declare, id_from, node_of
from verbena.kv.server.call import Call
from verbena.shards.cluster_map import ClusterMap, Move
from verbena.shards.slots import SLOTS, SlotRange

if TYPE_CHECKING:
    from verbena.kv.cluster import ClusterNode

CHANGE = "admin stale noscript no_multi"


def slot_from(arg: bytes) -> int:
    if not arg.isdigit() or int(arg) >= SLOTS:
        raise CommandError("ERR Invalid or out of range slot")
    return int(arg)


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


@declare("MEET", -4, "Checks that a node is a member: nodes join through the map's store.", flags=CHANGE)
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


@declare("FORGET", 3, "Removes a node without slots from the cluster map.", flags=CHANGE)
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


@declare("ADDSLOTS", -3, "Assigns unassigned slots to this node.", flags=CHANGE)
def addslots(call: Call, *args: bytes) -> Reply:
    return _assign(call, _once([slot_from(arg) for arg in args]))


@declare("ADDSLOTSRANGE", -4, "Assigns ranges of unassigned slots to this node.", flags=CHANGE, since="7.0.0")
def addslotsrange(call: Call, *args: bytes) -> Reply:
    return _assign(call, _ranges(args, "addslotsrange"))


def _unassign(call: Call, slots: list[int]) -> Reply:
    node = node_of(call)
    for slot in slots:
        if node.map.owner_of(slot) is None:
            raise CommandError(f"ERR Slot {slot} is already unassigned")
    return change(call, lambda map: map.unassign(slots, node.id))


@declare("DELSLOTS", -3, "Unassigns slots of this node.", flags=CHANGE)
def delslots(call: Call, *args: bytes) -> Reply:
    return _unassign(call, _once([slot_from(arg) for arg in args]))


@declare("DELSLOTSRANGE", -4, "Unassigns ranges of slots of this node.", flags=CHANGE, since="7.0.0")
def delslotsrange(call: Call, *args: bytes) -> Reply:
    return _unassign(call, _ranges(args, "delslotsrange"))


@declare("FLUSHSLOTS", 2, "Unassigns all slots of this node.", flags=CHANGE)
def flushslots(call: Call) -> Reply:
    node = node_of(call)
    if len(call.db):
        raise CommandError("ERR DB must be empty to perform CLUSTER FLUSHSLOTS.")
    mine = _own_slots(node)
    return change(call, lambda map: map.unassign(mine, node.id))


@declare("SETSLOT", -4, "Sets the state or the owner of a slot.", flags=CHANGE)
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


@declare("MOVE", 4, "Moves a range of slots to another node while they are in use.", flags=CHANGE,
          since="7.0.0")  # fmt: skip
def move(call: Call, range_: bytes, id: bytes) -> Reply:
    node, target = node_of(call), id_from(call, id)
    try:
        wanted = SlotRange.parse(range_.decode("latin-1"))
    except ValueError as error:
        raise CommandError(f"ERR {error}") from None
    source = node.map.owner_of(wanted.first)
    if source is None:
        raise CommandError(f"ERR no node has slot {wanted.first}")
    begun = Move(secrets.token_hex(16), wanted, source, target)

    async def make() -> Reply:
        await node.current.change(lambda map: map.begin_move(begun))
        return begun.id.encode()

    return node.reply_later(call, make)


@declare("REPLICATE", 3, "Makes this node a replica of another node.", flags=CHANGE)
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


@declare("FAILOVER", -2, "Promotes this replica to primary in place of its own primary.",
          flags=CHANGE)  # fmt: skip
def failover(call: Call, *how: bytes) -> Reply:
    node = node_of(call)
    if len(how) > 1:
        raise _too_many("FAILOVER")
    if any(arg.upper() not in (b"FORCE", b"TAKEOVER") for arg in how):
        raise InvalidSyntax()
    if node.id not in node.map.replicas:
        raise CommandError("ERR You should send CLUSTER FAILOVER to a replica")

    async def make() -> Reply:
        if how:
            await node.promotion.take_over(force=how[0].upper() == b"TAKEOVER")
        else:
            await node.promotion.run_planned()
        return "OK"

    return node.reply_later(call, make)


@declare("SET-CONFIG-EPOCH", 3, "Accepted for compatibility: the map has a single epoch.", flags=CHANGE)
def set_config_epoch(call: Call, epoch: bytes) -> Reply:
    node_of(call)
    if integer(epoch) < 0:
        raise CommandError(f"ERR Invalid config epoch specified: {int(epoch)}")
    return "OK"


@declare("BUMPEPOCH", 2, "Increments the epoch of the cluster map.", flags=CHANGE)
def bumpepoch(call: Call) -> Reply:
    node = node_of(call)

    async def make() -> Reply:
        return f"BUMPED {(await node.current.change(lambda map: map.confirm())).epoch}"

    return node.reply_later(call, make)


@declare("SAVECONFIG", 2, "Accepted for compatibility: the map is always stored.", flags=CHANGE)
def saveconfig(call: Call) -> Reply:
    node_of(call)
    return "OK"


@declare("RESET", -2, "Unassigns all slots of this node if it has no keys.", flags=CHANGE)
def reset(call: Call, *how: bytes) -> Reply:
    node = node_of(call)
    if len(how) > 1:
        raise _too_many("RESET")
    if any(arg.upper() not in (b"SOFT", b"HARD") for arg in how):
        raise InvalidSyntax()
    if len(call.db) and node.id not in node.map.replicas:
        raise CommandError("ERR CLUSTER RESET can't be called with master nodes containing keys")
    mine = _own_slots(node)

    def without(map: ClusterMap) -> ClusterMap:
        if mine:
            map = map.unassign(mine, node.id)
        if node.id in map.replicas:
            left = {id: primary for id, primary in map.replicas.items() if id != node.id}
            map = replace(map, epoch=map.epoch + 1, replicas=left)
        return map

    return change(call, without)
