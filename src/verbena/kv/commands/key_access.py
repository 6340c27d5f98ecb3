"""What a command does with each of its keys: for access rules and for COMMAND GETKEYSANDFLAGS."""

from __future__ import annotations

from verbena.kv.commands.declare import Command

# Flags of keys, in Redis's words: how (RO RW OW RM), and what happens to the value.
_READ = ("RO", "access")
_LOOK = ("RO",)  # whether there is one, not what it holds
_UPDATE = ("RW", "update")
_INSERT = ("RW", "insert")
_DELETE = ("RM", "delete")
_TAKE = ("RW", "access", "delete")
_EXCHANGE = ("RW", "access", "update")
_OVERWRITE = ("OW", "update")

# Every key of these.
_ALIKE: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(
        [
            "EXISTS",
            "TYPE",
            "TTL",
            "PTTL",
            "EXPIRETIME",
            "PEXPIRETIME",
            "TOUCH",
            "STRLEN",
            "LLEN",
            "HLEN",
            "SCARD",
            "ZCARD",
        ],
        _LOOK,
    ),
    **dict.fromkeys(["DEL", "UNLINK", "HDEL", "SREM", "ZREM", "LREM", "LTRIM", "ZREMRANGEBYRANK"], _DELETE),
    **dict.fromkeys(["ZREMRANGEBYSCORE", "ZREMRANGEBYLEX"], _DELETE),
    **dict.fromkeys(
        ["LPUSH", "RPUSH", "LPUSHX", "RPUSHX", "SADD", "LINSERT", "SETNX", "APPEND", "HSETNX", "PFADD"],
        _INSERT,
    ),
    **dict.fromkeys(
        ["INCR", "DECR", "INCRBY", "DECRBY", "INCRBYFLOAT", "HINCRBY", "HINCRBYFLOAT", "ZINCRBY"], _EXCHANGE
    ),
    **dict.fromkeys(["GETSET", "GETEX", "SETBIT", "BITFIELD"], _EXCHANGE),
    **dict.fromkeys(
        ["GETDEL", "LPOP", "RPOP", "LMPOP", "BLPOP", "BRPOP", "BLMPOP", "SPOP", "ZPOPMIN", "ZPOPMAX"], _TAKE
    ),
    **dict.fromkeys(["BZPOPMIN", "BZPOPMAX", "ZMPOP", "BZMPOP"], _TAKE),
    **dict.fromkeys(["SET", "SETEX", "PSETEX", "MSET", "MSETNX", "RESTORE"], _OVERWRITE),
}
# The first key, and then the others.
_MIXED: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    **dict.fromkeys(
        [
            "SINTERSTORE",
            "SUNIONSTORE",
            "SDIFFSTORE",
            "ZUNIONSTORE",
            "ZINTERSTORE",
            "ZDIFFSTORE",
            "ZRANGESTORE",
            "BITOP",
            "GEOSEARCHSTORE",
        ],
        (_OVERWRITE, _READ),
    ),
    "PFMERGE": (("RW", "access", "insert"), _READ),
    "COPY": (_READ, _OVERWRITE),
    **dict.fromkeys(["RENAME", "RENAMENX"], (_TAKE, _OVERWRITE)),
    **dict.fromkeys(["LMOVE", "BLMOVE", "RPOPLPUSH", "BRPOPLPUSH", "SMOVE"], (_TAKE, _INSERT)),
    **dict.fromkeys(["SORT", "GEORADIUS", "GEORADIUSBYMEMBER"], (_READ, _OVERWRITE)),
}


def keys_of(command: Command, argv: list[bytes]) -> list[tuple[int, tuple[str, ...]]]:
    """Positions in `argv` of its keys, with their flags."""
    positions = [at for at in command.key_positions(argv) if 0 < at < len(argv)]
    if command.name in _MIXED:
        first, others = _MIXED[command.name]
        return [(at, others if i else first) for i, at in enumerate(positions)]
    flags = _ALIKE.get(command.name, _UPDATE if command.is_write else _READ)
    if command.name == "SET" and any(word.upper() == b"GET" for word in argv[3:]):
        flags = _EXCHANGE
    return [(at, flags) for at in positions]


def needs(flags: tuple[str, ...]) -> str:
    """What a rule must grant for such a key: "R", "W", both, or "" for any of them."""
    return ("R" if "access" in flags else "") + ("W" if {"insert", "delete", "update"} & set(flags) else "")
