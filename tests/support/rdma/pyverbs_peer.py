"""The handle of pyverbs_main.py: a peer process without Verbena's code, at the other end of the cable."""

from __future__ import annotations

import ipaddress
import json
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Any

from support.rdma.link import End, make_end, wait_until
from verbena.errors import WcStatus
from verbena.verbs import Endpoint, Gid, Opcode, RemoteMemory, open_device

MAIN = Path(__file__).with_name("pyverbs_main.py")
INTERPRETER = "/usr/bin/python3"  # the distribution's interpreter, which has pyverbs
OURS, THEIRS = "ibv:rxe1", "rxe2"


class PyverbsPeer:
    """Each attribute is a command of pyverbs_main.Peer, with keyword arguments."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [INTERPRETER, str(MAIN), THEIRS], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self._answer()

    def __getattr__(self, name: str) -> Any:
        def call(**arguments: Any) -> Any:
            assert self.process.stdin is not None
            self.process.stdin.write(json.dumps({"do": name, **arguments}) + "\n")
            self.process.stdin.flush()
            return self._answer()

        return call

    def memory(self, content: bytes, **options: Any) -> tuple[int, RemoteMemory]:
        """Registers memory at the peer. Returns its number there and its RemoteMemory."""
        said = self.region(content=content.hex(), **options)
        return said["index"], RemoteMemory(said["addr"], said["rkey"], said["length"])

    def bytes_of(self, index: int, length: int) -> bytes:
        return bytes.fromhex(self.content(index=index, length=length))

    def do(
        self, opcode: Opcode, index: int, length: int, remote: RemoteMemory | None = None, **more: int
    ) -> WcStatus:
        """Posts one request at the peer and waits for its status."""
        where = {"addr": remote.addr, "rkey": remote.rkey} if remote else {}
        self.send(opcode=int(opcode), index=index, length=length, **where, **more)
        return WcStatus(self.completions(1)[0][1])

    def completions(self, count: int, *, receives: bool = False) -> list[list[Any]]:
        found: list[list[Any]] = []

        def enough() -> bool:
            found.extend(self.poll(receives=receives))
            return len(found) >= count

        wait_until(enough, f"{count} completions at the peer")
        return found

    def close(self) -> None:
        self.process.kill()
        self.process.communicate()

    def __enter__(self) -> PyverbsPeer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _answer(self) -> Any:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, f"pyverbs ended with {self.process.wait()}; its complaint is above"
        return json.loads(line)


def meet(peer: PyverbsPeer, ours: dict[str, int] | None = None, theirs: dict[str, int] | None = None) -> End:
    """A local end, connected to a new queue pair of the peer by exchanging numbers. Either side may have
    attributes of its own."""
    end = make_end(open_device(OURS))
    said = peer.open()
    gid = ipv4_gid(end)
    exploded = ipaddress.IPv6Address(bytes(gid)).exploded
    peer.connect(gid=exploded, qp_num=end.qp.number, psn=end.qp.endpoint.psn, **(theirs or {}))
    end.qp.connect_to(Endpoint(Gid.parse(said["gid"]), said["qp_num"], said["psn"], 0), **(ours or {}))
    return end


def ipv4_gid(end: End) -> Gid:
    """The index of the cable's address in the GID table."""
    return next(
        gid
        for gid in end.context.attributes.ports[0].gids
        if ipaddress.IPv6Address(bytes(gid)).ipv4_mapped is not None
    )
