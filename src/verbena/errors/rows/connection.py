"""Listening, dialling, and connections that end."""

from __future__ import annotations

from verbena.errors.classes import (
    AddressError,
    BrokenLinkError,
    DeniedError,
    ProtocolError,
    RejectedError,
    TimedOutError,
)
from verbena.errors.explanation import Explanation

ROWS = (
    Explanation(
        "address_in_use",
        AddressError,
        what="the address is already in use",
        causes=(
            "another process, such as an earlier run of this program, listens on the address",
            "a process that has ended left its socket file behind",
        ),
        remedy="find the process with `ss -ltnp` (TCP), `ss -lunp` (UDP) or `ss -lxp` (Unix) and stop it, or"
        " listen on another port; port 0 selects a free one",
        checks=(
            "`ss -ltnp` lists a process on that port: that process holds the address",
            "`ss -lxp` lists no process on the socket file: the file was left behind, so delete it",
        ),
    ),
    Explanation(
        "unreachable",
        AddressError,
        what="the address cannot be resolved or reached",
        causes=(
            "no program listens on that port: the peer is not running or uses another port",
            "the host name is misspelt or cannot be resolved here",
            "no route leads to the host, or a firewall rejects the connection",
            "ibv: the address does not belong to the device's network",
        ),
        remedy="check the host name (`getent hosts HOST`) and the port, check that the peer listens (`ss"
        " -ltn` at the peer), and test the route with `ip route get ADDRESS`",
        checks=(
            "the connection is refused at once: no program listens on that port, or a firewall rejects it",
            "`getent hosts HOST` prints nothing: the name cannot be resolved",
            "the attempt waits until its timeout: a firewall drops the packets, or the host is down (`ping"
            " HOST`)",
        ),
    ),
    Explanation(
        "connect_timeout",
        TimedOutError,
        what="the peer did not answer in time",
        causes=(
            "the peer is down, or a firewall drops the packets: RoCE v2 needs UDP port 4791, sessions need"
            " TCP port 7471",
            "RoCE: the GID index selects an address that has no route to the peer",
            "the peer listens, but its program does not accept",
            "the connection timeout is too short for this path",
        ),
        remedy="check that the peer runs (`verbena doctor --peer HOST:PORT`); allow the peer's TCP port and,"
        " for RoCE v2, UDP port 4791 in every firewall; set `network.rdma_gid_index` to a RoCE v2 entry of"
        " `verbena devices -v`, or to -1; on a slow path raise `network.rdma.connection_timeout_ms`",
        checks=(
            "`verbena doctor --peer HOST:PORT` does not reach the port over TCP: check the host, the firewall"
            " and the route",
            "TCP works and RDMA does not: a firewall blocks UDP port 4791 (RoCE v2) or the wire's own port,"
            " or the GID at `network.rdma_gid_index` has no route to the peer",
            "some attempts succeed: the peer is overloaded, or packets are lost",
        ),
    ),
    Explanation(
        "rejected",
        RejectedError,
        what="the peer rejected the connection",
        causes=(
            "the peer's program refused: its private data may contain the reason",
            "no program listens on that port or service ID",
            "the peer's connection limit is reached, or it cannot offer the requested queue depths",
        ),
        remedy="read the private data and the peer's log; check the port, and the peer's"
        " `network.rdma.max_connections`",
    ),
    Explanation(
        "credentials",
        DeniedError,
        what="the peer could not be authenticated",
        causes=(
            "the peer runs as another user; this process has uid {uid}",
            "the two ends have different secrets or certificates",
        ),
        remedy="run both ends as the same user, or give both the same `session.secret_file` or certificates"
        " of one authority (`verbena cert issue`)",
        checks=(
            "`sha256sum` of the secret files differs between the ends: copy one file to the other end",
            "the listen address is not loopback and no secret is set: set `session.secret_file` at both ends",
        ),
    ),
    Explanation(
        "version_mismatch",
        ProtocolError,
        what="the peer uses another version of the protocol",
        causes=(
            "the two ends run different releases of Verbena",
            "another program listens on that port",
        ),
        remedy="run the same release at both ends (`verbena --version`), and check the port",
    ),
    Explanation(
        "peer_died",
        BrokenLinkError,
        what="the peer's process has ended",
        causes=(
            "the process crashed or was killed, such as by the kernel when memory ran out",
            "the process exited without closing the connection",
            "the peer's host went down or lost its network",
        ),
        remedy="read the peer's log and `dmesg` on its host, start the peer again, and reconnect",
    ),
    Explanation(
        "peer_refused",
        BrokenLinkError,
        what="this end refused a request of the peer, which ended the connection",
        causes=(
            "the peer used a key, a range or an access right that it does not have",
            "the peer sent a message without a posted receive, or longer than the receive",
        ),
        remedy="check the requests that the peer posts and the statuses that it got, then reconnect",
    ),
    Explanation(
        "bad_message",
        ProtocolError,
        what="the peer sent a message that is not valid in this protocol",
        causes=(
            "another program, with another protocol, is at the other end",
            "the network damaged the bytes: the checksum or the length is wrong",
            "one end runs another version or has a fault",
        ),
        remedy="check which program listens at that address and its version (`verbena --version`); if both"
        " are right, report a fault with the detail of this error",
    ),
    Explanation(
        "not_permitted",
        DeniedError,
        what="the kernel does not let one process read or write the other's memory",
        causes=(
            "ptrace rules forbid process_vm_readv and process_vm_writev (kernel.yama.ptrace_scope is"
            " {ptrace_scope})",
            "the processes have different users, or the target process is not dumpable",
            "the container's seccomp profile or PID namespace separates the processes",
        ),
        remedy="keep the data in an arena, which needs no such permission; or run `sysctl -w"
        " kernel.yama.ptrace_scope=0`, or add CAP_SYS_PTRACE",
    ),
)
