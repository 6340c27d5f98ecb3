"""Sessions between nodes, calls, regions, and far memory."""

from __future__ import annotations

from verbena.errors.classes import (
    BrokenLinkError,
    BusyError,
    DeniedError,
    ProtocolError,
    RemoteError,
    StateError,
    TimedOutError,
    UnavailableError,
    UnsupportedError,
)
from verbena.errors.explanation import Explanation

ROWS = (
    Explanation(
        "downgrade",
        DeniedError,
        what="the server requests less authentication than this client requires",
        causes=(
            "the server was started without the secret or certificates that the client has",
            "an attacker between the two ends poses as the server",
        ),
        remedy="give the server the client's `session.secret_file` or a certificate of its authority; do not"
        " remove the secret or certificate from the client",
    ),
    Explanation(
        "no_common_wire",
        UnavailableError,
        what="the two nodes have no wire in common",
        causes=(
            "each end offers only wires that the other lacks, such as shm on different hosts",
            "the server does not offer the wire that the client requires",
        ),
        remedy="run `verbena devices` at both ends, and enable a wire that both have, such as iwarp"
        ' (`network.rdma_fallback = "tcp"`)',
    ),
    Explanation(
        "session_unknown",
        BrokenLinkError,
        what="the peer does not know this session",
        causes=(
            "the peer was restarted and lost its sessions",
            "the session had no link for longer than the peer's `session.resume_timeout_s`",
            "the peer closed the session",
        ),
        remedy="open a new session and repeat what was not acknowledged; if outages last longer, raise"
        " `session.resume_timeout_s` at the peer",
    ),
    Explanation(
        "peer_restarted",
        BrokenLinkError,
        what="the peer's process was restarted, so the session is lost",
        causes=(
            "the peer's boot epoch differs from the one with which the session was opened",
            "another process now listens at the peer's address",
        ),
        remedy="open a new session and repeat what was not acknowledged; read the peer's log for the reason"
        " of the restart",
    ),
    Explanation(
        "resume_timeout",
        BrokenLinkError,
        what="the session had no link for longer than `session.resume_timeout_s`",
        causes=(
            "the peer or the network was down for longer than `session.resume_timeout_s`",
            "every wire that both ends have is down: the detail lists the attempts",
        ),
        remedy="fix what the detail names, then open a new session; to survive longer outages raise"
        " `session.resume_timeout_s`",
        checks=(
            "the peer's log reports that it ended: start it again",
            "the peer runs: `verbena doctor --peer HOST:PORT` reports which wire is broken",
        ),
    ),
    Explanation(
        "drill",
        BrokenLinkError,
        what="the link was broken on purpose",
        causes=("a failover drill runs: `verbena failover-drill` or break_link()",),
        remedy="no action is needed: the session uses the next wire and returns to this one later",
    ),
    Explanation(
        "session_failed",
        BrokenLinkError,
        what="the session has ended, and every request that waited for it failed",
        causes=(
            "the program closed the session or its node",
            "the peer ended the session",
            "no wire worked for longer than `session.resume_timeout_s`",
        ),
        remedy="open a new session and repeat what was not acknowledged; the session's `reason` contains why"
        " it ended",
    ),
    Explanation(
        "stale_attempt",
        DeniedError,
        what="the link request was used before",
        causes=(
            "an old request arrived after a newer one of the same session",
            "an attacker replays a recorded request",
        ),
        remedy="dial again, which uses a new number; if this program did not dial, find the host that sends"
        " the requests (`ss -tnp`, `tcpdump`)",
    ),
    Explanation(
        "pool_timeout",
        TimedOutError,
        what="no session of the pool became free in time",
        causes=(
            "tasks hold their sessions longer than other tasks can wait",
            "the pool's max_connections is too small for the load",
        ),
        remedy="leave the `async with` block as soon as the session is not needed, raise the pool's"
        " max_connections, or wait longer",
    ),
    Explanation(
        "call_timeout",
        TimedOutError,
        what="the peer did not answer the call within the given time",
        causes=(
            "the peer's handler takes longer, or waits for another call",
            "the peer's event loop is busy, or the session changes to another wire",
        ),
        remedy="raise timeout_s, or find out in the peer's log what the handler does; the peer is notified"
        " that the call was cancelled",
    ),
    Explanation(
        "remote_failure",
        RemoteError,
        what="the peer's handler failed",
        causes=("the handler raised an exception: the detail is its text",),
        remedy="read the detail and the peer's log, and correct the handler or its arguments",
    ),
    Explanation(
        "no_such_method",
        UnsupportedError,
        what="the peer has no handler with that name",
        causes=(
            "the name is misspelt, or the handler was not passed to listen()",
            "the two ends have different codecs: the detail shows the peer's in parentheses",
            "the peer runs another version of the program",
        ),
        remedy="compare the name with those in the detail, and correct it, the handlers passed to listen(),"
        " or `codec` at one end",
    ),
    Explanation(
        "peer_busy",
        BusyError,
        what="too many requests are in flight on this session",
        causes=(
            "the peer already serves as many requests of this session as it accepts at once",
            "more messages wait here than the flow-control window allows",
        ),
        remedy="await some answers before the next request",
    ),
    Explanation(
        "region_denied",
        DeniedError,
        what="the region is not available to this session",
        causes=(
            "the region was closed, or the process that exposed it has ended",
            "the region was exposed to another session only, or without the required access",
        ),
        remedy="get a region from the peer that is exposed to this session with the required access",
    ),
    Explanation(
        "no_such_region",
        UnsupportedError,
        what="the peer publishes no region with that name",
        causes=(
            "the name is misspelt, or the peer has not published it yet",
            "the peer has unpublished it, or was restarted and has not published it again",
        ),
        remedy="compare the name with those in the detail, or with session.regions(), which lists the names"
        " that this session may use",
    ),
    Explanation(
        "region_not_permitted",
        DeniedError,
        what="the peer publishes the region, but not for this session",
        causes=(
            "the rule that was passed to publish() does not admit what this end has proved",
            "this end did not prove what the rule requires, such as a certificate or the secret",
        ),
        remedy="connect with the credentials that the rule requires, or change `allow` of publish() at the"
        " peer",
    ),
    Explanation(
        "message_too_long",
        StateError,
        what="the message is longer than the other end accepts",
        causes=("the payload exceeds `session.max_message_size` at one of the ends",),
        remedy="use read_into() and write() on a region for large data, or raise"
        " `session.max_message_size` at both ends",
    ),
    Explanation(
        "damaged",
        ProtocolError,
        what="the data did not match its checksum in any of the attempts",
        causes=(
            "a program changed the memory during the transfer",
            "the memory or a device corrupts data",
        ),
        remedy="do not write to the buffer or to the peer's region before the transfer ends; if no program"
        " does, test the memory (memtest86+, `dmesg`)",
    ),
    Explanation(
        "far_full",
        BusyError,
        what="the memory node has no free block of that size",
        causes=("other allocations use its memory: the detail contains the free bytes",),
        remedy="free allocations with far.free(), or start the memory node with a larger `--size`",
    ),
    Explanation(
        "far_name_taken",
        StateError,
        what="the memory node already has an allocation with that name",
        causes=("this or another client made it before: a named allocation outlives its session",),
        remedy="use far.attach() to open it, far.free() to delete it, or choose another name",
    ),
    Explanation(
        "far_unknown",
        StateError,
        what="the memory node has no such allocation",
        causes=(
            "the allocation was freed, or the memory node was restarted and lost its allocations",
            "the name is misspelt, or the allocation belongs to another session",
        ),
        remedy="list the names with far.stat(), and allocate the array again",
    ),
)
