"""The entry points of all services as data, for clients without a proof, with a wrong one and with the right
one."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import verbena
from support.kv import membership
from support.kv.cluster import cluster
from support.kv.frontends import FRONTENDS, serving
from support.services import SERVICES, running
from verbena import far, kv
from verbena.errors import DeniedError
from verbena.integrations import file_messages
from verbena.shards.envelope import Flag, Kind
from verbena.transport import Session

SECRET, WRONG = "correct horse battery staple", "another secret of enough bytes"
PROOFS = {"no proof": "", "wrong secret": WRONG}

# Connects with this secret. Returns what the service answers, or raises its refusal.
TrySecret = Callable[[str], Any]


@dataclass(frozen=True)
class EntryPoint:
    """`serve` starts the service in a folder and yields its try_secret(). `answer`: what the right secret
    gets."""

    name: str
    serve: Callable[[Path], contextlib.AbstractContextManager[TrySecret]]
    answer: object = True


# Services with a port for sessions, and its address in what they print.
SESSION_PORTS = {
    "store": r"sessions +(\S+)",
    "registry": r"nodes +(\S+)",
    "memory-node": r"memory node at (\S+):",
    "file-node": r"verbena://(\S+)/:",
    "cluster": r"sessions +(\S+)",
}


@contextlib.contextmanager
def session_port(name: str, folder: Path, *options: str) -> Iterator[str]:
    """A service that support.services runs, with a secret and these options; yields the address of its
    session port."""
    service = SERVICES[name]
    words = (service.arguments, "--session-secret-file {folder}/secret", *options)
    with_secret = replace(service, arguments=" ".join(words))
    place = folder / name
    place.mkdir()
    (place / "secret").write_text(SECRET)
    (place / "secret").chmod(0o600)
    with running(with_secret, place) as (_, banner):
        found = re.search(SESSION_PORTS[name], banner, re.M)
        assert found is not None, banner
        yield found[1]


def _sessions_of(name: str, use: Callable[[Session], Any]) -> Callable[..., Any]:
    @contextlib.contextmanager
    def serve(folder: Path) -> Iterator[TrySecret]:
        with session_port(name, folder) as address:

            def try_secret(secret: str) -> Any:
                with verbena.sync.connect(address, secret=secret) as session:
                    return use(session)

            yield try_secret

    return serve


def _status(session: Session) -> bool:
    return b'"sessions"' in session.sync.call("verbena.status")


def _ping(session: Session) -> bool:
    with kv.Client(session) as client:
        return client.execute("PING") == "PONG"


def _allocate(session: Session) -> bool:
    with far.zeros(session, (10,), "int64") as array:
        return len(array) == 10


def _store_file(session: Session) -> bool:
    found = session.sync.call(file_messages.CALL, file_messages.pack({"do": "info", "path": ""}))
    return len(found) > 0


def _frontend(name: str) -> Callable[[Path], contextlib.AbstractContextManager[TrySecret]]:
    @contextlib.contextmanager
    def serve(folder: Path) -> Iterator[TrySecret]:
        with serving(folder) as served, FRONTENDS["unix"].connect(served) as admin:
            assert admin("SET", "a", "1") == "OK"
            assert admin("CONFIG", "SET", "requirepass", SECRET) == "OK"

            def try_secret(secret: str) -> Any:
                with FRONTENDS[name].connect(served) as client:
                    refusal = client("AUTH", secret) if secret else "OK"
                    reply = client("GET", "a")
                    if isinstance(reply, str) and reply.startswith("NOAUTH"):
                        raise DeniedError(f"{refusal} {reply}")
                    return reply

            yield try_secret

    return serve


@contextlib.contextmanager
def _members(folder: Path) -> Iterator[TrySecret]:
    """Sessions about the cluster's map and its slots: the proof is the key of a member."""
    with cluster(folder, 2, keep=False) as nodes:

        async def gossip(secret: str) -> bool:
            keys = await membership.keys_of(nodes.store)
            source, target = nodes[1].id, nodes[0].id
            async with verbena.connect(f"127.0.0.1:{nodes[0].sessions}") as session:
                if secret:
                    key = keys[source] if secret == SECRET else secret.encode()[:30].ljust(32)
                    await membership.prove(session, source, target, keys, key=key)
                answer = await membership.send(session, membership.message(Kind.OWN, source, target))
                if answer.flags & Flag.REFUSED and b"has not proved" in answer.payload:
                    raise DeniedError(answer.payload.decode())
                return True

        yield lambda secret: asyncio.run(gossip(secret))


@contextlib.contextmanager
def _named_region(folder: Path) -> Iterator[TrySecret]:
    with verbena.sync.listen("127.0.0.1:0", secret=SECRET) as listener:
        listener.publish("text", b"published", allow={"secret"})

        def try_secret(secret: str) -> Any:
            with verbena.sync.connect(listener.address, secret=secret) as session:
                return session.pull("text")

        yield try_secret


ENTRY_POINTS = {
    row.name: row
    for row in (
        EntryPoint("store: sessions", _sessions_of("store", _ping)),
        EntryPoint("store: TCP", _frontend("tcp"), b"1"),
        EntryPoint("store: TLS", _frontend("tls"), b"1"),
        EntryPoint("store: Unix socket", _frontend("unix"), b"1"),
        EntryPoint("store: Valkey over RDMA", _frontend("valkey-rdma"), b"1"),
        EntryPoint("registry: nodes", _sessions_of("registry", _status)),
        EntryPoint("memory node", _sessions_of("memory-node", _allocate)),
        EntryPoint("file node", _sessions_of("file-node", _store_file)),
        EntryPoint("cluster: sessions", _sessions_of("cluster", _ping)),
        EntryPoint("cluster: members", _members),
        EntryPoint("named region", _named_region, b"published"),
    )
}
