"""Baselines of TCP wires for `verbena bench`: a bare socket between the same two processes."""

from __future__ import annotations

import socket
import time
from array import array
from collections.abc import Sequence

from verbena import errors
from verbena._native import bench
from verbena.cli.measure.bare_socket import tune
from verbena.cli.measure.peer import Peer
from verbena.cli.measure.probes import Probe, min_operations


class _Tcp(Probe):
    def __init__(self, peer: Peer, message_bytes: int) -> None:
        self._peer = peer
        address = peer.ask("tcp_open", message_bytes=message_bytes)["address"]
        self._socket = socket.create_connection(tuple(address))
        tune(self._socket)
        self._pair = bench.TcpPair(self._socket.fileno(), message_bytes=message_bytes)
        peer.ask("tcp_accept")

    def close(self) -> None:
        self._socket.close()

    def _expect(self, done: int, wanted: int) -> None:
        if done != wanted:
            detail = f"no response from the peer after {done} of {wanted}"
            raise errors.setup_error("connect_timeout", operation="run the bare socket", detail=detail)


class TcpLatency(_Tcp):
    """Round trips over a bare TCP_NODELAY socket, with both sides spinning."""

    name = "bare TCP"
    least = 1000

    def __init__(self, peer: Peer, message_bytes: int, *, batch: int = 1) -> None:
        super().__init__(peer, message_bytes)
        self._batch = batch

    def run(self, count: int) -> Sequence[float]:
        samples = array("d", bytes(8 * -(-count // self._batch)))
        rounds = len(samples) * self._batch
        with self._peer.busy("tcp_pong", rounds=rounds):
            self._expect(self._pair.ping(samples, rounds=self._batch), rounds)
        return samples


class TcpStream(_Tcp):
    """Bytes per second, one way, over a bare socket with blocking calls of `message_bytes`; messages per
    second with scale=1."""

    name = "bare TCP"

    def __init__(
        self, peer: Peer, message_bytes: int, *, towards_peer: bool = True, scale: float = 0
    ) -> None:
        super().__init__(peer, message_bytes)
        self._towards_peer = towards_peer
        self._scale = scale or message_bytes
        self.least = min_operations(message_bytes)

    def run(self, count: int) -> Sequence[float]:
        theirs, ours = (
            ("tcp_consume", self._pair.produce) if self._towards_peer else ("tcp_produce", self._pair.consume)
        )
        with self._peer.busy(theirs, messages=count):
            start = time.perf_counter_ns()
            self._expect(ours(count), count)
            elapsed_ns = time.perf_counter_ns() - start
        return [count * self._scale * 1e9 / elapsed_ns]
