"""A peer without any code of this project: rdma-core's own pyverbs, run by the distribution's interpreter.

Executes one JSON object per line, {"do": name, …}, and answers each with one line. See pyverbs_peer.py.
"""

import json
import socket
import sys

import pyverbs.enums as e
from pyverbs.addr import GID, AHAttr, GlobalRoute
from pyverbs.cq import CQ
from pyverbs.device import Context
from pyverbs.mr import MR
from pyverbs.pd import PD
from pyverbs.qp import QP, QPAttr, QPCap, QPInitAttr
from pyverbs.wr import SGE, RecvWR, SendWR

PSN = 0xABCDE
IPV4 = 1  # index of the address in the GID table of the guest's devices
ALL = (
    e.IBV_ACCESS_LOCAL_WRITE
    | e.IBV_ACCESS_REMOTE_WRITE
    | e.IBV_ACCESS_REMOTE_READ
    | e.IBV_ACCESS_REMOTE_ATOMIC
)
WITH_IMMEDIATE = (e.IBV_WR_SEND_WITH_IMM, e.IBV_WR_RDMA_WRITE_WITH_IMM)
ATOMICS = (e.IBV_WR_ATOMIC_CMP_AND_SWP, e.IBV_WR_ATOMIC_FETCH_AND_ADD)


class Peer:
    def __init__(self, device):
        self.context = Context(name=device)
        self.pd = PD(self.context)
        self.other_pd = PD(self.context)
        self.cq = self.recv_cq = self.qp = None
        self.regions = []

    def open(self):
        """Replaces the queue pair by a new one; the regions of the old one are closed too."""
        for old in (self.qp, self.cq, self.recv_cq, *self.regions):
            if old is not None:
                old.close()
        self.regions = []
        self.cq, self.recv_cq = CQ(self.context, 64), CQ(self.context, 64)
        cap = QPCap(max_send_wr=16, max_recv_wr=16, max_send_sge=1, max_recv_sge=1)
        init = QPInitAttr(qp_type=e.IBV_QPT_RC, scq=self.cq, rcq=self.recv_cq, cap=cap)
        self.qp = QP(self.pd, init)
        gid = self.context.query_gid(port_num=1, index=IPV4)
        return {"gid": str(gid), "qp_num": self.qp.qp_num, "psn": PSN}

    def connect(self, gid, qp_num, psn, access=ALL, timeout=14, retry_count=7, rnr_retry=7):
        attr = QPAttr(port_num=1)
        attr.qp_access_flags = access
        self.qp.to_init(attr)
        route = GlobalRoute(dgid=GID(gid), sgid_index=IPV4)
        attr.ah_attr = AHAttr(gr=route, is_global=1, port_num=1)
        attr.path_mtu = e.IBV_MTU_1024
        attr.dest_qp_num, attr.rq_psn, attr.sq_psn = qp_num, psn, PSN
        attr.max_dest_rd_atomic = attr.max_rd_atomic = 4
        attr.min_rnr_timer = 12
        attr.timeout, attr.retry_cnt, attr.rnr_retry = timeout, retry_count, rnr_retry
        self.qp.to_rts(attr)

    def region(self, content, access=ALL, other_domain=False):
        data = bytes.fromhex(content)
        mr = MR(self.other_pd if other_domain else self.pd, len(data), access)
        mr.write(data, len(data))
        self.regions.append(mr)
        return {"index": len(self.regions) - 1, "addr": mr.buf, "rkey": mr.rkey, "length": len(data)}

    def content(self, index, length):
        return self.regions[index].read(length, 0).hex()

    def receive(self, index, length, wr_id):
        sge = [SGE(self.regions[index].buf, length, self.regions[index].lkey)]
        self.qp.post_recv(RecvWR(wr_id=wr_id, num_sge=1, sg=sge))

    def send(self, opcode, index, length, addr=0, rkey=0, immediate=0, compare_add=0, swap=0):
        sge = [SGE(self.regions[index].buf, length, self.regions[index].lkey)]
        wr = SendWR(opcode=opcode, num_sge=1, sg=sge, send_flags=e.IBV_SEND_SIGNALED)
        if opcode in WITH_IMMEDIATE:
            wr.imm_data = socket.htonl(immediate)
        if opcode in ATOMICS:
            wr.set_wr_atomic(rkey, addr, compare_add, swap)
        elif opcode != e.IBV_WR_SEND:
            wr.set_wr_rdma(rkey, addr)
        self.qp.post_send(wr)

    def poll(self, receives):
        """The completions: number, status, length, and the immediate if there is one."""
        _, found = (self.recv_cq if receives else self.cq).poll(16)
        return [
            [
                wc.wr_id,
                wc.status,
                wc.byte_len,
                socket.ntohl(wc.imm_data) if wc.wc_flags & e.IBV_WC_WITH_IMM else None,
            ]
            for wc in found
        ]


def main():
    peer = Peer(sys.argv[1])
    print(json.dumps("ready"), flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        answer = getattr(peer, request.pop("do"))(**request)
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
