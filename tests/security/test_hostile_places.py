"""What a hostile process can do from another user, another container or another machine: each statement of
docs/reference/hostile-processes.md about it is seen here."""

from __future__ import annotations

import contextlib
import select
import shutil
import socket
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from support.certificates import Authority
from support.rdma import iwarp_tls
from support.rdma.link import DEADLINE_S, make_end
from support.rdma.namespaces import Network, NoNamespaces, machines
from support.security.processes import first_answer, needs_root, tell, victim
from support.security.users import OTHER_USER, USER
from support.security.victim import READABLE, SECRET

from verbena import verbs

REFUSE = 2
KEY = "correct horse battery staple"
OWN_PIDS = ("unshare", "--pid", "--fork", "--mount-proc")
OWN_NETWORK = ("unshare", "--net", *OWN_PIDS[1:])
CREDENTIALS = {"refused": "credentials"}
PREFIX = "10.93.0"


def read_over(wire: str) -> dict[str, Any]:
    return {"wire": wire, "found": [READABLE.decode()]}


@pytest.fixture(autouse=True)
def rights() -> None:
    needs_root()
    if shutil.which("unshare") is None:
        pytest.skip("unshare is not here (Debian: util-linux)")


@pytest.fixture(scope="module")
def tls() -> Iterator[dict[str, str]]:
    """The files of a certificate for quic, readable for all users."""
    info = next(info for info in verbs.providers() if info.name == "quic")
    if not info.available or iwarp_tls.MISSING:
        pytest.skip(info.reason or iwarp_tls.MISSING)
    names = ",".join([iwarp_tls.HERE, *(f"IP:{PREFIX}.{number}" for number in range(1, 3))])
    with tempfile.TemporaryDirectory(prefix="verbena-tls-") as folder:
        pair = iwarp_tls.issue(Authority(Path(folder)), names=names)
        Path(folder).chmod(0o755)
        Path(pair.key).chmod(0o644)
        yield {
            "certificate": str(pair.certificate),
            "key": str(pair.key),
            "authority": str(pair.authority),
        }


def options_of(wire: str, request: pytest.FixtureRequest) -> dict[str, Any]:
    if wire != "quic":
        return {}
    return {"wires": ["shm", "quic"], "tls": request.getfixturevalue("tls")}


# Another uid


def test_the_shm_socket_refuses_another_user() -> None:
    """With an error, before any greeting."""
    with victim(uid=USER) as node:
        assert node.attacked("connect_to_shm", uid=OTHER_USER) == {"kinds": [REFUSE], "descriptors": 0}


@pytest.mark.parametrize("wire", ["shm", "iwarp", "quic"])
def test_another_user_gets_no_session_without_the_secret(wire: str, request: pytest.FixtureRequest) -> None:
    more = options_of(wire, request)
    for secret in ("", KEY):
        with victim(uid=USER, secret=secret, **more) as node:
            assert node.attacked("use", uid=OTHER_USER, wire=wire, **more) == CREDENTIALS


@pytest.mark.parametrize("wire", ["iwarp", "quic"])
def test_another_user_with_the_secret_gets_a_session_but_no_shared_memory(
    wire: str, request: pytest.FixtureRequest
) -> None:
    more = {**options_of(wire, request), "secret": KEY}
    with victim(uid=USER, **more) as node:
        regions = node.report["regions"]
        assert node.attacked("use", uid=OTHER_USER, regions=regions, **more) == read_over(wire)
        assert "refused" in node.attacked("use", uid=OTHER_USER, wire="shm", **more)


def test_another_user_cannot_trace_the_node_or_open_its_descriptors(tmp_path: Path) -> None:
    with victim(uid=USER) as node:
        other = {"uid": OTHER_USER}
        assert node.attacked("trace", at=node.report["private_at"], **other) == {"refused": "EPERM"}
        assert node.attacked("open_descriptors", texts=[], **other)["refused"] in ("EACCES", "EPERM")
        assert node.attacked("kill", **other) == {"refused": "EPERM"}
        assert node.ask()["private"] == SECRET.decode()


# Another container of the same uid


@pytest.mark.parametrize("wire", ["shm", "iwarp", "quic"])
def test_a_container_in_the_same_network_namespace_is_a_process_of_its_user(
    wire: str, request: pytest.FixtureRequest
) -> None:
    """Its own PID namespace takes no right from it but that to trace and to end the node."""
    more = options_of(wire, request)
    with victim(uid=USER, **more) as node:
        done = node.attacked(
            "use", prefix=OWN_PIDS, uid=USER, wire=wire, regions=node.report["regions"], **more
        )
        assert done == read_over(wire)
    with victim(uid=USER, secret=KEY, **more) as node:
        assert node.attacked("use", prefix=OWN_PIDS, uid=USER, wire=wire, **more) == CREDENTIALS


def test_a_container_cannot_trace_or_end_the_node() -> None:
    """It does not see the node's process."""
    with victim(uid=USER) as node:
        inside = {"prefix": OWN_PIDS, "uid": USER}
        assert node.attacked("trace", at=node.report["private_at"], **inside) == {"refused": "ESRCH"}
        assert node.attacked("open_descriptors", texts=[], **inside) == {"refused": "ENOENT"}
        assert node.attacked("kill", **inside) == {"refused": "ESRCH"}
        assert node.ask()["private"] == SECRET.decode()


def test_a_container_maps_readable_memory_for_reading_only() -> None:
    """Over shm from another PID namespace, where the node cannot see the process that maps it."""
    with victim() as node, node.attacker("keep", prefix=OWN_PIDS, texts=[READABLE.decode()]) as process:
        first_answer(process)
        assert tell(process, node.report["regions"])["kept"] == 1
        found = tell(process, "search")
        assert found == {"read": [READABLE.decode()], "written": [], "again": ["read"]}


@pytest.mark.parametrize("wire", ["shm", "iwarp", "quic"])
def test_a_container_in_another_network_namespace_does_not_reach_the_loopback(
    wire: str, request: pytest.FixtureRequest
) -> None:
    """Neither the socket of shm, whose name belongs to the network namespace, nor the listening port."""
    more = options_of(wire, request)
    with victim(uid=USER, **more) as node:
        inside = {"prefix": OWN_NETWORK, "uid": USER}
        assert node.attacked("connect_to_shm", **inside) == {"refused": "ECONNREFUSED"}
        assert node.attacked("use", wire=wire, **inside, **more) == {"refused": "unreachable"}


# Another machine


@pytest.fixture(scope="module")
def network() -> Iterator[Network]:
    try:
        with machines(2, prefix=PREFIX) as network:
            yield network
    except NoNamespaces as error:
        pytest.skip(str(error))


@pytest.mark.parametrize("wire", ["iwarp", "quic"])
def test_another_machine_without_the_secret_gets_no_session(
    wire: str, network: Network, request: pytest.FixtureRequest
) -> None:
    more = options_of(wire, request)
    with victim(prefix=network.inside(0), host=network.address(0), secret=KEY, **more) as node:
        for secret in ("", KEY[::-1]):
            given = {**more, "secret": secret}
            assert node.attacked("use", prefix=network.inside(1), wire=wire, **given) == CREDENTIALS


def test_a_node_without_a_secret_does_not_listen_to_other_machines(network: Network) -> None:
    with (
        pytest.raises(AssertionError, match="ended with 1"),
        victim(prefix=network.inside(0), host=network.address(0)),
    ):
        pass


@pytest.mark.parametrize("wire", ["iwarp", "quic"])
def test_another_machine_with_the_secret_gets_what_is_lent_to_its_session(
    wire: str, network: Network, request: pytest.FixtureRequest
) -> None:
    more = {**options_of(wire, request), "secret": KEY}
    with victim(prefix=network.inside(0), host=network.address(0), **more) as node:
        regions = node.report["regions"]
        inside = {"prefix": network.inside(1), **more}
        assert node.attacked("use", regions=regions, **inside) == read_over(wire)
        assert node.attacked("use", wire="shm", **inside) == {"refused": "no_common_wire"}
        with node.attacker("hold", wire=wire, **inside) as other:
            first_answer(other)
            done = node.attacked("use", wire=wire, regions=node.ask()["regions"][-1:], **inside)
            assert done == {"wire": wire, "found": ["region_denied"]}
            tell(other, "end")


# The path between two machines


def _forward(tap: socket.socket, to: tuple[str, int]) -> bytes:
    """Forwards one connection until an end closes; returns all bytes."""
    near, _ = tap.accept()
    seen = bytearray()
    with near, socket.create_connection(to) as far:
        poll = select.poll()
        ends = {near.fileno(): (near, far), far.fileno(): (far, near)}
        for descriptor in ends:
            poll.register(descriptor, select.POLLIN)
        while True:
            for descriptor, _ in poll.poll():
                source, target = ends[descriptor]
                try:
                    data = source.recv(1 << 16)
                    target.sendall(data)
                except OSError:
                    data = b""
                if not data:
                    return bytes(seen)
                seen += data


def test_a_process_on_the_path_reads_iwarp_without_tls() -> None:
    """The payload of a WRITE is in the bytes; tests/iwarp/test_tls.py shows that TLS hides it."""
    with contextlib.ExitStack() as stack:
        a, b = (make_end(stack.enter_context(verbs.open_device("iwarp"))) for _ in range(2))
        waiting = stack.enter_context(b.context.listen("127.0.0.1:0"))
        tap = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        pool = stack.enter_context(ThreadPoolExecutor(2))
        seen = pool.submit(_forward, tap, ("127.0.0.1", int(waiting.address.rpartition(":")[2])))
        address = f"127.0.0.1:{tap.getsockname()[1]}"
        calling = pool.submit(a.context.connect_blocking, a.qp, address)
        waiting.accept_blocking(timeout_s=DEADLINE_S).accept_blocking(b.qp)
        calling.result(DEADLINE_S)
        a.qp.sync.write(a.region(SECRET), b.region(len(SECRET)).remote)
        a.qp.close()
        b.qp.close()
        assert SECRET in seen.result(DEADLINE_S)
