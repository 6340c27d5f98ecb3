#!/usr/bin/python3
"""A verbs program that owes nothing to this project: pyverbs and librdmacm, on the device of an address.

    verbs_program.py listen|connect ADDRESS PORT

Obeys commands, one line of JSON each, and answers likewise. Its memory: `shared` for its peer, `own` for
itself, `inbox` for messages.
"""

import json
import sys

import pyverbs.cm_enums as ce
from pyverbs import enums as e
from pyverbs.cmid import CMID, AddrInfo, ConnParam
from pyverbs.mr import MR
from pyverbs.qp import QPCap, QPInitAttr

BYTES = 1 << 18
ALL = e.IBV_ACCESS_LOCAL_WRITE | e.IBV_ACCESS_REMOTE_READ | e.IBV_ACCESS_REMOTE_WRITE


class Program:
    def __init__(self, role: str, address: str, port: str) -> None:
        attributes = QPInitAttr(qp_type=e.IBV_QPT_RC, cap=QPCap(max_send_wr=16, max_recv_wr=16))
        agreed = ConnParam(resources=4, depth=4)
        if role == "listen":
            place = AddrInfo(src=address, src_service=port, port_space=ce.RDMA_PS_TCP, flags=ce.RAI_PASSIVE)
            self.listener = CMID(creator=place, qp_init_attr=attributes)
            self.listener.listen()
            say({"listening": True})
            self.id = self.listener.get_request()
            owner = self.listener
        else:
            place = AddrInfo(dst=address, dst_service=port, port_space=ce.RDMA_PS_TCP)
            owner = self.id = CMID(creator=place, qp_init_attr=attributes)
        self.shared, self.own, self.inbox = (MR(owner.pd, BYTES, ALL) for _ in range(3))
        for _ in range(4):
            self.id.post_recv(self.inbox)
        self.context = owner.context
        if role == "listen":
            self.id.accept(agreed)
        else:
            self.id.connect(agreed)
        say({"connected": True})

    def memory(self) -> dict:
        return {"addr": self.shared.buf, "rkey": self.shared.rkey, "length": BYTES}

    def fill(self, which: str, content: str) -> None:
        data = bytes.fromhex(content)
        getattr(self, which).write(data, len(data))

    def content(self, which: str, length: int) -> str:
        return bytes(getattr(self, which).read(length, 0)).hex()

    def send(self, length: int) -> int:
        self.id.post_send(self.own, e.IBV_SEND_SIGNALED, length)
        return self.id.get_send_comp().status

    def write(self, addr: int, rkey: int, length: int) -> int:
        self.id.post_write(self.own, length, addr, rkey, e.IBV_SEND_SIGNALED)
        return self.id.get_send_comp().status

    def read(self, addr: int, rkey: int, length: int) -> int:
        self.id.post_read(self.own, length, addr, rkey, e.IBV_SEND_SIGNALED)
        return self.id.get_send_comp().status

    def received(self) -> tuple:
        completion = self.id.get_recv_comp()
        return completion.status, completion.byte_len

    def event(self) -> int:
        """The next asynchronous event; blocks until there is one."""
        event = self.context.get_async_event()
        event.ack()
        return event.event_type

    def disconnect(self) -> None:
        self.id.disconnect()


def say(answer) -> None:
    print(json.dumps(answer), flush=True)


def main() -> None:
    program = Program(*sys.argv[1:])
    for line in sys.stdin:
        name, arguments = json.loads(line)
        try:
            say({"value": getattr(program, name)(*arguments)})
        except Exception as problem:
            say({"problem": repr(problem)})


if __name__ == "__main__":
    main()
