"""The principal of a session: proved by secret, certificate or the kernel's report of the uid. It is never
taken from a field that the peer wrote."""

from __future__ import annotations

import asyncio
import os
import socket
import time
from pathlib import Path
from typing import Any

import pytest
from support.certificates import Authority
from support.other_user import NOBODY, run_as
from support.rdma.link import wait_until

import verbena
from verbena import errors
from verbena.transport import Principal, Request, Settings
from verbena.transport.handshake import peer_uid
from verbena.transport.handshake.peer_uid import PeerProcess, peer_process
from verbena.transport.handshake.principal import principal_of
from verbena.transport.handshake.tls import client_context, server_context

SECRET = "correct horse battery staple"
WIRES = ["shm", "iwarp"]
OWN = os.geteuid()


def echo(request: Request) -> bytes:
    return request.payload


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("certificates"))


# What is proved


@pytest.mark.parametrize("wire", WIRES)
async def test_a_peer_of_the_same_user_is_proved_by_its_uid(wire: str) -> None:
    """The status that peers may request names the principal."""
    async with (
        await verbena.listen("127.0.0.1:0", handlers={"echo": echo}) as listener,
        await verbena.connect(listener.address, wire=wire),
        await verbena.connect(listener.address, wire=wire) as session,
    ):
        assert {one.principal for one in listener.sessions} == {Principal("uid", uid=OWN)}
        assert f'"principal": "uid:{OWN}"' in (await session.call("verbena.status")).decode()


async def test_a_secret_and_a_uid_are_both_kept() -> None:
    async with (
        await verbena.listen("127.0.0.1:0", secret=SECRET) as listener,
        await verbena.connect(listener.address, secret=SECRET) as session,
    ):
        (served,) = listener.sessions
        assert served.principal == Principal("secret", uid=OWN, has_secret=True)
        assert served.principal.names == ("secret", f"uid:{OWN}")
        assert session.principal == Principal("secret", has_secret=True)


async def test_a_certificate_gives_the_principal_its_name(authority: Authority) -> None:
    pair, client = authority.issue("server"), authority.issue("web", names="DNS:web.example")
    server = server_context(certificate=pair.certificate, key=pair.key, ca=authority.ca)
    context = client_context(ca=authority.ca, certificate=client.certificate, key=client.key)
    async with (
        await verbena.listen("127.0.0.1:0", tls=server) as listener,
        await verbena.connect(listener.address, tls=context),
    ):
        (served,) = listener.sessions
        assert served.principal.method == "certificate"
        assert served.principal.names == ("certificate:DNS:web.example", f"uid:{OWN}")


def test_a_uid_proves_nothing_unless_it_is_allowed() -> None:
    """Root and the node's own user always are."""

    def method(uid: int, *allowed: int) -> str:
        return principal_of(
            certificate="", has_secret=False, process=PeerProcess(uid), allowed_uids=allowed
        ).method

    assert [method(0), method(OWN), method(12345), method(12345, 12345)] == ["uid", "uid", "none", "uid"]
    unproved = principal_of(certificate="", has_secret=False, process=PeerProcess(12345))
    assert unproved.names == ()
    assert str(unproved) == "unproved, uid 12345"
    assert principal_of(certificate="", has_secret=False, process=None).method == "none"


# The kernel's report


@pytest.fixture(params=["127.0.0.1", "::1", "::ffff:127.0.0.1"])
def connected(request: pytest.FixtureRequest) -> Any:
    family = socket.AF_INET6 if ":" in request.param else socket.AF_INET
    with socket.socket(family) as listening:
        if family == socket.AF_INET6:
            listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        listening.bind(("::" if "ffff" in request.param else request.param, 0))
        listening.listen()
        client = socket.create_connection((request.param.removeprefix("::ffff:"), listening.getsockname()[1]))
        accepted, _ = listening.accept()
        with client, accepted:
            yield client, accepted


def test_the_kernel_reports_the_uid_of_a_local_peer(
    connected: tuple[socket.socket, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    """By netlink; from /proc/net where netlink is not allowed; not at all where neither is."""
    _, accepted = connected
    assert peer_process(accepted) == PeerProcess(OWN)

    def denied(*ends: object) -> int:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(peer_uid, "_ask_netlink", denied)
    assert peer_process(accepted) == PeerProcess(OWN)
    monkeypatch.setattr(peer_uid, "_read_proc", lambda *ends: None)
    assert peer_process(accepted) is None


def test_a_closed_socket_is_nobodys(connected: tuple[socket.socket, socket.socket]) -> None:
    """The kernel reports uid 0 for a socket that its process has closed: that must not count as root."""
    client, accepted = connected
    client.close()
    deadline = time.monotonic() + 5
    while peer_process(accepted) is not None:
        assert time.monotonic() < deadline
    ends = accepted.getpeername()[:2], accepted.getsockname()[:2]
    assert peer_uid._read_proc(*ends) is None


def test_a_unix_socket_gives_the_pid_too() -> None:
    one, other = socket.socketpair()
    with one, other:
        assert peer_process(one) == PeerProcess(OWN, os.getpid())


def test_a_peer_on_another_host_has_no_uid() -> None:
    assert not peer_uid.is_local("10.0.0.1", "10.0.0.2")
    assert peer_uid.is_local("10.0.0.1", "10.0.0.1")
    assert peer_uid.is_local("::ffff:10.0.0.1", "::ffff:127.0.0.1")


# Admission

CONNECT = """
async def connect():
    session = await verbena.connect(arguments["address"], wire=arguments.get("wire"), config=Settings())
    async with session:
        answers = {"echo": (await session.call("echo", b"hello")).decode()}
        try:
            await session.call("verbena.status")
            answers["status"] = "answered"
        except errors.RemoteError as error:
            answers["status"] = str(error)
        return answers
result = outcome(connect)
"""


async def test_another_user_is_refused_without_a_secret() -> None:
    """The error names both users and the remedies; the refusal is counted."""
    async with verbena.listen("127.0.0.1:0", handlers={"echo": echo}) as listener:
        refused = await asyncio.to_thread(run_as, CONNECT, address=listener.address)
        assert refused["refused"] == "credentials"
        for text in (f"uid {NOBODY}", f"uid {OWN}", "session.secret_file", "session.allow_uids"):
            assert text in refused["detail"]
        assert listener.refused == {"credentials": 1}
        assert listener.sessions == []


async def test_allow_uids_admits_another_user() -> None:
    settings = Settings(allow_uids=(NOBODY,))
    async with verbena.listen("127.0.0.1:0", handlers={"echo": echo}, config=settings) as listener:
        answers = await asyncio.to_thread(run_as, CONNECT, address=listener.address, wire="iwarp")
        assert answers == {"echo": "hello", "status": "answered"}


async def test_an_unproved_peer_gets_only_the_programs_own_handlers() -> None:
    """A listener that admits unproved peers: its handlers decide; the status of the node is refused."""
    seen: list[Principal] = []

    def handler(request: Request) -> bytes:
        seen.append(request.session.principal)
        return request.payload

    async with verbena.listen("127.0.0.1:0", handlers={"echo": handler}, admit_unproved=True) as listener:
        answers = await asyncio.to_thread(run_as, CONNECT, address=listener.address, wire="iwarp")
    assert answers["echo"] == "hello"
    assert "unproved" in answers["status"]
    assert seen == [Principal("none", uid=NOBODY)]


@pytest.mark.parametrize("secret", [b"", b"another secret, of enough bytes"])
async def test_no_secret_and_a_wrong_one_are_refused(secret: bytes) -> None:
    async with verbena.listen("127.0.0.1:0", handlers={"echo": echo}, secret=SECRET) as listener:
        with pytest.raises(errors.DeniedError):
            await verbena.connect(listener.address, secret=secret)
        assert listener.sessions == []


async def test_a_replayed_hello_is_refused() -> None:
    """The frames of a recorded handshake do not open another session: the server's nonce has changed."""
    async with verbena.listen("127.0.0.1:0", secret=SECRET) as listener:
        host, _, port = listener.address.rpartition(":")
        recorded: list[bytes] = []

        async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            up_reader, up_writer = await asyncio.open_connection(host, int(port))

            async def pump() -> None:
                while data := await up_reader.read(65536):
                    writer.write(data)
                writer.close()

            pumping = asyncio.ensure_future(pump())
            while data := await reader.read(65536):
                recorded.append(data)
                up_writer.write(data)
            up_writer.close()
            await pumping

        server = await asyncio.start_server(relay, "127.0.0.1", 0)
        where = "{}:{}".format(*server.sockets[0].getsockname())
        with pytest.raises(errors.VerbenaError):  # the wires' ports are not the relay's, which is no matter
            await verbena.connect(where, secret=SECRET, wire="quic")
        server.close()
        assert len(recorded) >= 2
        before = dict(listener.refused)
        reader, writer = await asyncio.open_connection(host, int(port))
        for data in recorded:
            writer.write(data)
        answer = await asyncio.wait_for(reader.read(), 10)
        writer.close()
        assert b'"code":"credentials"' in answer
        assert b"session_id" not in answer
        counted = before.get("credentials", 0) + 1  # by the control thread, after its answer
        wait_until(lambda: listener.refused.get("credentials", 0) == counted, "the refusal to be counted")


def test_a_file_node_gives_another_user_no_file(tmp_path: Path) -> None:
    """A file that only its owner may read stays so, though the node of its owner could read it."""
    from verbena.integrations.file_server import FileServer

    (tmp_path / "private").write_text("secret")
    (tmp_path / "private").chmod(0o600)
    body = """
async def read():
    session = await verbena.connect(arguments["address"], config=Settings())
    async with session:
        request = file_messages.pack({"do": "read", "path": "private", "start": 0, "length": 6})
        return (await session.call(file_messages.CALL, request)).decode("latin-1")
result = outcome(read)
"""

    async def serve() -> tuple[Any, Any]:
        server = FileServer(tmp_path)
        async with verbena.listen("127.0.0.1:0", handlers=server.handlers) as listener:
            others = await asyncio.to_thread(run_as, body, address=listener.address)
            own = await asyncio.to_thread(run_as, body, address=listener.address, uid=OWN)
        return others, own

    others, own = asyncio.run(serve())
    assert others["refused"] == "credentials"
    assert own.endswith("secret")
