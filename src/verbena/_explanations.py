"""What each failure means: the table behind `verbena.errors` and the errors reference page.
One row per completion status, by its verbs name, and per set-up failure; the likeliest cause comes first.
Texts hold for hardware and software wires alike. Depends on nothing else in the package."""

from __future__ import annotations

import os
import resource
import string
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Explanation:
    """What happened, why (likeliest cause first), what to do; `{fields}` are filled when a text is used."""

    code: str
    what: str
    causes: tuple[str, ...]
    remedy: str

    @property
    def fields(self) -> frozenset[str]:
        """The names that the texts leave open."""
        texts = (self.what, *self.causes, self.remedy)
        return frozenset(name for text in texts for _, name, _, _ in string.Formatter().parse(text) if name)

    def filled(self, values: Mapping[str, object]) -> Explanation:
        """The same with `values` in place of the fields; a field without a value reads "unknown"."""
        known = {name: str(values.get(name, "unknown")) for name in self.fields}
        causes = tuple(cause.format_map(known) for cause in self.causes)
        return Explanation(self.code, self.what.format_map(known), causes, self.remedy.format_map(known))


def _row(code: str, what: str, *causes: str, remedy: str) -> Explanation:
    return Explanation(code, what, causes, remedy)


_RELIABLE_DATAGRAM = "use a reliable connected (RC) queue pair: no present device offers reliable datagrams"

STATUSES = (
    _row(
        "SUCCESS",
        "the operation completed",
        "nothing is wrong",
        remedy="nothing to do; a WRITE tells the remote program nothing until a message or an immediate"
        " follows it",
    ),
    _row(
        "LOC_LEN_ERR",
        "a local buffer does not fit the message",
        "the peer sent more bytes than the posted receive holds",
        "the request is longer than the largest message the port carries",
        "an atomic was given a result buffer that is not 8 bytes long",
        remedy="post receives as long as the peer's longest message, split longer transfers, and reconnect",
    ),
    _row(
        "LOC_QP_OP_ERR",
        "the queue pair could not process the request",
        "the queue pair's type lacks the operation, such as READ or an atomic on anything but RC",
        "the work request is malformed: opcode, flags or scatter/gather list",
        "a UD request names an address handle of another protection domain",
        remedy="check the request against the queue pair's type and the device's capabilities,"
        " then reconnect",
    ),
    _row(
        "LOC_EEC_OP_ERR",
        "the end-to-end context could not process the request",
        "a reliable datagram context is inconsistent",
        remedy=_RELIABLE_DATAGRAM,
    ),
    _row(
        "LOC_PROT_ERR",
        "a local buffer is not covered by a valid memory region",
        "the address or length runs outside the region that the lkey names",
        "the region was deregistered before the request completed",
        "data would land in a region registered without LOCAL_WRITE",
        "the region belongs to another protection domain than the queue pair",
        remedy="keep the region registered until the completion, check its bounds, access and domain,"
        " and reconnect",
    ),
    _row(
        "WR_FLUSH_ERR",
        "the request was flushed: its queue pair had already failed or was being closed",
        "an earlier request on this queue pair failed, and that one's status is the real error",
        "the peer disconnected",
        "this side closed the queue pair or moved it to ERR",
        remedy="find the first completion that is not WR_FLUSH_ERR, cure that, reconnect,"
        " and repeat what did not complete",
    ),
    _row(
        "MW_BIND_ERR",
        "the memory window could not be bound",
        "the region was registered without MW_BIND",
        "the window asks for access that the region does not grant",
        "the window and the region belong to different protection domains",
        remedy="register the region with MW_BIND and all the access that the window hands on,"
        " in the same domain",
    ),
    _row(
        "BAD_RESP_ERR",
        "the peer's transport answered with something that fits no request",
        "the two ends disagree about the connection: a stale queue pair number or packet sequence number",
        "foreign or damaged packets reach this connection",
        "a firmware or driver fault on either side",
        remedy="reconnect with fresh queue pairs; if it comes back,"
        " compare firmware and driver versions at both ends",
    ),
    _row(
        "LOC_ACCESS_ERR",
        "a WRITE with immediate from the peer hit local memory that it may not write",
        "the target region was deregistered while the peer still used its rkey",
        "the region was registered without LOCAL_WRITE and REMOTE_WRITE",
        remedy="keep the region registered while the peer holds its key, grant both access flags,"
        " and reconnect",
    ),
    _row(
        "REM_INV_REQ_ERR",
        "the peer refused the request as invalid",
        "the message is longer than the receive that the peer posted",
        "the peer's queue pair does not allow it: READ, WRITE or atomics are off in its access flags",
        "more READs and atomics are in flight than the peer's max_dest_rd_atomic",
        "an atomic addresses memory that is not aligned to 8 bytes",
        remedy="match the peer's receive size, queue pair access flags and READ depth; align atomics to 8;"
        " reconnect",
    ),
    _row(
        "REM_ACCESS_ERR",
        "the peer refused access to its memory",
        "the rkey is wrong, or died when the peer deregistered the region",
        "the address or length runs outside the peer's region",
        "the region does not grant REMOTE_READ, REMOTE_WRITE or REMOTE_ATOMIC, whichever was needed",
        "the region belongs to another protection domain than the peer's queue pair",
        remedy="ask the peer for its present address, length and rkey, check the access it grants,"
        " and reconnect",
    ),
    _row(
        "REM_OP_ERR",
        "the peer could not finish the operation",
        "the peer's receive request is malformed or names memory that is no longer registered",
        "the peer's queue pair failed while it handled the request",
        remedy="read the peer's own completions and log, which hold the reason, then reconnect",
    ),
    _row(
        "RETRY_EXC_ERR",
        "the peer acknowledged nothing, and the retries ran out",
        "the peer died, closed its queue pair, or cannot be reached any more",
        "the connection's GID, GID index, path MTU or queue pair number is wrong",
        "the network drops RoCE packets: no PFC or ECN, or a firewall or ACL on UDP port 4791",
        "iwarp with TLS: one end refuses the other's certificate; the connection manager would say why",
        "timeout and retry_cnt are too small for this path",
        remedy="see that the peer is alive and reachable from this device, compare both ends' addressing,"
        " raise timeout or retry_cnt on a slow path, then reconnect",
    ),
    _row(
        "RNR_RETRY_EXC_ERR",
        "the peer had no receive posted, and the retries ran out",
        "the peer's program posts receives too late, too slowly or not at all",
        "more messages are in flight than the peer has receives: no credits are kept",
        "rnr_retry or the peer's min_rnr_timer is too small",
        remedy="post receives before connecting and keep as many as the peer may send;"
        " rnr_retry 7 waits for ever; reconnect",
    ),
    _row(
        "LOC_RDD_VIOL_ERR",
        "the reliable datagram domains do not match",
        "the queue pair and the end-to-end context belong to different reliable datagram domains",
        remedy=_RELIABLE_DATAGRAM,
    ),
    _row(
        "REM_INV_RD_REQ_ERR",
        "the peer refused a reliable datagram as invalid",
        "the datagram names a wrong Q_Key or a queue pair of another reliable datagram domain",
        remedy=_RELIABLE_DATAGRAM,
    ),
    _row(
        "REM_ABORT_ERR",
        "the peer aborted the operation",
        "the peer moved its queue pair or shared receive queue to an error state",
        "the peer's program gave the operation up",
        remedy="read the peer's log for why it gave up, then reconnect and repeat the request",
    ),
    _row(
        "INV_EECN_ERR",
        "the end-to-end context number is invalid",
        "the request names a reliable datagram context that does not exist",
        remedy=_RELIABLE_DATAGRAM,
    ),
    _row(
        "INV_EEC_STATE_ERR",
        "the end-to-end context is in the wrong state",
        "the reliable datagram context was not brought up, or has failed",
        remedy=_RELIABLE_DATAGRAM,
    ),
    _row(
        "FATAL_ERR",
        "the device failed and cannot go on",
        "the device or its driver was reset or removed",
        "a firmware, PCIe or memory fault",
        "a software wire's progress thread stopped on an internal error",
        remedy="read the kernel log (`dmesg`), close and reopen the device,"
        " and use another wire until it is back",
    ),
    _row(
        "RESP_TIMEOUT_ERR",
        "the peer's response did not come in time",
        "the peer is overloaded or stopped, for instance in a debugger",
        "the network stalls or loses packets",
        "the response timeout is too short for this path",
        remedy="see whether the peer still runs and answers, lengthen the timeout if it is merely slow,"
        " and reconnect",
    ),
    _row(
        "GENERAL_ERR",
        "the transport failed for a reason that it does not name",
        "the driver met a condition that verbs has no status for: the vendor code tells which",
        "an internal fault of the provider",
        remedy="look up the vendor code with the kernel log (`dmesg`) beside it, then reconnect",
    ),
    _row(
        "TM_ERR",
        "a tag-matching operation failed",
        "the tag list is full, or out of step with what software has added and removed",
        "the request names a tag handle that was already removed",
        remedy="bring the shared receive queue's tag list back in step, or match tags in software",
    ),
    _row(
        "TM_RNDV_INCOMPLETE",
        "the device matched a rendezvous message but did not fetch its data",
        "the device cannot finish this rendezvous by itself and leaves it to software",
        remedy="read the data from the sender with the address and rkey in the message's header,"
        " then tell the sender",
    ),
)

SETUP = (
    # This machine and its devices
    _row(
        "memlock",
        "the memory could not be locked: RLIMIT_MEMLOCK is {memlock_soft} (hard limit {memlock_hard})",
        "the limit is too low for this region: the process has {locked} locked and {pinned} pinned already",
        "the container or cgroup has too little memory to pin this much",
        remedy="raise the limit: `ulimit -l unlimited` in a shell, `LimitMEMLOCK=infinity` in a systemd unit,"
        " `memlock` lines in /etc/security/limits.d for logins,"
        " `--ulimit memlock=-1 --cap-add IPC_LOCK` for docker; or register less",
    ),
    _row(
        "huge_pages",
        "no huge page is free",
        "{huge_free} of {huge_total} huge pages of {huge_size} are free, and the arena needs more",
        "the cgroup's hugetlb limit is reached",
        remedy="reserve more with `sysctl -w vm.nr_hugepages=N`, best at boot, or set huge_pages to false",
    ),
    _row(
        "fd_limit",
        "no file descriptor is left: RLIMIT_NOFILE is {nofile_soft} (hard limit {nofile_hard})",
        "every connection, arena and armed completion queue holds descriptors, and too many are open",
        "objects are dropped without being closed",
        remedy="close what is idle, or raise the limit: `ulimit -n`, `LimitNOFILE=` in systemd,"
        " `--ulimit nofile=` for docker",
    ),
    _row(
        "no_device",
        "no such RDMA device is here",
        "this machine has no RDMA device",
        "its driver is not loaded (mlx5_ib, irdma, bnxt_re, rdma_rxe, siw …)",
        "the device's name is misspelt or has changed",
        "the container was not given /dev/infiniband",
        remedy="`verbena devices` lists what can be used; load the driver,"
        " pass `--device /dev/infiniband` to the container, or use a software wire: shm, iwarp or quic",
    ),
    _row(
        "port_down",
        "the device's port is not ACTIVE",
        "the cable is out, or the network interface beneath is down",
        "InfiniBand: no subnet manager runs, so the port stays in INIT",
        "the port's number is wrong",
        remedy="look at `rdma link` and `ip link`, bring the interface up,"
        " and on InfiniBand start a subnet manager (opensm)",
    ),
    _row(
        "no_gid",
        "the port has no usable GID at that index",
        "the GID index is wrong for the address family or RoCE version wanted",
        "RoCE: the network interface has no IP address, so its table holds no entry for one",
        remedy="choose an index from `verbena devices`, or give the interface an address;"
        " for RoCE v2 take a v2 entry",
    ),
    _row(
        "provider_missing",
        "the provider cannot be used here",
        "a library it loads at run time is not installed (libibverbs and librdmacm for ibv)",
        "this build was made without it",
        "the operating system lacks something it rests on",
        remedy="`verbena doctor` names the missing part;"
        " install it (rdma-core for ibv) or choose another provider",
    ),
    # The configuration
    _row(
        "bad_configuration",
        "the configuration is not valid",
        "a key or section is misspelt, or lies in another section",
        "a value is of the wrong kind, outside its range, or contradicts another",
        "the file is not TOML: a size such as 1GB must be in quotes, a switch is true or false",
        remedy="correct what is listed; `verbena config check` shows it all,"
        " `verbena config reference` explains every key",
    ),
    _row(
        "configuration_file",
        "the configuration file cannot be read",
        "the path is wrong: --config and VERBENA_CONFIG name a file that must be there",
        "this user may not read it, or not look into its folder: HOME may be another user's",
        remedy="check the path and its permissions, `namei -l PATH` shows each folder's; or name a file;"
        " `verbena config reference --sample > verbena.toml` writes a file to start from",
    ),
    # Reaching the peer
    _row(
        "address_in_use",
        "the address is in use already",
        "another process, perhaps an earlier run of this one, listens there",
        "the socket file of a process that has ended was left behind",
        remedy="find the holder with `ss -ltnp` (TCP), `ss -lunp` (UDP) or `ss -lxp` (Unix),"
        " or listen elsewhere; port 0 picks one",
    ),
    _row(
        "unreachable",
        "the address cannot be resolved or reached",
        "nothing listens there: the peer is not running, or has another port",
        "the host's name is wrong or unknown here",
        "there is no route, or a firewall refuses the connection",
        "ibv: the address does not belong to the device's network",
        remedy="check name and port, see that the peer listens (`ss -ltn` there),"
        " and test the route with `ip route get`",
    ),
    _row(
        "connect_timeout",
        "the peer did not answer in time",
        "the peer is down, or a firewall drops the packets silently",
        "the peer listens but its program does not accept",
        "the connection timeout is too short for this path",
        remedy="see that the peer runs and accepts, open the port in the firewall,"
        " or raise connection_timeout_ms",
    ),
    _row(
        "rejected",
        "the peer rejected the connection",
        "its program refused: the private data may say why",
        "nothing listens on that port or service ID",
        "its connection limit is reached, or it cannot offer the queue depths asked for",
        remedy="read the private data and the peer's log; check the port, and the peer's max_connections",
    ),
    _row(
        "credentials",
        "the peer is not who it must be",
        "the peer runs as another user; this process has uid {uid}",
        "the two ends hold different secrets or certificates",
        remedy="run both ends as the same user,"
        " or give both the same secret or certificates of one authority",
    ),
    _row(
        "tls_missing",
        "there is no TLS library for the iwarp wire",
        "OpenSSL 3 is not installed here",
        "its headers were not there when Verbena was built",
        remedy="install OpenSSL 3 (Debian: libssl3); to build, libssl-dev too, then install Verbena anew",
    ),
    _row(
        "tls_untrusted",
        "the peer's certificate comes from an authority that is not believed here",
        "the two ends have certificates of different authorities",
        "the peer does not send the certificates between its own and the authority's",
        "the certificate is self-signed, or not meant for this use",
        remedy="give both ends certificates of one authority, and its certificate as `authority`;"
        " `openssl verify -CAfile authority.pem peer.pem` shows what is missing",
    ),
    _row(
        "tls_revoked",
        "the peer's certificate has been taken back by its authority",
        "its serial number is on the list of revoked certificates that this end has",
        remedy="issue the peer a new certificate (`verbena cert issue`); if it was taken back by mistake,"
        " issue the list anew without it",
    ),
    _row(
        "tls_wrong_host",
        "the peer's certificate is for another host than the one that was called",
        "the certificate does not list this name or address as a subjectAltName",
        "the peer was called by an address, and its certificate has names only",
        "another machine answers at that address",
        remedy="call it by a name in its certificate, or issue one that lists every name and address it is"
        " called by (`openssl x509 -noout -ext subjectAltName -in peer.pem`); queue pairs that are connected"
        " by endpoints need the address",
    ),
    _row(
        "tls_plain_peer",
        "TLS is configured here, and the peer does not speak it",
        "the peer was opened without TLS",
        "something else listens on that port",
        remedy="open the peer's device with `tls` too, or neither; see IwarpOptions",
    ),
    _row(
        "tls_required",
        "the peer takes connections with TLS only",
        "the peer was opened with TLS and this end without",
        remedy="open this device with `tls` (certificate, key and authority), or set"
        " VERBENA_IWARP_TLS_CERTIFICATE, VERBENA_IWARP_TLS_KEY and VERBENA_IWARP_TLS_AUTHORITY",
    ),
    _row(
        "tls_refused",
        "the peer refused our certificate",
        "ours comes from an authority that the peer does not believe",
        "ours has expired, or is not meant for clients",
        "we have shown none, and the peer requires one",
        remedy="give this end a valid certificate of the authority that the peer believes,"
        " or set require_peer_certificate=False there",
    ),
    _row(
        "version_mismatch",
        "the peer speaks another version of the protocol",
        "the two ends run different releases of Verbena",
        "something else listens on that port",
        remedy="run the same release at both ends (`verbena --version`), and check the port",
    ),
    _row(
        "peer_died",
        "the peer's process is gone",
        "it crashed or was killed, for instance by the kernel for want of memory",
        "it exited without closing the connection",
        "its host went down or off the network",
        remedy="look at the peer's log and at `dmesg` on its host, start it again, and reconnect",
    ),
    _row(
        "peer_refused",
        "this end refused a request of the peer, and that ended the connection",
        "the peer used a key, a range or a right that it does not have",
        "the peer sent a message that found no receive, or one too short for it",
        remedy="look at what the peer posts and at the statuses it got, then reconnect",
    ),
    _row(
        "bad_message",
        "the peer sent something that is not valid in this protocol",
        "something that does not speak the protocol is at the other end",
        "the bytes were damaged on the way, and the checksum or length told",
        "one end has a fault, or runs another version",
        remedy="check what runs at that address and its version; if both are right,"
        " keep the detail and report a fault",
    ),
    _row(
        "not_permitted",
        "the kernel refused to let one process read or write the other's memory",
        "ptrace rules forbid process_vm_readv and _writev (kernel.yama.ptrace_scope is {ptrace_scope})",
        "the processes have different users, or the target is not dumpable",
        "the container's seccomp profile or PID namespace stands between them",
        remedy="keep the data in an arena, which needs no such permission;"
        " or set `sysctl kernel.yama.ptrace_scope=0`, or add CAP_SYS_PTRACE",
    ),
    # Sessions between nodes
    _row(
        "downgrade",
        "the server asks for less authentication than this client demands",
        "the server was started without the secret or certificates that the client was given",
        "someone between the two ends pretends to be the server",
        remedy="give the server the same authentication as the client; never take it from the client instead",
    ),
    _row(
        "no_common_wire",
        "the two nodes have no wire in common",
        "each end offers only wires that the other lacks, such as shm on different hosts",
        "the wire demanded is not offered by the server",
        remedy="`verbena devices` at both ends lists what each has; enable one that both have, such as iwarp",
    ),
    _row(
        "session_unknown",
        "the peer does not know this session",
        "the peer was restarted and lost its sessions",
        "the session was without a link for longer than the peer's resume_timeout_s",
        "the peer closed the session",
        remedy="open a new session and repeat what was not acknowledged; raise resume_timeout_s at the peer"
        " if outages last longer",
    ),
    _row(
        "peer_restarted",
        "the peer's process was restarted, so the session is lost",
        "its boot epoch is not the one with which the session was opened",
        "another process has taken over the peer's address",
        remedy="open a new session and repeat what was not acknowledged; see the peer's log for the reason",
    ),
    _row(
        "resume_timeout",
        "no link could be made for as long as the session may be without one",
        "the peer or the network was away for longer than resume_timeout_s",
        "every wire that both ends have is down: the detail says what was tried",
        remedy="cure what the detail names, then open a new session; raise resume_timeout_s to sit out"
        " longer outages",
    ),
    _row(
        "drill",
        "the wire was broken on purpose",
        "somebody exercises failover: break_link()",
        remedy="nothing to do: the session takes the next wire, and this one again later",
    ),
    _row(
        "session_failed",
        "the session has ended, and with it everything that waited for it",
        "the program closed the session, or its node",
        "the peer closed the session",
        "no wire could be had for as long as the session may be without one",
        remedy="open a new session and repeat what was not acknowledged;"
        " the session's `reason` says why it ended",
    ),
    _row(
        "pool_timeout",
        "no session of the pool became free in time",
        "borrowers keep their sessions longer than the others can wait",
        "max_connections is too small for the load",
        remedy="leave the `async with` block as soon as the session is not needed, raise max_connections, or"
        " wait longer",
    ),
    _row(
        "numpy_missing",
        "numpy is not installed, and far memory is made of numpy arrays",
        "Verbena was installed without its optional part",
        remedy="pip install numpy, or install verbena[numpy]",
    ),
    _row(
        "far_full",
        "the memory node has no free piece of that size",
        "other allocations take its memory: the detail says how much is free, and how much in one piece",
        remedy="free what is not needed, or give the memory node a larger --size",
    ),
    _row(
        "far_name_taken",
        "the memory node has an allocation of that name already",
        "it was made before, here or by another client, and named ones outlive their session",
        remedy="attach() to it, free it first, or choose another name",
    ),
    _row(
        "log_failed",
        "a file of the store could not be read or written",
        "the disk is full, or the directory belongs to somebody else",
        "the disk or its controller fails",
        remedy="make room or correct the rights; `df` and `dmesg` say more about the disk",
    ),
    _row(
        "log_corrupt",
        "the store's files are damaged, and are not used as they are",
        "the disk has changed or lost bytes that were written long ago",
        "somebody has changed, copied or deleted files of the directory",
        "a newer version of Verbena wrote them",
        remedy="restore them from a copy, or look with `verbena kv check DIR` and cut the damage off with"
        " `verbena kv repair DIR`, which keeps what it cuts",
    ),
    _row(
        "log_locked",
        "another process uses the store's directory",
        "a server runs with the same directory",
        "a server that ends has not let it go yet",
        remedy="give every server a directory of its own (kv.persistence.dir), or end the other one first",
    ),
    _row(
        "no_memory",
        "the store could not get memory for a key or a value",
        "the kernel refused to map more memory: RLIMIT_AS, the cgroup's limit or the machine's memory is used up",
        "RLIMIT_MEMLOCK is too low for the region that sessions read from (kv.one_sided)",
        "more keys share one hash than the index can hold",
        remedy="set `kv.maxmemory` below the memory that this process may use, delete keys, or raise the limit"
        " (`ulimit -v`, `ulimit -l`, the container's memory limit)",
    ),
    _row(
        "protocol_error",
        "the store's reply is not valid RESP",
        "another program than a Verbena store answers the `kv` methods of this session",
        "client and server run different versions of Verbena",
        remedy="run the same version at both ends (`verbena --version`), then open a new connection",
    ),
    _row(
        "denied",
        "the primary refused the replica",
        "the primary or the replica runs another version, or has another number of databases",
        "the replica's user may not replicate",
        remedy="read the detail, which is the primary's own reason, and correct it there or here;"
        " the replica tries again by itself",
    ),
    _row(
        "registry_folder",
        "the registry's folder cannot be used",
        "it cannot be made, read or written by this user",
        "registry.db in it is damaged, is no database, or was written by a newer version",
        remedy="check the path and its owner; `verbena registry check` says what is wrong inside",
    ),
    _row(
        "registry_locked",
        "another process serves the registry's folder",
        "a server that uses it is still running",
        remedy="give every server a folder of its own (registry.folder), or end the other one first",
    ),
    _row(
        "registry_missing",
        "a package that the registry's HTTP server needs is not installed",
        "Verbena was installed without its registry extra",
        remedy="pip install 'verbena[registry]'",
    ),
    _row(
        "registry_bucket",
        "the bucket of the registry's blobs cannot be used",
        "the store is not reachable, or knows no such bucket",
        "the access key is wrong, or may not read, write, list and delete there",
        "another registry has the same place in the bucket",
        "the folder's blobs are in a bucket, and none is named",
        remedy="check registry.s3: endpoint, bucket, region, access_key and secret_key; give every registry"
        " a prefix of its own",
    ),
    _row(
        "s3_missing",
        "a package that the registry needs for a bucket is not installed",
        "Verbena was installed without its s3 extra",
        "a profile is named, which the package boto3 reads",
        remedy="pip install 'verbena[s3]', and boto3 for profiles",
    ),
    _row(
        "far_unknown",
        "the memory node knows no such allocation",
        "it was freed, or the memory node was restarted and has forgotten it",
        "the name is misspelt, or the allocation belongs to another session",
        remedy="allocate it anew; `far.stat()` lists the names that there are",
    ),
    _row(
        "call_timeout",
        "the peer did not answer within the time given",
        "its handler takes longer, or waits for something itself",
        "the peer's event loop is busy, or the wire is being replaced",
        remedy="give it more time, or find out what the handler does;"
        " the peer has been told that nobody waits",
    ),
    _row(
        "remote_failure",
        "the peer's handler failed",
        "it raised an exception: the detail is what it said",
        remedy="read the detail, and the peer's log",
    ),
    _row(
        "no_such_method",
        "the peer has no handler of that name",
        "the name is misspelt, or the handler was not given to listen()",
        "the peer runs another version of the program",
        remedy="compare the name with those in the detail",
    ),
    _row(
        "peer_busy",
        "too much is under way on this session",
        "the peer serves as many requests of ours as it takes at once",
        "more messages wait here than the window lets out",
        remedy="await some answers before asking for more",
    ),
    _row(
        "region_denied",
        "the region is not there for this session",
        "it was revoked, or its program has ended",
        "it was exposed to another session only, or not for this kind of use",
        remedy="ask the peer for a region of this session, with the access that you need",
    ),
    _row(
        "message_too_long",
        "the message is longer than the other end takes",
        "the payload exceeds max_message_size at one of the ends",
        remedy="use put() and get() on a region for large data, or raise max_message_size at both ends",
    ),
    _row(
        "damaged",
        "the contents did not match their checksum, however often they were sent",
        "the memory was changed while it was being transferred",
        "memory or a device corrupts data",
        remedy="do not write to the buffer, nor to the peer's region, before the transfer is over;"
        " if nobody does, test the memory",
    ),
    _row(
        "stale_attempt",
        "the link request was used before",
        "an old request arrived after a newer one of the same session",
        "someone repeats a recorded request",
        remedy="dial again, which takes a fresh number; if nobody dialled, look for who repeats requests",
    ),
    # Shards
    _row(
        "bad_envelope",
        "a message about a shard cannot be read",
        "the peer runs another version",
        "it was cut off or changed on its way",
        remedy="run the same version on all nodes; if they do, look at the wire: `verbena doctor`",
    ),
    _row(
        "bad_checkpoint",
        "a migration's checkpoint cannot be read",
        "the disk has damaged it",
        "it was written by another version",
        remedy="remove the file: the cluster map knows who owns the slots, and the move begins anew",
    ),
    _row(
        "bad_cluster_map",
        "what the store holds is not a cluster map",
        "the store's URL names something else's key or file",
        "another version has written it",
        remedy="give the cluster a store, or a prefix, of its own: `cluster.map_store`",
    ),
    _row(
        "map_conflict",
        "somebody else changed the cluster map first",
        "two nodes, or two operators, changed it at the same time",
        "the member whose place is to be taken still holds its lease",
        remedy="look at the map (`verbena shards map`) and try again",
    ),
    _row(
        "map_refused",
        "the cluster map does not allow that",
        "it has changed since you looked",
        "a node is no member, owns slots still, or slots are being moved",
        remedy="look at the map: `verbena shards map`",
    ),
    _row(
        "map_store",
        "the cluster map's store cannot be used",
        "it does not run, or its address or path is wrong",
        "this process may not write there",
        remedy="check `cluster.map_store`; for etcd: `etcdctl endpoint health`",
    ),
    _row(
        "map_store_timeout",
        "the cluster map's store does not answer",
        "the network is partitioned, or etcd has no leader",
        remedy="check the path to etcd: `etcdctl endpoint health`",
    ),
    _row(
        "map_not_asked",
        "the cluster map's store did not answer in time, so it was not asked to change the map",
        "it is slow, or out of reach; another process has locked its file",
        remedy="try again; a move does so by itself, and commands waited no longer than they may",
    ),
    _row(
        "lease_lost",
        "the node's lease has ended",
        "the store was out of reach for longer than `cluster.node_timeout_ms`",
        "the process was stopped, or the machine slept",
        remedy="nothing: the node takes a new lease, and looks at the map before it serves again",
    ),
    _row(
        "not_ready",
        "the target is too far behind to take over",
        "more is written than the wire or the target takes",
        remedy="wait until it has caught up, or lower the load",
    ),
    _row(
        "move_failed",
        "the slots were not moved",
        "the target went away, or could not keep what it was sent",
        "writes would have waited longer than `cluster.write_pause_budget_ms`",
        remedy="the source still has them: read the detail, and move them again",
    ),
    # Certificates
    _row(
        "tls_file",
        "a TLS file cannot be used",
        "its path is wrong, or this process may not read it",
        "it is not PEM, or holds something other than what was asked for",
        "the private key is encrypted, and nobody is there to type a passphrase",
        remedy="check the path and its permissions; `openssl x509 -in FILE -noout -text` shows a certificate,"
        " `openssl pkey -in FILE -noout` checks a key",
    ),
    _row(
        "tls_key_mismatch",
        "the private key does not belong to the certificate",
        "one of the two files was renewed without the other",
        "the first certificate in the file is an authority's, not this node's own",
        remedy="put this node's certificate first; its public key (`openssl x509 -in FILE -noout -pubkey`)"
        " and the key's (`openssl pkey -in FILE -pubout`) must be the same",
    ),
    _row(
        "tls_expired",
        "a certificate is not valid at this time",
        "it has expired and was not renewed",
        "it is not valid yet, or this machine's clock is wrong",
        remedy="compare `openssl x509 -in FILE -noout -dates` with `date`, and renew the certificate",
    ),
    _row(
        "tls_handshake",
        "the two ends could not agree on TLS",
        "the certificate was issued by an authority that the other end does not trust",
        "the certificate is for another host name than the one dialled",
        "the server demands a client certificate, and none was given",
        "one end does not speak TLS, or only a version before 1.3",
        remedy="give both ends certificates of one authority and its `ca` file, and dial a name that the"
        " server's certificate holds",
    ),
    # How the program uses its objects
    _row(
        "closed",
        "the object has been closed",
        "close() was called, or a `with` block ended, while it was still in use",
        "its parent was closed, which closes all its children",
        remedy="open a new one, and keep it and its parents open for as long as they are used",
    ),
    _row(
        "bad_transition",
        "the queue pair cannot do that in its present state",
        "a step was skipped: the order is RESET, INIT, RTR, RTS",
        "the queue pair failed and is in ERR, which it leaves only by RESET",
        "a send was posted before RTS, or a receive before INIT",
        remedy="go through the states in order; after an error, reset the queue pair or make a new one",
    ),
    _row(
        "missing_attribute",
        "an attribute that this step needs is missing",
        "the transition was asked for without all that verbs requires of it",
        "an attribute that this transition does not take was given in place of the right one",
        remedy="give what the step requires: INIT the port and access; RTR the peer's address,"
        " queue pair number, packet number and path MTU; RTS the timeout, retries and packet number",
    ),
    _row(
        "queue_full",
        "the queue is full",
        "more requests were posted than have completed",
        "completions are not polled, so their slots do not come back",
        "all requests were unsignalled: slots come back only with the next signalled completion",
        remedy="poll completions and post again; signal at least one request per queue length;"
        " or make the queue deeper",
    ),
    _row(
        "cq_overrun",
        "the completion queue overflowed, and completions were lost",
        "the queue is smaller than the sum of all the queues that complete into it",
        "completions are polled too slowly",
        remedy="make the queue as large as all its send and receive queues together (cq_size),"
        " then build it and them anew",
    ),
    _row(
        "foreign_pd",
        "the objects belong to different protection domains",
        "the memory region was registered in another domain than the queue pair's",
        "two devices or contexts are in use, and their objects were mixed",
        remedy="register the memory in the queue pair's own domain; one buffer may be registered in several",
    ),
    _row(
        "buffer_readonly",
        "the buffer is read-only, and the access asked for writes to it",
        "a bytes object, a read-only array or a read-only mapping was given",
        "LOCAL_WRITE, REMOTE_WRITE or REMOTE_ATOMIC was asked for where reading would do",
        remedy="use a bytearray, a writable array or an arena, or ask for REMOTE_READ alone",
    ),
    _row(
        "buffer_not_contiguous",
        "the buffer's bytes do not lie side by side in memory",
        "the array is a strided, transposed or otherwise sliced view",
        "the object exports its data in several pieces",
        remedy="make a contiguous copy first (numpy.ascontiguousarray),"
        " or register the whole and give offsets",
    ),
    _row(
        "out_of_range",
        "the offset and length lie outside the memory region",
        "offset plus length is past the region's end, or one of them is negative",
        "the region is smaller than the program believes, for instance after its buffer was replaced",
        remedy="keep 0 <= offset and offset + length <= the region's length",
    ),
    _row(
        "limit_exceeded",
        "the request asks for more than the device or queue pair allows",
        "more scatter/gather entries, inline bytes or queue slots than the object was made for",
        "the device's own maximum is lower than the one configured",
        remedy="ask for less, or make the object larger, up to the maxima that `verbena devices` shows",
    ),
    _row(
        "invalid_argument",
        "an argument is not valid",
        "a value is of the wrong kind or outside what the operation takes",
        "two arguments contradict each other",
        remedy="correct the argument that the message names",
    ),
    # What a provider cannot do
    _row(
        "unsupported_opcode",
        "the provider does not have this operation",
        "the wire or device lacks it, such as atomics on older iWARP devices",
        "the queue pair's type does not carry it, such as READ on UC",
        remedy="ask `capabilities` before use, do it with operations that the provider has,"
        " or choose another provider",
    ),
    _row(
        "unsupported_provider",
        "the provider does not offer what was asked for",
        "the feature exists only on other wires",
        "the device, its firmware or its library is too old for it",
        remedy="compare the providers' capabilities with `verbena devices`, and choose one that has it",
    ),
)

EXPLANATIONS: Mapping[str, Explanation] = {row.code: row for row in STATUSES + SETUP}


def unknown(code: str) -> Explanation:
    """What can be said about a code that the table lacks."""
    return Explanation(
        code,
        "an error that this version of Verbena has no explanation for",
        ("a driver, a library or a newer native core reports a code that came after this version",),
        "look the code up in the provider's documentation, or upgrade Verbena",
    )


def values_here(code: str) -> dict[str, str]:
    """This process's and machine's present values for the fields in a code's texts."""
    read = _VALUES.get(code)
    return read() if read else {}


def _memlock() -> dict[str, str]:
    soft, hard = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    status = _table("/proc/self/status")
    return {
        "memlock_soft": _size(soft),
        "memlock_hard": _size(hard),
        "locked": status.get("VmLck", "unknown"),
        "pinned": status.get("VmPin", "unknown"),
    }


def _huge_pages() -> dict[str, str]:
    names = {"huge_free": "HugePages_Free", "huge_total": "HugePages_Total", "huge_size": "Hugepagesize"}
    meminfo = _table("/proc/meminfo")
    return {field: meminfo.get(name, "unknown") for field, name in names.items()}


def _nofile() -> dict[str, str]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    return {"nofile_soft": _count(soft), "nofile_hard": _count(hard)}


def _ptrace() -> dict[str, str]:
    return {"ptrace_scope": _text("/proc/sys/kernel/yama/ptrace_scope").strip() or "not set"}


_VALUES: Mapping[str, Callable[[], dict[str, str]]] = {
    "memlock": _memlock,
    "huge_pages": _huge_pages,
    "fd_limit": _nofile,
    "not_permitted": _ptrace,
    "credentials": lambda: {"uid": str(os.getuid())},
}


def _text(path: str) -> str:
    try:
        return Path(path).read_text()
    except OSError:  # When descriptors have run out, this is the failure being explained.
        return ""


def _table(path: str) -> dict[str, str]:
    rows = (line.partition(":") for line in _text(path).splitlines())
    return {name: value.strip().replace(" kB", " KiB") for name, _, value in rows}


def _count(limit: int) -> str:
    return "unlimited" if limit == resource.RLIM_INFINITY else str(limit)


def _size(limit_bytes: int) -> str:
    if limit_bytes == resource.RLIM_INFINITY:
        return "unlimited"
    for unit, shift in (("GiB", 30), ("MiB", 20), ("KiB", 10)):
        if limit_bytes and limit_bytes % (1 << shift) == 0:
            return f"{limit_bytes >> shift} {unit}"
    return f"{limit_bytes} bytes"
