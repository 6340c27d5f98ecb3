"""One-sided GETs end with the right to read every key: the store revokes the memory lease before it replies
to the command that changed the right."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator

import pytest
import redis
from support.kv.store import Store, serving_store

from verbena import errors
from verbena._native.kv import LAYOUT_METHOD
from verbena.errors import VerbenaError
from verbena.kv import Client, CommandError

RESOLVE = 2
HEADER_BYTES = 32  # of the layout: then the roots, and the chunks with their region keys
READS = ("get", "scan", "select")  # rights to read the values, the names of keys, every database
ALICE = ["on", ">secret", "~*", "&*", "+@all"]


@pytest.fixture
def store() -> Iterator[Store]:
    with serving_store() as serving:
        yield serving


@pytest.fixture
def admin(store: Store) -> Iterator[redis.Redis]:
    with redis.Redis(port=store.port) as client:
        client.execute_command("ACL", "SETUSER", "alice", *ALICE)
        client.set("key", "value")
        yield client


@pytest.fixture(params=["shm", "iwarp"])
def wire(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def alice(store: Store, wire: str) -> Client:
    return one_sided(Client(store.sessions, wire=wire, user="alice", password="secret"))


def one_sided(client: Client) -> Client:
    """The first GET of a value that was stored before anybody read one-sided is a message."""
    assert [client.get("key") for _ in range(2)] == [b"value"] * 2
    assert client.stats().one_sided >= 1
    return client


def chunk_keys(client: Client) -> list[int]:
    """The region keys in the layout that the client was given."""
    layout = client.session.sync.call(LAYOUT_METHOD, client._stream.number.to_bytes(4, "little"))
    _, databases, chunks = struct.unpack_from("<III", layout)
    at = len(layout) - 16 * chunks
    assert databases
    return [struct.unpack_from("<Q", layout, at + 16 * i)[0] for i in range(chunks)]


def may_resolve(client: Client, key: int) -> bool:
    try:
        client.session._native.call(RESOLVE, struct.pack("<Q", key), 5.0)
    except errors.DeniedError:
        return False
    return True


REVOCATIONS: dict[str, Callable[[redis.Redis, Client], object]] = {
    "resetkeys": lambda admin, _: admin.execute_command("ACL", "SETUSER", "alice", "resetkeys"),
    "fewer keys": lambda admin, _: admin.execute_command("ACL", "SETUSER", "alice", "resetkeys", "~public:*"),
    "no GET": lambda admin, _: admin.execute_command("ACL", "SETUSER", "alice", "-get"),
    "no SCAN": lambda admin, _: admin.execute_command("ACL", "SETUSER", "alice", "-scan"),
    "no SELECT": lambda admin, _: admin.execute_command("ACL", "SETUSER", "alice", "-select"),
    "off": lambda admin, _: admin.execute_command("ACL", "SETUSER", "alice", "off"),
    "resetpass": lambda admin, _: admin.execute_command("ACL", "SETUSER", "alice", "resetpass"),
    "DELUSER": lambda admin, _: admin.execute_command("ACL", "DELUSER", "alice"),
    "CLIENT KILL USER": lambda admin, _: admin.execute_command("CLIENT", "KILL", "USER", "alice"),
}


@pytest.mark.parametrize("event", REVOCATIONS)
def test_a_lease_ends_with_the_right_to_read_every_key(
    store: Store, admin: redis.Redis, wire: str, event: str
) -> None:
    """When the reply to the command arrives, no later GET is one-sided, and the layout that the client has
    saved is worthless."""
    with alice(store, wire) as client:
        keys = chunk_keys(client)
        assert all(may_resolve(client, key) for key in keys)
        before = client.stats().one_sided
        REVOCATIONS[event](admin, client)
        admin.set("key", "changed")
        assert not any(may_resolve(client, key) for key in keys)
        try:
            found = client.get("key")
        except (CommandError, VerbenaError):
            found = None
        assert client.stats().one_sided == before
        if event in ("off", "resetpass", "no SCAN", "no SELECT"):  # as in Redis, GET is still allowed
            assert found == b"changed"
        else:
            assert found is None


@pytest.mark.parametrize("missing", ["get", "scan", "select"])
def test_the_memory_needs_the_rights_to_all_that_it_contains(
    store: Store, admin: redis.Redis, wire: str, missing: str
) -> None:
    """It contains the values, the names of the keys and every database."""
    rules = ["resetkeys", "~*", "-@all", "+ping", "+set", *(f"+{name}" for name in READS if name != missing)]
    admin.execute_command("ACL", "SETUSER", "alice", *rules)
    with Client(store.sessions, wire=wire, user="alice", password="secret") as client:
        client.set("key", "value")
        layout = client.session.sync.call(LAYOUT_METHOD, client._stream.number.to_bytes(4, "little"))
        assert layout == b""
        admin.execute_command("ACL", "SETUSER", "alice", f"+{missing}")
        assert chunk_keys(client)


def test_a_password_ends_the_leases_of_clients_without_one(
    store: Store, admin: redis.Redis, wire: str
) -> None:
    with one_sided(Client(store.sessions, wire=wire)) as client:
        (key, *_) = chunk_keys(client)
        admin.config_set("requirepass", "secret")
        assert not may_resolve(client, key)
        client.execute("AUTH", "secret")
        assert chunk_keys(client)
        assert may_resolve(client, key)


def test_a_saved_layout_is_worthless_to_another_session(store: Store, admin: redis.Redis, wire: str) -> None:
    """Even while the session that saved it still has its memory lease."""
    admin.execute_command("ACL", "SETUSER", "bob", "on", ">secret", "~bob:*", "+@all")
    with alice(store, wire) as client:
        keys = chunk_keys(client)
        with Client(store.sessions, wire=wire, user="bob", password="secret") as bob:
            assert not any(may_resolve(bob, key) for key in keys)
            with pytest.raises(CommandError, match="NOPERM"):
                bob.get("key")
            assert bob.stats().one_sided == 0
        with Client(store.sessions, wire=wire, one_sided=False) as other:
            assert not any(may_resolve(other, key) for key in keys)
        assert all(may_resolve(client, key) for key in keys)


def test_a_lease_of_one_stream_does_not_outlive_it(store: Store, admin: redis.Redis, wire: str) -> None:
    """Two clients share a session: the memory lease ends with the last of them that may read every key."""
    with alice(store, wire) as first:
        keys = chunk_keys(first)
        second = Client(first.session, user="alice", password="secret")
        assert second.get("key") == b"value"
        second.close()
        assert may_resolve(first, keys[0])
        first.execute("RESET")
        admin.execute_command("ACL", "SETUSER", "default", "resetkeys", "~public:*")
        assert not may_resolve(first, keys[0])


def test_a_right_that_returns_brings_one_sided_reads_back(
    store: Store, admin: redis.Redis, wire: str
) -> None:
    with alice(store, wire) as client:
        admin.execute_command("ACL", "SETUSER", "alice", "resetkeys")
        with pytest.raises(CommandError, match="NOPERM"):
            client.get("key")
        admin.execute_command("ACL", "SETUSER", "alice", "~*")
        for _ in range(200):
            assert client.get("key") == b"value"
        assert client.stats().one_sided > 1


def test_revoking_one_user_does_not_disturb_others(store: Store, admin: redis.Redis, wire: str) -> None:
    with alice(store, wire) as client, one_sided(Client(store.sessions, wire=wire)) as other:
        by_message = other.stats().by_message
        links = other.session._native.links
        admin.execute_command("ACL", "SETUSER", "alice", "resetkeys")
        with pytest.raises(CommandError, match="NOPERM"):
            client.get("key")
        for _ in range(100):
            assert other.get("key") == b"value"
        assert (other.stats().by_message, other.session._native.links) == (by_message, links)
