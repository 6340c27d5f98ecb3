"""The uid of the process at the other end of a connection on this host, as the kernel reports it.
A TCP socket has no SO_PEERCRED, so the peer's own socket is looked up: with netlink SOCK_DIAG, which needs no
privileges, or in /proc/net/tcp if netlink is not allowed."""

from __future__ import annotations

import contextlib
import errno
import functools
import ipaddress
import os
import socket
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_SOCK_DIAG = 4  # NETLINK_SOCK_DIAG
_SOCK_DIAG_BY_FAMILY = 20
_REQUEST_FLAG = 1  # NLM_F_REQUEST: exactly one socket, no dump
_ESTABLISHED = 1
_ANY_STATE = 0xFFFFFFFF
_TIMEOUT_S = 1.0
_ANSWER_BYTES = 8192

_NETLINK = struct.Struct("=IHHII")  # nlmsghdr: length, type, flags, sequence, port
_SELECT = struct.Struct("=BBBBI")  # inet_diag_req_v2: family, protocol, extensions, padding, states
_SOCKET_ID = struct.Struct("!HH16s16s")  # inet_diag_sockid: ports and addresses, in network order
_SOCKET_ID_END = struct.Struct("=III")  # its interface and cookie
_FOUND = struct.Struct("=BBBB48sIIIII")  # inet_diag_msg: family, state, …, uid, inode
_CREDENTIALS = struct.Struct("=iII")  # struct ucred
assert _FOUND.size == 72

Address = tuple[str, int]


@dataclass(frozen=True)
class PeerProcess:
    """What the kernel knows about a peer on this host. `pid` None: it is known for Unix sockets only."""

    uid: int
    pid: int | None = None


def peer_process(connection: Any) -> PeerProcess | None:
    """Returns the process that opened the other end of a connected socket. None: it is on another host, or in
    another user namespace, has closed its end, or the kernel does not report it."""
    if connection is None:
        return None
    if connection.family == socket.AF_UNIX:
        raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        pid, uid, _ = _CREDENTIALS.unpack(raw)
        return PeerProcess(uid, pid) if _is_known(uid) else None
    if connection.family not in (socket.AF_INET, socket.AF_INET6):
        return None
    try:
        own, peer = connection.getsockname()[:2], connection.getpeername()[:2]
    except OSError:
        return None
    if not is_local(own[0], peer[0]):
        return None
    try:
        uid = _ask_netlink(peer, own)
    except OSError:
        uid = _read_proc(peer, own)
    return PeerProcess(uid) if uid is not None and _is_known(uid) else None


def is_local(own: str, peer: str) -> bool:
    """Returns whether a connection between these addresses does not leave the host."""
    address = _address(peer)
    return address.is_loopback or address == _address(own)


def _address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    address = ipaddress.ip_address(text.partition("%")[0])
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return mapped or address


def _is_known(uid: int) -> bool:
    """The kernel reports users that this user namespace does not map as the overflow uid, which therefore
    identifies no user there."""
    return uid != _overflow_uid()


@functools.cache
def _overflow_uid() -> int:
    """Returns the overflow uid; -1 in the initial user namespace, where all users are mapped."""
    try:
        if Path("/proc/self/uid_map").read_text().split() == ["0", "0", "4294967295"]:
            return -1
        return int(Path("/proc/sys/kernel/overflowuid").read_text())
    except (OSError, ValueError):
        return 65534


def _ask_netlink(peer: Address, own: Address) -> int | None:
    """Returns the uid of the socket whose local end is `peer`. OSError: netlink is not allowed."""
    ends = [_address(where[0]) for where in (peer, own)]
    family = socket.AF_INET if ends[0].version == 4 else socket.AF_INET6
    packed = [end.packed for end in ends]
    socket_id = _SOCKET_ID.pack(peer[1], own[1], *packed) + _SOCKET_ID_END.pack(0, _ANY_STATE, _ANY_STATE)
    body = _SELECT.pack(family, socket.IPPROTO_TCP, 0, 0, 1 << _ESTABLISHED) + socket_id
    header = _NETLINK.pack(_NETLINK.size + len(body), _SOCK_DIAG_BY_FAMILY, _REQUEST_FLAG, 1, 0)
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, _SOCK_DIAG) as netlink:
        netlink.settimeout(_TIMEOUT_S)
        netlink.sendto(header + body, (0, 0))
        answer = netlink.recv(_ANSWER_BYTES)
    _, kind, _, _, _ = _NETLINK.unpack_from(answer)
    if kind != _SOCK_DIAG_BY_FAMILY or len(answer) < _NETLINK.size + _FOUND.size:
        error = -struct.unpack_from("=i", answer, _NETLINK.size)[0]
        if error in (errno.ENOENT, 0):  # there is no such socket
            return None
        raise OSError(error, os.strerror(error))
    _, state, _, _, found_id, _, _, _, uid, inode = _FOUND.unpack_from(answer, _NETLINK.size)
    # A closed socket has no owner, and the kernel would report uid 0.
    if state != _ESTABLISHED or inode == 0 or found_id[:4] != socket_id[:4]:
        return None
    return int(uid)


def _read_proc(peer: Address, own: Address) -> int | None:
    """Looks the uid up in /proc/net; None if there is no such socket, or /proc is not readable."""
    wanted = [(_address(where[0]), where[1]) for where in (peer, own)]
    for name in ("tcp", "tcp6"):
        with contextlib.suppress(OSError, ValueError):
            for line in Path(f"/proc/self/net/{name}").read_text().splitlines()[1:]:
                fields = line.split()
                if int(fields[3], 16) == _ESTABLISHED and list(_ends(fields[1:3])) == wanted:
                    return int(fields[7]) if int(fields[9]) else None
    return None


def _ends(fields: list[str]) -> Iterator[tuple[ipaddress.IPv4Address | ipaddress.IPv6Address, int]]:
    for field in fields:
        digits, _, port = field.partition(":")
        words = struct.unpack(f">{len(digits) // 8}I", bytes.fromhex(digits))
        packed = struct.pack(f"={len(words)}I", *words)
        family = socket.AF_INET if len(packed) == 4 else socket.AF_INET6
        yield _address(socket.inet_ntop(family, packed)), int(port, 16)
