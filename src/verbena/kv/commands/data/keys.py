"""Keys of any type: KEYS, SCAN, RENAME, COPY, MOVE, DUMP, RESTORE."""

from __future__ import annotations

from verbena.kv.commands.arguments import integer
from verbena.kv.commands.data import scan_cursors
from verbena.kv.commands.declare import command
from verbena.kv.commands.replies import CommandError, InvalidSyntax, Reply
from verbena.kv.server.call import Call, Database
from verbena.kv.storage import serial

KEY = (1, 1, 1)
SAME = "ERR source and destination objects are the same"


@command("KEYS", arity=2, flags="readonly", group="generic", categories="dangerous",
         summary="Returns the keys that match a pattern.")  # fmt: skip
def keys(call: Call, glob: bytes) -> Reply:
    match = scan_cursors.pattern(glob).match
    found: list[bytes] = []
    cursor, some = call.db.scan(0, 1024)
    while True:
        found += some if glob == b"*" else filter(match, some)
        if cursor == 0:
            return list(dict.fromkeys(found))
        cursor, some = call.db.scan(cursor, 1024)


@command("SCAN", arity=-2, flags="readonly", group="generic", since="2.8.0",
         summary="Iterates over the keys of the database.")  # fmt: skip
def scan(call: Call, cursor: bytes, *args: bytes) -> Reply:
    start = scan_cursors.cursor_of(cursor)
    chosen = scan_cursors.options(args, with_type=True)
    following, found = call.db.scan(start, chosen.count)
    if chosen.match is not None:
        found = [key for key in found if chosen.match.match(key)]
    if chosen.type is not None:
        kind = chosen.type.decode("latin-1").lower()
        found = [key for key in found if call.db.type_of(key) == kind]
    return [b"%d" % following, found]


@command("RANDOMKEY", arity=1, flags="readonly", group="generic",
         summary="Returns a random key.")  # fmt: skip
def randomkey(call: Call) -> Reply:
    return call.db.random_key()


def _rename(call: Call, source: bytes, target: bytes, *, only_if_free: bool) -> bool:
    value = call.db.any(source)
    if value is None:
        raise CommandError("ERR no such key")
    if source == target or (only_if_free and call.db.exists(target)):
        return source == target and not only_if_free
    expires_ms = call.db.expires_ms(source)
    call.db.delete(source)
    call.db.put(target, value, expires_ms=expires_ms)
    # The new key is logged first: a log cut between the two records has the value twice, not zero times.
    call.db.changed(target, event="rename_to")
    call.db.changed(source, b"DEL", source, event="rename_from")
    return True


@command("RENAME", arity=3, flags="write", keys=(1, 2, 1), group="generic", explicit=True,
         key_flags=("RW access delete", "OW update"),
         summary="Renames a key, replacing the key of the new name.")  # fmt: skip
def rename(call: Call, source: bytes, target: bytes) -> Reply:
    _rename(call, source, target, only_if_free=False)
    return "OK"


@command("RENAMENX", arity=3, flags="write fast", keys=(1, 2, 1), group="generic", explicit=True,
         key_flags=("RW access delete", "OW update"),
         summary="Renames a key only if no key of the new name exists.")  # fmt: skip
def renamenx(call: Call, source: bytes, target: bytes) -> Reply:
    return int(_rename(call, source, target, only_if_free=True))


def _database(call: Call, arg: bytes) -> Database:
    found = call.database(integer(arg))
    if found is None:
        raise CommandError("ERR DB index is out of range")
    return found


@command("COPY", arity=-3, flags="write denyoom", keys=(1, 2, 1), group="generic", since="6.2.0",
         explicit=True, key_flags=("RO access", "OW update"),
         summary="Copies a value to another key, also in another database.")  # fmt: skip
def copy(call: Call, source: bytes, target: bytes, *args: bytes) -> Reply:
    other, replace, position = call.db, False, 0
    while position < len(args):
        name = args[position].upper()
        if name == b"REPLACE":
            replace = True
        elif name == b"DB" and position + 1 < len(args):
            position += 1
            other = _database(call, args[position])
        else:
            raise InvalidSyntax()
        position += 1
    if other.index == call.db.index and source == target:
        raise CommandError(SAME)
    value = call.db.any(source)
    if value is None or (other.exists(target) and not replace):
        return 0
    other.put(target, serial.duplicate(value), expires_ms=call.db.expires_ms(source))
    other.changed(target, event="copy_to")
    return 1


@command("MOVE", arity=3, flags="write fast", keys=KEY, group="generic", explicit=True,
         summary="Moves a key to another database.")  # fmt: skip
def move(call: Call, key: bytes, database: bytes) -> Reply:
    other = _database(call, database)
    if other.index == call.db.index:
        raise CommandError(SAME)
    value = call.db.any(key)
    if value is None or other.exists(key):
        return 0
    expires_ms = call.db.expires_ms(key)
    call.db.delete(key)
    other.put(key, value, expires_ms=expires_ms)
    other.changed(key, event="move_to")
    call.db.changed(key, b"DEL", key, event="move_from")
    return 1


@command("DUMP", arity=2, flags="readonly", keys=KEY, group="generic", since="2.6.0",
         summary="Returns the value at a key, serialized for RESTORE.")  # fmt: skip
def dump(call: Call, key: bytes) -> Reply:
    value = call.db.any(key)
    return None if value is None else serial.dump(value)


@command("RESTORE", arity=-4, flags="write denyoom", keys=KEY, group="generic", since="2.6.0",
         explicit=True, categories="dangerous", key_flags="OW update",
         summary="Creates a key from a value that DUMP serialized.")  # fmt: skip
def restore(call: Call, key: bytes, ttl: bytes, payload: bytes, *args: bytes) -> Reply:
    flags = _restore_options(args)
    if b"REPLACE" not in flags and call.db.exists(key):
        raise CommandError("BUSYKEY Target key name already exists.")
    expires_ms = integer(ttl)
    if expires_ms < 0:
        raise CommandError("ERR Invalid TTL value, must be >= 0")
    try:
        value = serial.load(payload)
    except serial.Damaged:
        raise CommandError("ERR DUMP payload version or checksum are wrong") from None
    except serial.Malformed:
        raise CommandError("ERR Bad data format") from None
    if expires_ms and b"ABSTTL" not in flags:
        expires_ms += call.now_ms
    if expires_ms and expires_ms <= call.now_ms:
        if call.db.delete(key):
            call.db.changed(key, b"DEL", key, event="del")
        return "OK"
    call.db.put(key, value, expires_ms=expires_ms)
    call.db.changed(key, event="restore")
    return "OK"


def _restore_options(args: tuple[bytes, ...]) -> set[bytes]:
    """Parses the options of RESTORE. IDLETIME and FREQ are checked but have no effect: the engine starts with
    new access statistics."""
    flags: set[bytes] = set()
    position = 0
    while position < len(args):
        name = args[position].upper()
        if name in (b"REPLACE", b"ABSTTL"):
            flags.add(name)
        elif name in (b"IDLETIME", b"FREQ") and position + 1 < len(args):
            if flags & {b"IDLETIME", b"FREQ"}:
                raise InvalidSyntax()
            position += 1
            number = integer(args[position])
            if name == b"IDLETIME" and number < 0:
                raise CommandError("ERR Invalid IDLETIME value, must be >= 0")
            if name == b"FREQ" and not 0 <= number <= 255:
                raise CommandError("ERR Invalid FREQ value, must be >= 0 and <= 255")
            flags.add(name)
        else:
            raise InvalidSyntax()
        position += 1
    return flags
