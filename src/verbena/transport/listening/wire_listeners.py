"""The listeners of the wires: binds a listener's TCP sockets and a listener of every wire, those of iwarp and
quic on one port, and states the addresses that clients are offered. May depend on the node and its wires."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable

from verbena import verbs
from verbena.errors import VerbenaError, setup_error
from verbena.transport.address import HostPort
from verbena.transport.handshake.agreement import WireOffer
from verbena.transport.listening.accepting import Acceptor
from verbena.transport.listening.binding import bind, close_all, data_addresses
from verbena.transport.node import Node
from verbena.transport.wires import Wire

_PORT_TRIES = 16  # to choose a port that is free for TCP and UDP
_WIRES_BY_PORT = {"iwarp": "TCP", "quic": "UDP"}
_WILDCARD = {"0.0.0.0", "::"}


class WireListeners:
    """`accept` is called with each listener of a wire, also after the wire's device was removed and is back.
    For the control thread."""

    def __init__(
        self, node: Node, acceptor: Acceptor, *, accept: Callable[[Wire, verbs.Listener], None]
    ) -> None:
        self.offers: list[WireOffer] = []  # best wire first
        self._node = node
        self._acceptor = acceptor
        self._accept = accept
        self._by_wire: dict[str, list[verbs.Listener]] = {}
        self._closed = False

    async def bind(self, where: HostPort) -> list[socket.socket]:
        """Listens for TCP connections, and on every wire. Port 0: one that the wires can use too."""
        for left in reversed(range(_PORT_TRIES)):
            try:
                sockets = await bind(where.host, where.port)
            except OSError as error:
                detail = f"{where}: {error.strerror}"
                raise setup_error(
                    "address_in_use", operation="listen", detail=detail, errno=error.errno
                ) from error
            try:
                for wire in self._node.wires:
                    self._listen_on(wire, where, sockets)
            except VerbenaError as error:
                close_all(sockets)
                self._reset()
                if where.port or error.code != "address_in_use" or not left:
                    raise
            else:
                return sockets
        raise AssertionError("unreachable")

    def start(self) -> None:
        """Passes the listeners to `accept`."""
        for name, listeners in self._by_wire.items():
            for listener in listeners:
                self._accept(self._node.wires[name], listener)
        self._node._on_restored.append(self._listen_again)

    def close(self) -> None:
        self._closed = True
        with contextlib.suppress(ValueError):
            self._node._on_restored.remove(self._listen_again)
        for listeners in self._by_wire.values():
            for listener in listeners:
                listener.close()

    def _listen_on(self, wire: Wire, where: HostPort, sockets: list[socket.socket]) -> None:
        port = sockets[0].getsockname()[1]
        data_port = self._node.settings.data_port or port
        try:
            if wire.name == "iwarp" and data_port == port:
                shared = wire.context._listen_to_sockets()
                if shared is not None:
                    self._acceptor.take_link = shared._take_over
                    self._offer(wire, [shared], f":{port}")
                    return
            if wire.name in _WIRES_BY_PORT and (wire.name == "quic" or data_port != port):
                self._offer(wire, self._listen_by_port(wire, sockets, data_port), f":{data_port}")
                return
            by_host = wire.name != "shm"
            host = HostPort(where.host or "0.0.0.0", 0)
            if wire.name == "ibv" and host.host in _WILDCARD and self._has_configured_gid():
                by_host = False  # the GID is the address: the client must receive it
            listener = wire.context.listen(str(host) if by_host else "")
        except VerbenaError as error:
            if wire.name in _WIRES_BY_PORT and error.code == "address_in_use":
                raise
            self._node.wires.reasons[wire.name] = error.detail or error.what
            return
        # A client combines a bare port with the host name by which it reached this listener.
        bound_host, _, bound_port = listener.address.rpartition(":")
        by_host = by_host or bound_host.strip("[]") in _WILDCARD
        self._offer(wire, [listener], f":{bound_port}" if by_host else listener.address)

    def _listen_by_port(self, wire: Wire, sockets: list[socket.socket], port: int) -> list[verbs.Listener]:
        """Listens with a wire of its own on the addresses of the sockets. address_in_use if one is taken."""
        opened: list[verbs.Listener] = []
        try:
            for address in data_addresses(sockets, port):
                opened.append(wire.context.listen(address))
        except VerbenaError as error:
            for listener in opened:
                listener.close()
            if error.code != "address_in_use":
                raise
            detail = f"{_WIRES_BY_PORT[wire.name]} port {port} of the wire {wire.name}: {error.detail}"
            raise setup_error("address_in_use", operation="listen", detail=detail) from error
        return opened

    def _offer(self, wire: Wire, listeners: list[verbs.Listener], address: str) -> None:
        self._by_wire[wire.name] = listeners
        self.offers.append(WireOffer(wire.name, address))

    def _reset(self) -> None:
        self._acceptor.take_link = None
        for listeners in self._by_wire.values():
            for listener in listeners:
                listener.close()
        self._by_wire, self.offers = {}, []

    def _listen_again(self, name: str) -> None:
        """Listens where the wire did before its device was removed: the peers know that address."""
        former = self._by_wire.get(name)
        if self._closed or former is None:
            return
        wire = self._node.wires[name]
        try:
            self._by_wire[name] = [wire.context.listen(listener.address) for listener in former]
        except VerbenaError as error:
            self._node.wires.reasons[name] = error.detail or error.what
            return
        for listener in self._by_wire[name]:
            self._accept(wire, listener)

    def _has_configured_gid(self) -> bool:
        options = self._node.wires.ibv
        return options is not None and options.gid_index is not None
