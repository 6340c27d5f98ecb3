"""The commands that native code answers: their data, for COMMAND, for access control and for the docs."""

from __future__ import annotations

from verbena.kv.commands.declare import native

ONE, ALL, NONE = (1, 1, 1), (1, -1, 1), (0, 0, 0)
READ, WRITE = "readonly fast", "write denyoom fast"

for name, arity, flags, keys, group, since, summary in (
    ("GET", 2, READ, ONE, "string", "1.0.0", "The string at a key."),
    ("SET", -3, "write denyoom", ONE, "string", "1.0.0", "Stores a string, whatever the key held."),
    ("SETNX", 3, WRITE, ONE, "string", "1.0.0", "Stores a string if there is no such key."),
    ("SETEX", 4, "write denyoom", ONE, "string", "2.0.0", "Stores a string for so many seconds."),
    ("PSETEX", 4, "write denyoom", ONE, "string", "2.6.0", "Stores a string for so many milliseconds."),
    ("GETEX", -2, "write fast", ONE, "string", "6.2.0", "The string at a key, whose time it may change."),
    ("GETDEL", 2, "write fast", ONE, "string", "6.2.0", "The string at a key, which is deleted."),
    ("GETSET", 3, WRITE, ONE, "string", "1.0.0", "Stores a string and gives the one before."),
    ("MGET", -2, READ, ALL, "string", "1.0.0", "The strings at several keys."),
    ("MSET", -3, "write denyoom", (1, -1, 2), "string", "1.0.1", "Stores several strings at once."),
    ("MSETNX", -3, "write denyoom", (1, -1, 2), "string", "1.0.1", "The same if none of the keys is there."),
    ("APPEND", 3, WRITE, ONE, "string", "2.0.0", "Makes a string longer."),
    ("STRLEN", 2, READ, ONE, "string", "2.2.0", "How long a string is."),
    ("GETRANGE", 4, "readonly", ONE, "string", "2.4.0", "A part of a string."),
    ("SETRANGE", 4, "write denyoom", ONE, "string", "2.2.0", "Overwrites a part of a string."),
    ("INCR", 2, WRITE, ONE, "string", "1.0.0", "Adds one to a number."),
    ("DECR", 2, WRITE, ONE, "string", "1.0.0", "Takes one from a number."),
    ("INCRBY", 3, WRITE, ONE, "string", "1.0.0", "Adds to a number."),
    ("DECRBY", 3, WRITE, ONE, "string", "1.0.0", "Subtracts from a number."),
    ("INCRBYFLOAT", 3, WRITE, ONE, "string", "2.6.0", "Adds to a number with a fraction."),
    ("DEL", -2, "write", ALL, "generic", "1.0.0", "Deletes keys."),
    ("UNLINK", -2, "write fast", ALL, "generic", "4.0.0", "Deletes keys; memory is given back later."),
    ("EXISTS", -2, READ, ALL, "generic", "1.0.0", "How many of these keys there are."),
    ("TOUCH", -2, READ, ALL, "generic", "3.2.1", "The same, and they count as used."),
    ("TYPE", 2, READ, ONE, "generic", "1.0.0", "What a key holds."),
    ("EXPIRE", -3, "write fast", ONE, "generic", "1.0.0", "Lets a key expire in so many seconds."),
    ("PEXPIRE", -3, "write fast", ONE, "generic", "2.6.0", "Lets a key expire in so many milliseconds."),
    ("EXPIREAT", -3, "write fast", ONE, "generic", "1.2.0", "Lets a key expire at a Unix time in seconds."),
    ("PEXPIREAT", -3, "write fast", ONE, "generic", "2.6.0", "The same in milliseconds."),
    ("TTL", 2, READ, ONE, "generic", "1.0.0", "How many seconds a key has left."),
    ("PTTL", 2, READ, ONE, "generic", "2.6.0", "How many milliseconds a key has left."),
    ("EXPIRETIME", 2, READ, ONE, "generic", "7.0.0", "The Unix time in seconds at which a key expires."),
    ("PEXPIRETIME", 2, READ, ONE, "generic", "7.0.0", "The same in milliseconds."),
    ("PERSIST", 2, "write fast", ONE, "generic", "2.2.0", "Lets a key live for good."),
    ("PING", -1, "fast", NONE, "connection", "1.0.0", "Answers, to show that the server is there."),
    ("ECHO", 2, "fast loading stale", NONE, "connection", "1.0.0", "Gives back what it got."),
):
    native(name, arity=arity, flags=flags, keys=keys, group=group, summary=summary, since=since)
