"""The frontends of a store as data: how a client connects to each. One store serves all of them."""

from __future__ import annotations

import contextlib
import io
import os
import re
import socket
import ssl
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from support.certificates import Authority
from support.kv.kv_store import Store, running
from support.kv.resp import Word, pack
from verbena.errors import VerbenaError
from verbena.kv.client.connectors import SharedSessionSocket
from verbena.kv.client.resp_connection import RespSocket
from verbena.kv.frontends.valkey_rdma import RdmaSocket

LOOPBACK = "127.0.0.1"
TIMEOUT_S = 20.0


class RefusedError(Exception):
    """The store did not accept the client; the text is its reason."""


@dataclass
class Served:
    """A store that serves all frontends. `host` is where its sockets and its RDMA listener are reached."""

    store: Store
    path: str  # of the Unix socket
    certificates: ssl.SSLContext

    def address(self, pattern: str) -> str:
        found = re.search(pattern, self.store.banner, re.M)
        assert found is not None, self.store.banner
        return found[1]

    def port(self, name: str) -> int:
        return int(self.address(rf"^  {name} +\S+:(\d+)"))


class _Reader(io.RawIOBase):
    """What SocketAdapter lacks: a file to read lines from."""

    def __init__(self, adapter: Any) -> None:
        self._adapter = adapter

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        received: int = self._adapter.recv_into(buffer)
        return received


class FrontendClient(RespSocket):
    """A RESP client of any frontend. `client("GET", "a")` returns the reply."""

    def __init__(self, connected: Any, *, where: str) -> None:
        connected.settimeout(TIMEOUT_S)
        if not hasattr(connected, "makefile"):
            connected.makefile = lambda mode: io.BufferedReader(_Reader(connected))
        super().__init__(connected, where=where)

    def send(self, *words: Word) -> None:
        self.socket.sendall(pack(*words))

    def __call__(self, *words: Word) -> Any:
        self.send(*words)
        return self.read()

    def is_closed(self) -> bool:
        """Reads what is left, and returns whether the store ended the connection after it."""
        try:
            while True:
                self.read()
        except TimeoutError:
            return False
        except (EOFError, OSError):
            return True


@dataclass(frozen=True)
class Frontend:
    """`open` a connection to the store at a host of this machine; RefusedError if the store refuses it before
    the first reply. `title`: its name on the page."""

    name: str
    title: str
    open: Callable[[Served, str], FrontendClient]

    def connect(self, served: Served, host: str = LOOPBACK) -> FrontendClient:
        return self.open(served, host)


def _tcp(served: Served, host: str) -> FrontendClient:
    return FrontendClient(socket.create_connection((host, served.port("redis"))), where="tcp")


def _tls(served: Served, host: str) -> FrontendClient:
    plain = socket.create_connection((host, served.port("redis, tls")))
    try:
        return FrontendClient(served.certificates.wrap_socket(plain, server_hostname=LOOPBACK), where="tls")
    except OSError as error:  # the refusal comes in place of the TLS handshake
        plain.close()
        raise RefusedError(str(error)) from error


def _unix(served: Served, host: str) -> FrontendClient:
    connected = socket.socket(socket.AF_UNIX)
    connected.connect(served.path)
    return FrontendClient(connected, where="unix")


def _session(served: Served, host: str) -> FrontendClient:
    return FrontendClient(SharedSessionSocket(f"{host}:{served.port('sessions')}", b""), where="session")


def _valkey_rdma(served: Served, host: str) -> FrontendClient:
    try:
        connected = RdmaSocket(f"iwarp://{host}:{served.port('valkey rdma')}")
    except VerbenaError as error:
        raise RefusedError(str(error)) from error
    return FrontendClient(connected, where="valkey-rdma")


FRONTENDS = {
    frontend.name: frontend
    for frontend in (
        Frontend("tcp", "TCP", _tcp),
        Frontend("tls", "TLS", _tls),
        Frontend("unix", "Unix socket", _unix),
        Frontend("session", "session", _session),
        Frontend("valkey-rdma", "Valkey over RDMA", _valkey_rdma),
    )
}


@contextlib.contextmanager
def serving(folder: Path) -> Iterator[Served]:
    """A store with all frontends: sessions on loopback, the others on all addresses. Clients of sessions in
    this process trust its certificate meanwhile."""
    authority = Authority(folder)
    pair = authority.issue("store")
    path = str(folder / "store.sock")
    context = ssl.create_default_context(cafile=str(authority.ca))
    with (
        pytest.MonkeyPatch.context() as patched,
        running(
            *("--kv-listen-address", "0.0.0.0", "--kv-unix-socket", path, "--session-listen-port", "0"),
            *("--kv-tls-port", "0", "--tls-certificate", str(pair.certificate), "--tls-key", str(pair.key)),
            *("--kv-rdma-listen", "iwarp://0.0.0.0:0"),
        ) as store,
    ):
        patched.setenv("VERBENA_TLS_CA", str(authority.ca))
        yield Served(store, path, context)


def own_address() -> str | None:
    """An address of this machine other than loopback; packets to it do not leave the machine."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe, contextlib.suppress(OSError):
        probe.connect(("203.0.113.1", 9))  # connecting a UDP socket sends nothing
        address: str = probe.getsockname()[0]
        return None if address.startswith("127.") else address
    return None


def refuses_to_listen(*arguments: str) -> str:
    """The error of a store that does not start with these arguments."""
    command = [sys.executable, "-m", "verbena", "serve", "--kv-port", "0", *arguments]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("VERBENA_")}
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False, env=environment)
    assert done.returncode != 0, done.stdout
    return done.stderr
