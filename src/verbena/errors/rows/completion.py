"""Completion statuses, with the names of ibv_wc_status."""

from __future__ import annotations

from verbena.errors.classes import (
    BrokenLinkError,
    DeniedError,
    ProtocolError,
    StateError,
    TimedOutError,
    UnavailableError,
    UnsupportedError,
)
from verbena.errors.explanation import Explanation

_RELIABLE_DATAGRAM = "use a reliable connected (RC) queue pair: no current device has reliable datagrams"

ROWS = (
    Explanation(
        "SUCCESS",
        None,
        what="the operation completed",
        causes=("this is not a failure",),
        remedy="no action is needed; a WRITE does not notify the remote program, so send a message or an"
        " immediate after it if the program must act on the data",
    ),
    Explanation(
        "LOC_LEN_ERR",
        StateError,
        what="a local buffer does not fit the message",
        causes=(
            "the peer sent more bytes than the posted receive holds",
            "the request is longer than the port's largest message",
            "the result buffer of an atomic is not 8 bytes long",
        ),
        remedy="post receives as long as the peer's longest message, split longer transfers, and reconnect",
        checks=(
            "the failed completion is of a receive: the peer's message was longer than that receive",
            "the failed completion is of a send: compare its length with max_msg_sz in `verbena devices -v`",
            "the failed completion is of an atomic: check that its local buffer is exactly 8 bytes long",
        ),
    ),
    Explanation(
        "LOC_QP_OP_ERR",
        StateError,
        what="the queue pair could not process the request",
        causes=(
            "the queue pair's type lacks the operation: READ and atomics need RC",
            "the opcode, the flags or the scatter/gather list of the work request is invalid",
            "a UD request uses an address handle of another protection domain",
        ),
        remedy="compare the request with the queue pair's type and with `verbena devices -v`, correct it,"
        " and reconnect",
    ),
    Explanation(
        "LOC_EEC_OP_ERR",
        UnsupportedError,
        what="the end-to-end context could not process the request",
        causes=("a reliable datagram context is inconsistent",),
        remedy=_RELIABLE_DATAGRAM,
    ),
    Explanation(
        "LOC_PROT_ERR",
        DeniedError,
        what="a local buffer is not covered by a valid memory region",
        causes=(
            "the address or the length is outside the region that the lkey names",
            "the region was deregistered before the request completed",
            "the request writes to a region that was registered without LOCAL_WRITE",
            "the region and the queue pair belong to different protection domains",
        ),
        remedy="keep the region registered until the completion arrives, check its bounds, access flags and"
        " protection domain, and reconnect",
        checks=(
            "print the request's address and length beside the region's: one byte outside is enough to fail",
            "the program closed the region, or Python collected it, before the completion arrived: keep a"
            " reference to the region",
            "the request is a READ, a receive or an atomic: it writes locally and needs LOCAL_WRITE",
            "`region.pd` differs from `qp.pd`: register the buffer in the queue pair's domain",
        ),
    ),
    Explanation(
        "WR_FLUSH_ERR",
        BrokenLinkError,
        what="the request was flushed because its queue pair had failed or was being closed",
        causes=(
            "an earlier request on this queue pair failed, and the status of that request is the real error",
            "the peer disconnected",
            "this side closed the queue pair or moved it to ERR",
        ),
        remedy="find the first completion with another status than WR_FLUSH_ERR and fix its cause; then"
        " reconnect and repeat the requests that did not complete",
        checks=(
            "list the completions in order: the first one with another status is the one to explain",
            "all statuses are WR_FLUSH_ERR and the connection's state is DISCONNECTED: the peer disconnected",
            "all statuses are WR_FLUSH_ERR and this program closed the queue pair or its parent: this is the"
            " expected result",
        ),
    ),
    Explanation(
        "MW_BIND_ERR",
        DeniedError,
        what="the memory window could not be bound",
        causes=(
            "the region was registered without MW_BIND",
            "the window requests access that the region does not grant",
            "the window and the region belong to different protection domains",
        ),
        remedy="register the region with MW_BIND and every access flag of the window, in the window's"
        " protection domain",
    ),
    Explanation(
        "BAD_RESP_ERR",
        ProtocolError,
        what="the peer's transport sent a response that matches no request",
        causes=(
            "the two ends use different queue pair numbers or packet sequence numbers, such as after a"
            " restart",
            "packets of another connection, or damaged packets, reach this queue pair",
            "the firmware or driver of one end has a fault",
        ),
        remedy="reconnect with new queue pairs; if the error returns, compare the firmware and driver"
        " versions of both ends (`verbena devices -v`)",
    ),
    Explanation(
        "LOC_ACCESS_ERR",
        DeniedError,
        what="a WRITE with immediate from the peer addressed local memory that it may not write",
        causes=(
            "the region was deregistered while the peer still used its rkey",
            "the region was registered without LOCAL_WRITE and REMOTE_WRITE",
        ),
        remedy="keep the region registered while the peer holds its rkey, register it with LOCAL_WRITE and"
        " REMOTE_WRITE, and reconnect",
    ),
    Explanation(
        "REM_INV_REQ_ERR",
        StateError,
        what="the peer refused the request as invalid",
        causes=(
            "the message is longer than the receive that the peer posted",
            "the access flags of the peer's queue pair do not allow READ, WRITE or atomics",
            "more READs and atomics are in flight than the peer's max_dest_rd_atomic",
            "the remote address of an atomic is not aligned to 8 bytes",
        ),
        remedy="make the peer's receives as long as the message, set the access flags and max_dest_rd_atomic"
        " of its queue pair, align atomics to 8 bytes, and reconnect",
        checks=(
            "the request was a SEND: compare its length with the receives that the peer posts",
            "the request was a READ, WRITE or atomic: check the access flags of the peer's queue pair, which"
            " are separate from those of its region",
            "the request fails only with many READs in flight: raise the peer's max_dest_rd_atomic",
            "the request was an atomic: check that its remote address is a multiple of 8",
        ),
    ),
    Explanation(
        "REM_ACCESS_ERR",
        DeniedError,
        what="the peer refused access to its memory",
        causes=(
            "the rkey is wrong, or the peer has deregistered the region",
            "the address or the length is outside the peer's region",
            "the region was registered without the required REMOTE_READ, REMOTE_WRITE or REMOTE_ATOMIC",
            "the region and the peer's queue pair belong to different protection domains",
        ),
        remedy="get the current address, length and rkey from the peer, check the access flags of its region,"
        " and reconnect",
        checks=(
            "the same request worked before: the peer has deregistered the region, so get the new rkey",
            "compare the remote address and length with the region that the peer exposed",
            "READ works and WRITE fails, or the reverse: the region lacks an access flag",
            "at the peer, compare `region.pd` with `qp.pd`",
        ),
    ),
    Explanation(
        "REM_OP_ERR",
        BrokenLinkError,
        what="the peer could not finish the operation",
        causes=(
            "the peer's receive is invalid, or its memory is no longer registered",
            "the peer's queue pair failed while it processed the request",
        ),
        remedy="read the peer's completions and log, which hold the reason, then reconnect",
    ),
    Explanation(
        "RETRY_EXC_ERR",
        BrokenLinkError,
        what="the peer acknowledged nothing, and the retries ran out",
        causes=(
            "the peer's process has ended, its queue pair is closed, or its host is unreachable",
            "the GID, GID index, path MTU or queue pair number of the connection is wrong",
            "the network drops RoCE packets: PFC or ECN is off, or a firewall or ACL blocks UDP port 4791",
            "iwarp with TLS: one end refuses the other's certificate",
            "timeout and retry_cnt are too small for this path",
        ),
        remedy="check that the peer runs (`verbena doctor --peer HOST:PORT`), allow UDP port 4791 in every"
        " firewall, compare GID, GID index and MTU of both ends (`verbena devices -v`), raise timeout or"
        " retry_cnt on a slow path, and reconnect",
        checks=(
            "`verbena doctor --peer HOST:PORT` does not reach the port over TCP: the peer's process has ended"
            " or its host is unreachable",
            "the first message of the connection fails: compare GID, GID index and MTU of both ends"
            " (`verbena devices -v`)",
            "small messages arrive and large ones fail: the MTU is wrong or packets are lost under load; read"
            " `rdma statistic` and `ip -s link` at both ends, and the switch's PFC and ECN counters",
            "iwarp with TLS: the peer's log names the certificate that it refused",
            "only the longest or busiest path fails, and it fails later after raising timeout: the values"
            " were too small",
        ),
    ),
    Explanation(
        "RNR_RETRY_EXC_ERR",
        BrokenLinkError,
        what="the peer had no receive posted, and the retries ran out",
        causes=(
            "the peer's program posts receives too late, too slowly or never",
            "more messages are in flight than the peer has posted receives",
            "rnr_retry or the peer's min_rnr_timer is too small",
        ),
        remedy="post receives before connecting, keep one posted for every message that the peer may have in"
        " flight, or set rnr_retry to 7, which retries without limit; then reconnect",
        checks=(
            "the first message fails: the peer posts its receives after connecting",
            "messages fail under load only: compare the number of posted receives with the messages in"
            " flight",
            "the program works with rnr_retry 7: the peer posted its receives late",
        ),
    ),
    Explanation(
        "LOC_RDD_VIOL_ERR",
        UnsupportedError,
        what="the reliable datagram domains do not match",
        causes=("the queue pair and the end-to-end context belong to different reliable datagram domains",),
        remedy=_RELIABLE_DATAGRAM,
    ),
    Explanation(
        "REM_INV_RD_REQ_ERR",
        UnsupportedError,
        what="the peer refused a reliable datagram as invalid",
        causes=("the datagram has a wrong Q_Key or a queue pair of another reliable datagram domain",),
        remedy=_RELIABLE_DATAGRAM,
    ),
    Explanation(
        "REM_ABORT_ERR",
        BrokenLinkError,
        what="the peer aborted the operation",
        causes=(
            "the peer moved its queue pair or shared receive queue to an error state",
            "the peer's program cancelled the operation",
        ),
        remedy="read the peer's log for the reason, then reconnect and repeat the request",
    ),
    Explanation(
        "INV_EECN_ERR",
        UnsupportedError,
        what="the end-to-end context number is invalid",
        causes=("the request names a reliable datagram context that does not exist",),
        remedy=_RELIABLE_DATAGRAM,
    ),
    Explanation(
        "INV_EEC_STATE_ERR",
        UnsupportedError,
        what="the end-to-end context is in the wrong state",
        causes=("the reliable datagram context was not set up, or has failed",),
        remedy=_RELIABLE_DATAGRAM,
    ),
    Explanation(
        "FATAL_ERR",
        UnavailableError,
        what="the device failed and cannot continue",
        causes=(
            "the device or its driver was reset or removed",
            "the firmware, PCIe or memory has a fault",
            "the progress thread of a software wire stopped on an internal error",
        ),
        remedy="read the kernel log (`dmesg`), close and reopen the device, and use another wire until the"
        " device works again",
    ),
    Explanation(
        "RESP_TIMEOUT_ERR",
        TimedOutError,
        what="the peer's response did not arrive in time",
        causes=(
            "the peer is overloaded or stopped, such as in a debugger",
            "the network stalls or loses packets",
            "the response timeout is too short for this path",
        ),
        remedy="check that the peer runs (`verbena doctor --peer HOST:PORT`), lengthen the timeout if it is"
        " slow, and reconnect",
    ),
    Explanation(
        "GENERAL_ERR",
        BrokenLinkError,
        what="the transport failed for a reason that it does not name",
        causes=(
            "the driver met a condition without a verbs status: the vendor code in the detail identifies it",
            "the provider has an internal fault",
        ),
        remedy="look up the vendor code in the driver's documentation, read the kernel log (`dmesg`), and"
        " reconnect",
    ),
    Explanation(
        "TM_ERR",
        StateError,
        what="a tag-matching operation failed",
        causes=(
            "the tag list is full, or differs from the tags that software has added and removed",
            "the request names a tag handle that was already removed",
        ),
        remedy="rebuild the tag list of the shared receive queue, or match tags in software",
    ),
    Explanation(
        "TM_RNDV_INCOMPLETE",
        UnsupportedError,
        what="the device matched a rendezvous message but did not fetch its data",
        causes=("the device cannot finish this rendezvous and leaves it to software",),
        remedy="read the data from the sender with the address and rkey in the message's header, then notify"
        " the sender",
    ),
)
