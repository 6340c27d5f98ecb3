"""Memory under a receiver that takes nothing: buffers are bounded, and the poster sees a full queue."""

from __future__ import annotations

import resource

from support.rdma import link

from verbena import errors, verbs


def test_a_poster_meets_a_full_queue_and_not_the_end_of_memory(opened, connect):
    """Without receives at the other end, posts are refused when the send queue is full; what the process
    holds grows by the windows at most. Then everything arrives, in order."""
    size, depth = 1 << 20, 64
    with opened(window_bytes=1 << 20) as a, opened(window_bytes=1 << 20) as b:
        sender, receiver = (link.make_end(end.context, max_send=depth, max_recv=2 * depth) for end in (a, b))
        with b.context.listen("127.0.0.1:0") as waiting:
            connect(sender, receiver, waiting)
        content = sender.region(link.pattern(size))
        inbox = receiver.region(size)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        posted = 0
        try:
            while posted < 10 * depth:
                sender.qp.post_send(link.send(content, wr_id=posted))
                posted += 1
        except errors.BusyError:
            pass
        assert posted == depth
        grown_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
        assert grown_kib < 40 * 1024  # of 64 MiB posted
        for number in range(depth):
            receiver.qp.post_recv(verbs.RecvWorkRequest(inbox, wr_id=number))
        received = link.drain(receiver.recv_cq, depth, timeout_s=60)
        assert [each.wr_id for each in received] == list(range(depth))
        assert all(each.ok for each in link.drain(sender.cq, depth, timeout_s=60))
        assert bytes(memoryview(inbox)) == bytes(memoryview(content))
