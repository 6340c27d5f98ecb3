"""QUIC and TLS over TCP on a path that the kernel itself makes bad (netem): both correct, side by side."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator

import pytest
from support.certificates import Authority
from support.rdma import iwarp_tls, link

from verbena import verbs
from verbena.verbs import IwarpOptions, QuicOptions, Tls

PATHS = {
    "loss of 1 %": ("loss", "1%"),
    "loss of 5 %": ("loss", "5%"),
    "20 ms": ("delay", "10ms"),
    "20 ms and loss of 1 %": ("delay", "10ms", "loss", "1%"),
    "reordered": ("delay", "2ms", "reorder", "25%", "50%"),
    "duplicated": ("duplicate", "5%"),
    "corrupted": ("corrupt", "1%"),
}
LENGTH = 512 << 10
PATIENCE_S = 120.0


@pytest.fixture(params=PATHS)
def path(request: pytest.FixtureRequest) -> Iterator[str]:
    """The loopback with that netem."""
    made = subprocess.run(
        ["tc", "qdisc", "replace", "dev", "lo", "root", "netem", *PATHS[request.param]],
        capture_output=True,
        text=True,
        check=False,
    )
    assert made.returncode == 0, made.stderr
    yield request.param
    subprocess.run(["tc", "qdisc", "del", "dev", "lo", "root"], check=True)


@pytest.fixture(scope="module")
def tls(tmp_path_factory: pytest.TempPathFactory) -> Tls:
    return iwarp_tls.issue(Authority(tmp_path_factory.mktemp("authority")))


def test_both_wires_move_every_byte(path, tls):
    """WRITE and READ of half a MiB, byte for byte; the rate of each is printed."""
    for name, options in (
        ("quic:lo", QuicOptions(tls=tls, datagram_bytes=1452)),
        ("iwarp:lo", IwarpOptions(tls=tls)),
    ):
        with (
            verbs.open_device(name, options=options) as near,
            verbs.open_device(name, options=options) as far,
        ):
            a, b = link.make_end(near), link.make_end(far)
            link.connect_managed(a, b)
            content = link.pattern(LENGTH)
            source, target, back = a.region(content), b.region(LENGTH), a.region(LENGTH)
            begun = time.monotonic()
            a.qp.sync.write(source, target.remote, timeout_s=PATIENCE_S)
            a.qp.sync.read(back, target.remote, timeout_s=PATIENCE_S)
            spent = time.monotonic() - begun
            assert bytes(memoryview(target)) == bytes(memoryview(back)) == content
        rate = f"{2 * LENGTH / spent / 1e6:.2f} MB/s"
        print(f"netem {path}: {name} {rate}")
