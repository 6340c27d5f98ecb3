"""What a hostile process of the same user can do, the limits that the kernel sets included: each statement of
docs/reference/hostile-processes.md about it is seen here."""

from __future__ import annotations

import mmap
import os
import re
import secrets
from pathlib import Path

import pytest
from support.kv.kv_store import running
from support.security.processes import Victim, first_answer, needs_root, tell, victim
from support.security.users import USER
from support.security.victim import READABLE, SECRET, WRITABLE

from verbena import kv

HELLO = 1
TEXTS = [READABLE.decode(), WRITABLE.decode()]
OF_USER = {"uid": USER, "texts": TEXTS}


def test_a_link_without_a_session_gets_a_greeting_only() -> None:
    """The socket of shm is open to processes of the same user: they learn that a node is there."""
    with victim() as node:
        assert node.attacked("connect_to_shm") == {"kinds": [HELLO], "descriptors": 0}


def test_without_a_secret_the_uid_is_the_proof() -> None:
    """A process of the same user may open a session, unless the node has a secret."""
    for secret, wire, expected in (
        ("", "shm", {"wire": "shm", "found": [READABLE.decode()]}),
        ("", "iwarp", {"wire": "iwarp", "found": [READABLE.decode()]}),
        ("correct horse battery staple", "shm", {"refused": "credentials"}),
        ("correct horse battery staple", "iwarp", {"refused": "credentials"}),
    ):
        with victim(secret=secret) as node:
            assert node.attacked("use", wire=wire, regions=node.report["regions"]) == expected


# Limits of the kernel


def test_the_kernel_may_let_it_trace_the_node() -> None:
    """It reads and writes the private memory, on whatever wire."""
    needs_root()
    with victim(uid=USER) as node:
        done = node.attacked("trace", at=node.report["private_at"], **OF_USER)
        if "refused" in done:
            pytest.skip(f"the kernel forbids it: {done['refused']} (Yama)")
        assert done == {"read": SECRET[:8].decode()}
        assert node.ask()["private"] == "ATTACKED" + SECRET[8:].decode()


def test_the_kernel_lets_it_open_the_nodes_descriptors() -> None:
    """Through /proc/PID/fd it reads all shared memory, and writes what is lent for writing; what is lent for
    reading it cannot write."""
    needs_root()
    with victim(uid=USER) as node, node.attacker("hold", uid=USER) as session:
        first_answer(session)  # its session has memory that it may write
        node.ask()
        done = node.attacked("open_descriptors", **OF_USER)
        tell(session, [])
        assert done == {"read": [READABLE.decode()], "written": [WRITABLE.decode()]}
        assert node.ask()["memory"] == [READABLE.decode(), WRITABLE.decode().upper()]


def test_it_can_end_the_node() -> None:
    needs_root()
    with victim(uid=USER) as node:
        assert node.attacked("kill", **OF_USER) == {}
        assert node.process.wait(20) == -9


def test_it_can_read_the_files_of_its_user(tmp_path: Path) -> None:
    """Files of mode 0600, such as the log and the snapshots of a store."""
    content = secrets.token_hex(16)
    with running("--kv-persistence-dir", str(tmp_path / "data"), "--kv-persistence-fsync", "always") as store:
        with store.client() as client:
            client.set("key", content)
        files = [file for file in (tmp_path / "data").rglob("*") if file.is_file()]
        assert {file.stat().st_mode & 0o777 for file in files} == {0o600}
        with victim() as node:
            found = [node.attacked("read_file", path=str(file)).get("read", "") for file in files]
        assert any(content in text for text in found)


# A session of restricted rights


def test_a_session_sees_which_keys_exist_but_maps_no_memory_of_others() -> None:
    """The table of keys is mapped with the first link. What it cannot resolve, it does not map either."""
    needs_root()
    with victim() as node, node.attacker("keep", texts=[]) as other:
        first_answer(other)
        assert tell(other, node.ask()["regions"])["kept"] >= 2
        assert node.attacked("keys")["keys"] > 0
        with node.attacker("keep", texts=[WRITABLE.decode()]) as thief:
            first_answer(thief)
            assert tell(thief, node.report["regions"][:1])["kept"] == 1
            assert tell(thief, "search") == {"read": [], "written": [], "again": ["read"]}
        tell(other, "end")


def test_a_session_is_refused_the_regions_of_others() -> None:
    for wire in ("shm", "iwarp"):
        with victim() as node, node.attacker("hold", wire=wire) as other:
            first_answer(other)
            done = node.attacked("use", wire=wire, regions=node.ask()["regions"])
            assert done == {"wire": wire, "found": [READABLE.decode(), "region_denied"]}
            tell(other, "end")


# After the rights have ended


def _keep_and_revoke(node: Victim) -> dict[str, list[str]]:
    later = READABLE.decode().upper()
    with node.attacker("keep", texts=[later, WRITABLE.decode()]) as process:
        first_answer(process)
        tell(process, node.ask()["regions"])
        node.ask("revoke")
        found: dict[str, list[str]] = tell(process, "search")
        return found


def test_a_kept_mapping_of_readable_memory_shows_later_values() -> None:
    """The kernel cannot take a mapping back. The keys are refused, and the memory cannot be written."""
    needs_root()
    with victim() as node:
        found = _keep_and_revoke(node)
        assert found["read"] == [READABLE.decode().upper()]
        assert set(found["again"]) <= {"region_denied", "REM_ACCESS_ERR"}
        assert node.ask()["memory"][0] == READABLE.decode().upper()


def test_a_kept_mapping_of_memory_for_writing_stays_writable() -> None:
    """It was lent to that session alone; a write after the revocation reaches that memory only."""
    needs_root()
    with victim() as node:
        found = _keep_and_revoke(node)
        assert found["written"] == [WRITABLE.decode()]
        assert node.ask()["memory"] == [READABLE.decode().upper(), WRITABLE.decode().upper()]


def test_a_user_whose_rights_ended_reads_the_store_until_it_restarts() -> None:
    """With the mapping that it made while it could read all keys. It never writes to the store's memory."""
    needs_root()
    later, after = (f"value-{secrets.token_hex(16)}" for _ in range(2))
    with running("--session-listen-port", "0") as store, store.client() as admin:
        address = re.search(r"sessions +(\S+)", store.banner)
        assert address is not None
        admin.execute_command("ACL", "SETUSER", "alice", "on", ">secret", "~*", "&*", "+@all")
        admin.set("key", "value")
        with kv.Client(address[1], wire="shm", user="alice", password="secret") as client:
            assert [client.get("key") for _ in range(3)] == [b"value"] * 3
            assert client.stats().one_sided > 0
            kept = []
            for line in Path("/proc/self/maps").read_text().splitlines():
                if match := re.match(r"(\S+) r--s .*/memfd:verbena-arena", line):
                    file = os.open(f"/proc/self/map_files/{match[1]}", os.O_RDWR)
                    kept.append(mmap.mmap(file, 0, mmap.MAP_SHARED, mmap.PROT_READ))
                    with pytest.raises(PermissionError):
                        mmap.mmap(file, 0, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE)
                    os.close(file)
            admin.execute_command("ACL", "SETUSER", "alice", "resetkeys")
            with pytest.raises(kv.CommandError, match="NOPERM"):
                client.get("key")
            admin.set("key", later)
            assert any(memory.find(later.encode()) >= 0 for memory in kept)
    with running() as store, store.client() as admin:
        admin.set("key", after)
        assert all(memory.find(after.encode()) < 0 for memory in kept)
    for memory in kept:
        memory.close()
