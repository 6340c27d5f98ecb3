"""The path to another node: name, port and MTU, then a session over each wire with latency and bandwidth."""

from __future__ import annotations

import socket
import statistics
import time
from collections.abc import Iterator

from verbena import _native
from verbena.cli import text
from verbena.cli.checks.diagnosis import Diagnosis, Verdict, error, explained, failed, ok, warn
from verbena.config import Config
from verbena.errors import VerbenaError, setup_error
from verbena.sync import Session, connect
from verbena.transport.address import parse_host_port
from verbena.transport.configured import settings_from

PINGS = 200
BULK_BYTES = 4 << 20
BULK_TIMES = 8
IP_MTU = 14  # from <linux/in.h>; the socket module does not have it
IPV6_MTU = 24
SMALL_PATH = 1280
WIRES = ("shm", "ibv", "iwarp", "quic")
_ECHO = _native.transport.METHOD_ECHO


def check_peer(address: str, config: Config, *, timeout_s: float) -> Iterator[Diagnosis]:
    """Yields the diagnoses; the wires come last, each with its own session. Stops after an error in name or
    port."""
    where = parse_host_port(address)
    found = _resolve(where.host, where.port)
    yield (
        found if isinstance(found, Diagnosis) else ok("peer name", f"{where.host} resolves to {found[4][0]}")
    )
    if isinstance(found, Diagnosis):
        return
    reached = True
    for diagnosis in _check_tcp(found, address, timeout_s):
        yield diagnosis
        reached = reached and diagnosis.verdict is not Verdict.ERROR
    if not reached:
        return
    settings = settings_from(config)
    for wire in WIRES:
        yield _check_wire(
            wire, address, config, asked=wire in settings.wires, gid=config.network.rdma_gid_index
        )


def _resolve(host: str, port: int) -> tuple[int, int, int, str, tuple[str, int]] | Diagnosis:
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except OSError as problem:
        finding = f"{host}: {problem.strerror}"
        return explained(
            "peer name", Verdict.ERROR, finding, code="unreachable", command=f"getent hosts {host}"
        )
    return found  # type: ignore[return-value]


def _check_tcp(
    found: tuple[int, int, int, str, tuple[str, int]], address: str, timeout_s: float
) -> Iterator[Diagnosis]:
    """Opens a TCP connection to the port for sessions."""
    family, kind, protocol, _, where = found
    check = f"TCP to {address}"
    with socket.socket(family, kind, protocol) as probe:
        probe.settimeout(min(timeout_s, 10.0))
        start = time.perf_counter()
        try:
            probe.connect(where)
        except TimeoutError:
            why = "a firewall drops the packets, the host is down, or no route leads back"
            command = f"ping -c 3 {where[0]}\nsudo nft list ruleset     (on both machines)"
            yield error(check, "no answer", reason=why, remedy=f"{command}\n{_open_port_command(where[1])}")
            return
        except OSError as problem:
            why = "no program listens on the port, or a firewall rejects the connection"
            remedy = f"ss -ltn sport = :{where[1]}     (on {where[0]})\n{_open_port_command(where[1])}"
            yield error(check, problem.strerror or str(problem), reason=why, remedy=remedy)
            return
        took = time.perf_counter() - start
        yield ok(check, f"connected in {text.duration(took * 1e9)}, from {probe.getsockname()[0]}")
        yield _path_mtu(probe, family)


def _open_port_command(port: int) -> str:
    return f"sudo firewall-cmd --add-port={port}/tcp     (or: sudo ufw allow {port}/tcp)"


def _path_mtu(probe: socket.socket, family: int) -> Diagnosis:
    check = "path MTU"
    level, option = (
        (socket.IPPROTO_IPV6, IPV6_MTU) if family == socket.AF_INET6 else (socket.IPPROTO_IP, IP_MTU)
    )
    mtu = probe.getsockopt(level, option)
    if mtu < SMALL_PATH:
        why = "a tunnel or an interface on the path has a small MTU"
        return warn(
            check, str(mtu), reason=why, remedy="ip link     (look for a small mtu on every host of the path)"
        )
    hint = "" if mtu >= 4200 else "; RoCE would use 1024, and 4096 with an MTU of 9000 on the whole path"
    return ok(check, f"{mtu}{hint}")


def _check_wire(wire: str, address: str, config: Config, *, asked: bool, gid: int) -> Diagnosis:
    """Opens a session over this wire only and measures it; on failure the diagnosis has the reason."""
    check = f"peer over {wire}"
    if not asked:
        how = {
            "ibv": "VERBENA_NETWORK_RDMA_ENABLED=true verbena doctor --peer " + address,
            "quic": "VERBENA_NETWORK_RDMA_FALLBACK=quic verbena doctor --peer " + address,
            "iwarp": "VERBENA_NETWORK_RDMA_FALLBACK=tcp verbena doctor --peer " + address,
        }.get(wire, "")
        return ok(check, f"not tested: disabled in the configuration (to test: {how})")
    try:
        with connect(address, wire=wire, config=config) as session:
            finding = _measure(session)
    except VerbenaError as failure:
        if failure.code == "no_common_wire":
            finding = f"not usable: {failure.detail or failure.what}"
            return warn(check, finding, reason="; ".join(failure.causes), remedy=failure.remedy)
        diagnosis = failed(check, failure)
        if wire == "ibv":
            look = f"verbena devices -v     (GID index {'chosen by route' if gid < 0 else gid}, both ends)"
            return error(
                check, diagnosis.finding, reason=diagnosis.reason, remedy=f"{look}\n{diagnosis.remedy}"
            )
        return diagnosis
    return ok(check, finding)


def _measure(session: Session) -> str:
    """Measures empty round trips, and the peer's echo of large messages with every byte compared. Raises
    VerbenaError."""
    call = session._native.call
    for _ in range(PINGS // 10):
        call(_ECHO, b"", 5.0)
    times = []
    for _ in range(PINGS):
        start = time.perf_counter()
        call(_ECHO, b"", 5.0)
        times.append(time.perf_counter() - start)
    times.sort()
    data = bytes(range(256)) * (BULK_BYTES // 256)
    start = time.perf_counter()
    for _ in range(BULK_TIMES):
        if call(_ECHO, data, 30.0) != data:
            raise setup_error("damaged", operation="echo", peer=session.peer)
    took = time.perf_counter() - start
    rate = 2 * BULK_BYTES * BULK_TIMES / took / 1e6
    p50, p99 = (1e9 * found for found in (statistics.median(times), times[int(0.99 * len(times))]))
    return (
        f"round trip p50 {text.duration(p50)}, p99 {text.duration(p99)}; {rate:,.0f} MB/s both ways;"
        " data verified"
    )
