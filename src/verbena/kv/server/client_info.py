"""A client as CLIENT LIST shows it."""

from __future__ import annotations

from verbena.kv.server.clients import Client


def kind(client: Client) -> str:
    """Returns the class of a client, as in client-output-buffer-limit and CLIENT KILL TYPE."""
    if client.is_replica:
        return "replica"
    return "pubsub" if client.is_subscriber else "normal"


def flags(client: Client) -> str:
    options = client.tracking
    found = [
        ("S", client.is_replica),
        ("O", client.monitors),
        ("P", client.is_subscriber),
        ("x", client.queue is not None),
        ("b", client.native.blocked),
        ("t", options is not None),
        ("R", options is not None and options.broken),
        ("B", options is not None and options.broadcasts),
        ("d", client.watch_failed),
        ("e", client.no_evict),
        ("T", client.no_touch),
        ("U", client.native.local_address.startswith("/")),
    ]
    return "".join(letter for letter, there in found if there) or "N"


def describe(client: Client, now_ms: int) -> str:
    native = client.native
    queued = client.queue or []
    queued_bytes = sum(len(word) for argv in queued for word in argv)
    pending_in, pending_out = native.pending_in, native.pending_out
    fields = {
        "id": client.id,
        "addr": native.address,
        "laddr": native.local_address,
        "fd": native.fileno,
        "name": native.name,
        "age": max(0, now_ms - native.created_ms) // 1000,
        "idle": max(0, now_ms - native.last_ms) // 1000,
        "flags": flags(client),
        "db": native.database,
        "sub": len(client.channels),
        "psub": len(client.patterns),
        "ssub": len(client.shard_channels),
        "multi": len(queued) if client.queue is not None else -1,
        "watch": int(client.watching),
        "qbuf": pending_in,
        "qbuf-free": 0,
        "argv-mem": 0,
        "multi-mem": queued_bytes,
        "rbs": 0,
        "rbp": 0,
        "obl": pending_out,
        "oll": 0,
        "omem": pending_out,
        "tot-mem": pending_in + pending_out + queued_bytes,
        "events": "rw" if pending_out else "r",
        "cmd": native.last_command.lower().replace(" ", "|"),
        "user": client.user.name,
        "redir": client.tracking.redirect if client.tracking is not None else -1,
        "resp": native.version,
        "lib-name": client.library_name,
        "lib-ver": client.library_version,
        "tot-net-in": native.bytes_in,
        "tot-net-out": native.bytes_out,
        "tot-cmds": native.commands,
    }
    return " ".join(f"{name}={value}" for name, value in fields.items())
