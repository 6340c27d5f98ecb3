"""CM: the connection manager: listen, connect, accept, reject, private data, disconnect."""

import asyncio
import contextlib

import pytest
from support.rdma.devices import arriving
from support.rdma.link import (
    DEADLINE_S,
    drain,
    make_end,
    open_contexts,
    send,
    statuses,
    unused_address,
    wait_until,
)

from verbena import errors
from verbena.errors import WcStatus
from verbena.verbs import ConnectionState, QpState

pytestmark = pytest.mark.rule("CM")


@pytest.fixture
def sides(provider):
    """A client end and a server end, both in RESET."""
    with contextlib.ExitStack() as stack:
        client, server = open_contexts(provider, stack)
        yield make_end(client), make_end(server)


async def established(client, server, address="", *, private_data=b"", answer=b""):
    async with server.context.listen(address) as listener:
        calling = asyncio.create_task(
            client.context.connect(
                client.qp, listener.address, private_data=private_data, timeout_s=DEADLINE_S
            )
        )
        request = await asyncio.wait_for(listener.accept(), DEADLINE_S)
        assert request.private_data == arriving(server.context, private_data)
        assert request.peer
        accepted = await request.accept(server.qp, private_data=answer)
        return await calling, accepted


async def test_a_connection_carries_data_both_ways(sides):
    """connect and accept take both queue pairs to RTS; messages then flow both ways."""
    client, server = sides
    calling, accepted = await established(client, server)
    assert (client.qp.state, server.qp.state) == (QpState.RTS, QpState.RTS)
    assert (calling.state, accepted.state) == (ConnectionState.ESTABLISHED,) * 2
    for a, b in ((client, server), (server, client)):
        inbox = b.region(8)
        b.expect(inbox)
        assert a.do(send(a.region(b"hi there")))[0].ok
        assert drain(b.recv_cq, 1)[0].ok
        assert bytes(memoryview(inbox)) == b"hi there"


async def test_private_data_travels_both_ways(sides):
    """The caller's private data is in the request, the answer's in the caller's connection, byte for byte
    but for what the device says of it."""
    client, server = sides
    calling, _ = await established(client, server, private_data=bytes(range(56)), answer=b"\0welcome\0")
    assert calling.private_data == arriving(client.context, b"\0welcome\0")


async def test_too_much_private_data_is_refused(sides):
    """A provider has a limit for private data; beyond it the call is refused and the state stays RESET."""
    client, server = sides
    async with server.context.listen("") as listener:
        with pytest.raises((ValueError, errors.VerbenaError)):
            await client.context.connect(
                client.qp, listener.address, private_data=bytes(1 << 20), timeout_s=1
            )
    assert client.qp.state is QpState.RESET


async def test_receives_posted_before_accepting_catch_the_first_message(sides):
    """A server in INIT with receives posted misses nothing that comes right after the connection."""
    client, server = sides
    inbox = server.region(8)
    server.qp.modify(QpState.INIT, port=1, pkey_index=0, access_flags=0)
    server.expect(inbox)
    await established(client, server)
    client.qp.post_send(send(client.region(b"at once!")))
    assert drain(server.recv_cq, 1)[0].ok
    assert bytes(memoryview(inbox)) == b"at once!"


async def test_a_rejected_connect_gets_the_private_data(sides):
    """reject() gives the caller a RejectedError with the private data; its queue pair can be used again."""
    client, server = sides
    async with server.context.listen("") as listener:
        calling = asyncio.create_task(
            client.context.connect(client.qp, listener.address, timeout_s=DEADLINE_S)
        )
        request = await asyncio.wait_for(listener.accept(), DEADLINE_S)
        answer = request.reject(private_data=b"no room")
        if answer is not None:
            await answer
        with pytest.raises(errors.RejectedError) as refusal:
            await calling
    assert refusal.value.private_data == b"no room"
    assert client.qp.state is not QpState.RTS
    client.qp.modify(QpState.RESET)
    await established(client, server)


async def test_a_request_dropped_unanswered_counts_as_rejected(sides):
    """Forgetting the request tells the caller no."""
    client, server = sides
    async with server.context.listen("") as listener:
        calling = asyncio.create_task(
            client.context.connect(client.qp, listener.address, timeout_s=DEADLINE_S)
        )
        request = await asyncio.wait_for(listener.accept(), DEADLINE_S)
        del request
        with pytest.raises(errors.RejectedError):
            await calling


async def test_connecting_to_an_unused_name_fails_at_once(sides):
    """Connecting to a name nobody listens on raises AddressError, at once and not by time-out."""
    client, _ = sides
    with pytest.raises(errors.AddressError):
        await client.context.connect(client.qp, unused_address(client.context), timeout_s=DEADLINE_S)
    assert client.qp.state is not QpState.RTS


async def test_a_closed_listener_frees_its_address(sides):
    """After close() the address is free: connecting fails, and it can be listened on again."""
    client, server = sides
    address = unused_address(server.context)
    async with server.context.listen(address):
        pass
    with pytest.raises(errors.AddressError):
        await client.context.connect(client.qp, address, timeout_s=DEADLINE_S)
    client.qp.modify(QpState.RESET)
    await established(client, server, address)


async def test_an_address_in_use_is_refused(sides):
    """Two listeners cannot have one address; the first goes on."""
    client, server = sides
    address = unused_address(server.context)
    with server.context.listen(address):
        with pytest.raises(errors.AddressError) as refusal:
            server.context.listen(address)
        assert refusal.value.code == "address_in_use"
    await established(client, server, address)


async def test_a_chosen_address_can_be_connected_to(sides):
    """listen("") chooses an address that nobody else has and tells it."""
    _, server = sides
    with server.context.listen("") as one, server.context.listen("") as two:
        assert one.address
        assert one.address != two.address


async def test_an_unanswered_call_times_out(sides):
    """When the listener never answers, connect raises TimedOutError and the queue pair is not connected."""
    client, server = sides
    with server.context.listen("") as listener:
        with pytest.raises(errors.TimedOutError):
            await client.context.connect(client.qp, listener.address, timeout_s=0.05)
        assert client.qp.state is not QpState.RTS


async def test_disconnect_is_seen_by_both_ends(sides):
    """disconnect() takes both queue pairs to ERR; the peer's receives are flushed and it is told."""
    client, server = sides
    calling, accepted = await established(client, server)
    server.expect(server.region(8))
    calling.disconnect()
    await asyncio.wait_for(accepted.wait_disconnected(), DEADLINE_S)
    await asyncio.wait_for(calling.wait_disconnected(), DEADLINE_S)
    assert statuses(drain(server.recv_cq, 1)) == [WcStatus.WR_FLUSH_ERR]
    assert (calling.state, accepted.state) == (ConnectionState.DISCONNECTED,) * 2
    assert (client.qp.state, server.qp.state) == (QpState.ERR, QpState.ERR)


async def test_closing_a_queue_pair_disconnects_the_peer(sides):
    """The end whose peer closes its queue pair sees the connection end."""
    client, server = sides
    _, accepted = await established(client, server)
    client.qp.close()
    await asyncio.wait_for(accepted.wait_disconnected(), DEADLINE_S)
    wait_until(lambda: server.qp.state is QpState.ERR, "ERR at the peer")


async def test_many_callers_are_served_in_turn(sides):
    """Callers queue at the listener; each accepted one talks to its own queue pair."""
    client, server = sides
    count = 10
    callers = [client.pd.create_qp(send_cq=client.cq, recv_cq=client.recv_cq) for _ in range(count)]
    answers = []
    async with server.context.listen("") as listener:
        calls = [
            asyncio.create_task(
                client.context.connect(
                    qp, listener.address, private_data=bytes([1 + i]), timeout_s=DEADLINE_S
                )
            )
            for i, qp in enumerate(callers)
        ]
        for _ in range(count):
            request = await asyncio.wait_for(listener.accept(), DEADLINE_S)
            qp = server.pd.create_qp(send_cq=server.cq, recv_cq=server.recv_cq)
            answers.append((request.private_data[0] - 1, qp, await request.accept(qp)))
        await asyncio.gather(*calls)
    assert sorted(index for index, _, _ in answers) == list(range(count))
    for index, qp, _ in answers:
        inbox = server.region(1)
        await asyncio.gather(qp.recv(inbox), callers[index].send(client.region(bytes([index]))))
        assert bytes(memoryview(inbox)) == bytes([index])


def test_the_blocking_twins_connect_too(make_pair):
    """accept_blocking and connect_blocking do the same without asyncio."""
    pair = make_pair(managed=True)
    assert (pair.a.qp.state, pair.b.qp.state) == (QpState.RTS, QpState.RTS)
    pair.b.expect(pair.b.region(8))
    assert pair.a.do(send(pair.a.region(8)))[0].ok


def test_a_blocking_accept_times_out(sides):
    """Without a caller accept_blocking raises TimedOutError."""
    _, server = sides
    with server.context.listen("") as listener, pytest.raises(errors.TimedOutError):
        listener.accept_blocking(timeout_s=0.02)
