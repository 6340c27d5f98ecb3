"""How to tell a failure's causes apart: for each, the look that decides, in the order of the causes.
Beside _explanations.py, whose codes these are; depends on nothing else in the package."""

from __future__ import annotations

from collections.abc import Mapping

TELLING_APART: Mapping[str, tuple[str, ...]] = {
    "LOC_LEN_ERR": (
        "is it a receive's completion? Then the peer's message was longer than that receive",
        "is it a send's? Compare its length with the port's max_msg_sz in `verbena devices -v`",
        "is it an atomic's? Its local buffer must be exactly 8 bytes",
    ),
    "LOC_PROT_ERR": (
        "print the request's address and length beside the region's: one byte outside is enough",
        "was close() called on the region, or was it garbage collected, before the completion came?",
        "a READ, a receive and an atomic write locally: look for LOCAL_WRITE in the region's access",
        "compare `region.pd` with `qp.pd`",
    ),
    "WR_FLUSH_ERR": (
        "list the completions in order: the first with another status is the one to explain",
        "no other status, and the connection's state is DISCONNECTED: the peer left",
        "no other status, and this program closed the queue pair or its parent: expected",
    ),
    "REM_INV_REQ_ERR": (
        "was it a SEND? Compare its length with the receives that the peer posts",
        "was it a READ, WRITE or atomic? Look at the access flags of the peer's queue pair, not its region's",
        "does it fail only with many READs in flight? Then it is max_dest_rd_atomic",
        "was it an atomic? Its remote address must divide by 8",
    ),
    "REM_ACCESS_ERR": (
        "did it work before? Then the peer deregistered: ask it for the key anew",
        "compare remote address and length with what the peer exposed",
        "does the other direction work (READ but not WRITE)? Then it is the access flags",
        "at the peer, compare the region's domain with the queue pair's",
    ),
    "RETRY_EXC_ERR": (
        "is the peer's process alive, and does `verbena doctor --peer HOST:PORT` reach it by TCP?",
        "does not even the first message pass? Compare both ends' GID, index and MTU (`verbena devices -v`)",
        "do small messages pass and large ones fail? Then it is the MTU, or packets lost under load: look at"
        " `rdma statistic` and the interface's counters on both ends, and at the switch's for PFC and ECN",
        "iwarp with TLS: the peer's log names the certificate that it refused",
        "does it fail only on the far or busy path, after a time that grows with timeout and retry_cnt?",
    ),
    "RNR_RETRY_EXC_ERR": (
        "does it fail at the first message? The peer posts its receives after connecting: post them before",
        "does it fail under load only? Count the receives that are posted against the messages in flight",
        "does it pass with rnr_retry 7? Then the peer was merely late",
    ),
    "memlock": (
        "does `ulimit -l` print a number? Raise it. In a service it is that of the unit, not of your shell",
        "is it `unlimited` and fails all the same? Then it is the container's or cgroup's memory:"
        " `cat /sys/fs/cgroup/memory.max`",
    ),
    "no_device": (
        "`ls /sys/class/infiniband` is empty, and `lspci | grep -iE 'mellanox|infiniband|ethernet'` shows no"
        " RDMA adapter: there is none",
        "lspci shows the adapter, and `lsmod | grep -E 'mlx5_ib|irdma|bnxt_re'` nothing: load its driver",
        "`rdma link` lists a device of another name: use that, or auto",
        "the host lists it and the container does not: it was not handed in",
    ),
    "port_down": (
        "`ip link` says NO-CARRIER: the cable, or the other end; DOWN: bring it up",
        "`rdma link` says INIT on InfiniBand: a subnet manager is missing",
        "`rdma link` lists another port as ACTIVE: use that number",
    ),
    "no_gid": (
        "`verbena devices -v` lists the entries with their types: does the index exist, and is it RoCE v2?",
        "`ip address` shows no address on the interface beneath: give it one, the entry follows",
    ),
    "connect_timeout": (
        "does `verbena doctor --peer HOST:PORT` reach the port by TCP? If not, host, firewall or route",
        "TCP passes and RDMA does not: UDP port 4791 (RoCE v2) or the wire's own port is filtered, or the GID"
        " has no route to the peer",
        "it passes at times: the peer is overloaded, or packets are lost",
    ),
    "unreachable": (
        "refused at once: nobody listens at that port, or a firewall rejects",
        "no answer until the time is up: a firewall drops, or the host is down (`ping HOST`)",
        "the name cannot be resolved: `getent hosts HOST`",
    ),
    "address_in_use": ("`ss -ltnp` names the process that listens there",),
    "credentials": (
        "compare `sha256sum` of both ends' secret files: a newline more is another secret",
        "is the address not loopback and the secret empty? Then nothing was compared at all",
    ),
    "resume_timeout": (
        "the peer's log says that it ended: start it again",
        "the peer lives: `verbena doctor --peer HOST:PORT` says which wire is broken",
    ),
    "cq_overrun": ("sum the depths of all queues that complete into it: is it more than cq_size?",),
}
