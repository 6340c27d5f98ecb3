"""Captured messages: a file that Wireshark's own tools read, complete and in order."""

from __future__ import annotations

import json
import shutil
import stat
import struct
import subprocess
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import verbena
from verbena import config, errors
from verbena.transport import Listener, Request, Settings
from verbena.transport.observe.capture import OPERATION, PSEUDO_HEADER

SECRET = b"correct horse battery staple"
SETTINGS = Settings(recv_buffer_pool_size=256, secret=SECRET, fragment_bytes=256 << 10)
MESSAGE = struct.Struct("<BBHIQQQII")  # src/native/transport/session/message_layout.h
REQUEST, REPLY = 1, 2
MESSAGES = 0  # the kind of a packet


def echo(request: Request) -> bytes:
    return request.payload


@pytest.fixture
async def listener() -> AsyncIterator[Listener]:
    async with verbena.listen("127.0.0.1:0", handlers={"echo": echo}, config=SETTINGS) as listening:
        yield listening


def blocks(path: Path) -> list[tuple[int, bytes]]:
    """Kind and body of each block. Checks that both lengths of a block agree."""
    data, found = path.read_bytes(), []
    while data:
        kind, length = struct.unpack_from("<II", data)
        assert length % 4 == 0
        assert struct.unpack_from("<I", data, length - 4) == (length,)
        found.append((kind, data[8 : length - 4]))
        data = data[length:]
    return found


def packets(path: Path) -> list[tuple[int, int, str, Any, bytes, int]]:
    """Direction, session, wire, message header, payload, and length on the wire."""
    found = []
    for block, body in blocks(path):
        if block == 6:
            captured, original = struct.unpack_from("<II", body, 12)
            packet = body[20 : 20 + captured]
            version, direction, kind, _, length, session, wire = PSEUDO_HEADER.unpack_from(packet)
            assert version == 1
            if kind != MESSAGES:
                continue
            assert original == PSEUDO_HEADER.size + length
            header = MESSAGE.unpack_from(packet, PSEUDO_HEADER.size)
            payload = packet[PSEUDO_HEADER.size + MESSAGE.size :]
            found.append((direction, session, wire.rstrip(b"\0").decode(), header, payload, length))
    return found


def operations(path: Path) -> list[tuple[str, int, int, int, bytes]]:
    """Operation, remote address, status, length, and the captured part of the data."""
    found = []
    for block, body in blocks(path):
        if block == 6:
            captured, original = struct.unpack_from("<II", body, 12)
            packet = body[20 : 20 + captured]
            _, direction, kind, _, length, _, _ = PSEUDO_HEADER.unpack_from(packet)
            if kind != MESSAGES:
                address, _, status = OPERATION.unpack_from(packet, PSEUDO_HEADER.size)
                assert original == PSEUDO_HEADER.size + OPERATION.size + length
                assert direction == (1 if kind == 2 else 0)
                data = packet[PSEUDO_HEADER.size + OPERATION.size :]
                found.append(({1: "write", 2: "read"}[kind], address, status, length, data))
    return found


@pytest.mark.parametrize("wire", ["shm", "iwarp"])
async def test_one_sided_work_is_in_the_file(listener, tmp_path, wire):
    """Small and bulk operations, with address, status and the beginning of the data, at the end that posts
    them."""
    region = listener.node.allocate(1 << 20)
    pattern = bytes(range(256))
    path, theirs = tmp_path / "ours.pcapng", tmp_path / "theirs.pcapng"
    async with verbena.connect(listener.address, wire=wire, config=SETTINGS) as session:
        with session.node.capture(path), listener.node.capture(theirs):
            await session.write(region.remote[16:], b"small")
            assert await session.read(region.remote[16:21]) == b"small"
            await session.write(region.remote, pattern * 4096)
            await session.read_into(region.remote, bytearray(512 << 10))
        with session.node.capture(tmp_path / "headers.pcapng", headers_only=True):
            await session.write(region.remote, b"confidential")
    start = region.remote.addr
    done = operations(path)
    assert done[:2] == [("write", start + 16, 0, 5, b"small"), ("read", start + 16, 0, 5, b"small")]
    fragment = SETTINGS.fragment_bytes
    puts = [("write", start + at, 0, fragment, pattern) for at in range(0, 1 << 20, fragment)]
    gets = [("read", start + at, 0, fragment, pattern) for at in range(0, 512 << 10, fragment)]
    assert sorted(done[2:]) == sorted(puts + gets)
    assert operations(theirs) == []
    assert [one[3:] for one in operations(tmp_path / "headers.pcapng")] == [(12, b"")]


async def test_a_folder_in_the_configuration_gets_a_file_for_each_node(tmp_path):
    """session.capture_folder captures for programs that do not use the capture API."""
    text = f"[session]\ncapture_folder = '{tmp_path}'\ncapture_headers_only = true\n"
    loaded = config.loads(f"{text}[network.rdma]\nrecv_buffer_pool_size = 256\n")
    async with (
        await verbena.listen("127.0.0.1:0", handlers={"echo": echo}, config=loaded) as listener,
        await verbena.connect(listener.address, config=loaded) as session,
    ):
        await session.call("echo", b"confidential")
    files = list(tmp_path.glob("*.pcapng"))
    assert len(files) == 2
    for file in files:
        assert blocks(file)[-1][0] == 5
        assert len(packets(file)) > 1
        assert b"confidential" not in file.read_bytes()
    missing = config.loads(f"session.capture_folder = '{tmp_path / 'nowhere'}'")
    with pytest.raises(errors.VerbenaError, match="No such file"):
        await verbena.connect(listener.address, config=missing)


@pytest.mark.parametrize("wire", ["shm", "iwarp"])
async def test_every_message_is_in_the_file_once(listener, tmp_path, wire):
    """Both directions, with session, wire and the bytes on the wire."""
    path = tmp_path / "session.pcapng"
    async with verbena.connect(listener.address, wire=wire, config=SETTINGS) as session:
        with session.node.capture(path) as capture:
            for number in range(20):
                await session.call("echo", b"payload %d" % number)
            with pytest.raises(errors.VerbenaError, match="already"):
                session.node.capture(tmp_path / "another")
        await session.call("echo", b"not captured any more")
        assert session.node.capture(path).closed is False  # a second capture replaces the file
        session.node._capture.close()
        with session.node.capture(path) as capture:
            for number in range(20):
                await session.call("echo", b"payload %d" % number)
    found = packets(path)
    asked = [one for one in found if one[0] == 0 and one[3][1] == REQUEST]
    answered = [one for one in found if one[0] == 1 and one[3][1] == REPLY]
    assert [one[4] for one in asked] == [b"payload %d" % number for number in range(20)]
    assert [one[4] for one in answered] == [b"payload %d" % number for number in range(20)]
    assert {(one[1], one[2]) for one in found} == {(session.id, wire)}
    assert len(found) == capture.packets
    assert capture.dropped == 0
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert session._key not in path.read_bytes()
    assert SECRET not in path.read_bytes()


async def test_headers_alone_hold_no_payload(listener, tmp_path):
    """The packet contains the length of the message, but no payload."""
    path = tmp_path / "headers.pcapng"
    async with verbena.connect(listener.address, config=SETTINGS) as session:
        with session.node.capture(path, headers_only=True):
            await session.call("echo", b"confidential " * 20)
    assert b"confidential" not in path.read_bytes()
    (asked,) = (one for one in packets(path) if one[0] == 0 and one[3][1] == REQUEST)
    assert asked[4] == b""
    assert asked[5] == MESSAGE.size + 13 * 20


async def test_a_capture_ends_with_its_node(tmp_path):
    """The file is complete when the node is closed."""
    path = tmp_path / "node.pcapng"
    async with verbena.listen("127.0.0.1:0", handlers={"echo": echo}, config=SETTINGS) as listener:
        capture = listener.node.capture(path)
        async with verbena.connect(listener.address, config=SETTINGS) as session:
            await session.call("echo", b"x")
    assert capture.closed
    assert blocks(path)[-1][0] == 5
    assert len(packets(path)) == capture.packets > 1
    capture.close()


async def test_a_path_that_cannot_be_written_is_an_invalid_argument(listener, tmp_path):
    """It raises an error with a message, and nothing is captured."""
    with pytest.raises(errors.VerbenaError, match="No such file"):
        listener.node.capture(tmp_path / "nowhere" / "file")


@pytest.mark.skipif(not shutil.which("capinfos"), reason="capinfos is not installed (package tshark)")
@pytest.mark.skipif(not shutil.which("tshark"), reason="tshark is not installed")
async def test_wireshark_reads_it(listener, tmp_path):
    """capinfos counts the packets; tshark shows each with its time, direction and bytes."""
    path = tmp_path / "session.pcapng"
    region = listener.node.allocate(4096)
    async with verbena.connect(listener.address, config=replace(SETTINGS)) as session:
        with session.node.capture(path) as capture:
            for size in (0, 1, 2, 3, 1000):
                await session.call("echo", b"x" * size)
            await session.write(region.remote, b"one-sided")
    infos = subprocess.run(["capinfos", "-M", "-c", "-E", path], capture_output=True, text=True, check=True)
    assert f"Number of packets:   {capture.packets}" in infos.stdout
    assert "USER 0" in infos.stdout or "user0" in infos.stdout.lower()
    shown = subprocess.run(
        ["tshark", "-r", path, "-T", "json", "-x"], capture_output=True, text=True, check=True
    )
    frames = [packet["_source"]["layers"] for packet in json.loads(shown.stdout)]
    assert len(frames) == capture.packets
    raw = [bytes.fromhex(frame["frame_raw"][0]) for frame in frames]
    messages = [index for index, packet in enumerate(raw) if packet[2] == MESSAGES]
    lengths = [int(frames[index]["frame"]["frame.len"]) for index in messages]
    assert lengths == [PSEUDO_HEADER.size + one[5] for one in packets(path)]
    assert [raw[index][1] for index in messages] == [one[0] for one in packets(path)]
    (written,) = (packet for packet in raw if packet[2] == 1)
    assert written.endswith(b"one-sided")
