"""A10: what arrives is what was sent, under any mix of operations, sizes and queue pairs."""

import random
import threading

import pytest
from support.link import DEADLINE_S, connect_endpoints, fetch_add, make_end, pattern, read, word, write

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
        connect_endpoints(a, b)
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
