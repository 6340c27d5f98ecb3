"""A10: what arrives is what was sent, under any mix of operations, sizes and queue pairs."""

import random
import threading

import pytest
from support.rdma.link import DEADLINE_S, connect_endpoints, fetch_add, make_end, pattern, read, word, write

from verbena.errors import WcStatus
from verbena.testing import damaged_packets

pytestmark = pytest.mark.rule("A10")


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_storm_of_random_operations_matches_a_model(pair, seed):
    """Random WRITEs, READs and additions leave remote memory exactly as the same steps leave a bytearray."""
    rng = random.Random(seed)
    size = 1 << 16
    model, target, local = bytearray(size), pair.b.region(size), pair.a.region(size)
    for _ in range(300):
        choice = rng.random()
        length = min(rng.choice((0, 1, 8, 60, 64, 65, 500, 4096, 20_000)), size)
        start = rng.randrange(size - length + 1)
        span = slice(start, start + length)
        if choice < 0.45:
            data = rng.randbytes(length)
            memoryview(local)[:length] = data
            model[span] = data
            assert pair.a.do(write(local[:length], target.remote[span]))[0].ok
        elif choice < 0.8:
            assert pair.a.do(read(local[:length], target.remote[span]))[0].ok
            assert memoryview(local)[:length] == model[span]
        else:
            at, add = rng.randrange(size // 8) * 8, rng.getrandbits(64)
            old = int.from_bytes(model[at : at + 8], "little")
            model[at : at + 8] = ((old + add) % 2**64).to_bytes(8, "little")
            assert pair.a.do(fetch_add(local[:8], target.remote[at : at + 8], add))[0].ok
            assert word(local) == old
    assert bytes(memoryview(target)) == model


def test_many_queue_pairs_at_once_do_not_mix_their_bytes(pair):
    """Eight threads on eight queue pairs move different bytes; each finds its own."""
    ends = [(make_end(pair.a.context), make_end(pair.b.context)) for _ in range(8)]
    for a, b in ends:
        connect_endpoints(a, b, timeout=18)  # eight threads on few cores: a second's silence says nothing
    failures = []

    def move(index, a, b):
        source, target, back = a.region(pattern(30_000, index)), b.region(30_000), a.region(30_000)
        for _ in range(20):
            a.qp.sync.write(source, target.remote, timeout_s=DEADLINE_S)
            a.qp.sync.read(back, target.remote, timeout_s=DEADLINE_S)
            if bytes(memoryview(back)) != pattern(30_000, index):
                failures.append(index)
            memoryview(target)[:] = bytes(30_000)

    threads = [threading.Thread(target=move, args=(i, *end)) for i, end in enumerate(ends)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert not failures
    assert not any(thread.is_alive() for thread in threads)


@pytest.mark.parametrize("provider", ["fake"], indirect=True)
@pytest.mark.parametrize("bit", [0, 7, 100, 250, 400, 1000, 4096])
def test_a_damaged_packet_is_sent_again(pair, bit):
    """A flipped bit in header or payload, request or answer, is detected, and the retry corrects it."""
    source, target, back = pair.a.region(pattern(600, bit)), pair.b.region(600), pair.a.region(600)
    with damaged_packets(3, bit=bit):
        assert pair.a.do(write(source, target.remote))[0].ok
        assert pair.a.do(read(back, target.remote))[0].ok
    assert bytes(memoryview(target)) == bytes(memoryview(back)) == pattern(600, bit)


@pytest.mark.parametrize("provider", ["fake"], indirect=True)
def test_a_wire_that_damages_everything_delivers_nothing(pair):
    """When no retry comes through whole, the request fails with RETRY_EXC_ERR and no byte was placed."""
    source, target = pair.a.region(pattern(600, 1)), pair.b.region(600)
    with damaged_packets(10**6, bit=2000):
        failed = pair.a.do(write(source, target.remote))[0]
    assert failed.status is WcStatus.RETRY_EXC_ERR
    assert bytes(memoryview(target)) == bytes(600)
