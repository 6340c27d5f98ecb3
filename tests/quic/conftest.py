"""Certificates and ends for the tests of the quic wire."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from support.certificates import Authority
from support.rdma import iwarp_tls, link

from verbena import verbs
from verbena.verbs import QuicOptions, Tls

Open = Callable[..., contextlib.AbstractContextManager[link.End]]


@pytest.fixture(scope="session")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="session")
def tls(authority: Authority) -> Tls:
    return iwarp_tls.issue(authority)


@pytest.fixture(autouse=True)
def usable() -> None:
    info = next(info for info in verbs.providers() if info.name == "quic")
    if not info.available:
        pytest.skip(info.reason)


@pytest.fixture
def opened(tls: Tls) -> Open:
    """Opens an end on the loopback; with the session's certificate, unless another is given."""

    @contextlib.contextmanager
    def open_end(own: Tls | None = None, **options: object) -> Iterator[link.End]:
        with verbs.open_device("quic:lo", options=QuicOptions(tls=own or tls, **options)) as context:
            yield link.make_end(context)

    return open_end


@pytest.fixture
def connect() -> Callable[..., None]:
    """Connects `a` to `b`, which listens, by way of `port` if that is another's."""

    def connect_ends(a: link.End, b: link.End, waiting: verbs.Listener, port: int = 0) -> None:
        to = port or int(waiting.address.rpartition(":")[2])
        with ThreadPoolExecutor(1) as pool:
            calling = pool.submit(a.context.connect_blocking, a.qp, f"127.0.0.1:{to}", timeout_s=30)
            request = waiting.accept_blocking(timeout_s=30)
            b.connection = request.accept_blocking(b.qp)
            a.connection = calling.result(30)

    return connect_ends
