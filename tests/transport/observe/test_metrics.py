"""The metrics of a node: correct, over all its sessions, and never decreasing."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

import verbena
from verbena import errors
from verbena.transport import Listener, Request, Session, Settings
from verbena.transport.observe.metrics import endpoint, prometheus, table
from verbena.transport.observe.metrics.counters import (
    BOUNDS_NS,
    BUCKETS,
    COUNTS,
    Counters,
    Histogram,
    Snapshot,
    total,
)

SECRET = "correct horse battery staple"
PAGE = Path(__file__).parents[3] / "docs/reference/metrics.md"
INFO = {
    "rdma_connections",
    *(f"rdma_{kind}_ops" for kind in ("send", "recv", "read", "write")),
    *("rdma_send_bytes", "rdma_recv_bytes", "rdma_completion_errors", "rdma_retry_exceeded"),
    "rdma_removed_devices",
}
SMALL = Settings(recv_buffer_pool_size=256, secret=SECRET.encode(), metrics_listen="127.0.0.1:0")


def echo(request: Request) -> bytes:
    return request.payload


@pytest.fixture
async def listener() -> AsyncIterator[Listener]:
    async with verbena.listen("127.0.0.1:0", handlers={"echo": echo}, config=SMALL) as listening:
        yield listening


async def dial(listener: Listener, wire: str = "shm") -> Session:
    return await verbena.connect(listener.address, wire=wire, config=replace(SMALL, metrics_listen=""))


async def until(condition: Callable[[], bool]) -> None:
    deadline = asyncio.get_running_loop().time() + 20
    while not condition():
        assert asyncio.get_running_loop().time() < deadline
        await asyncio.sleep(0.002)


async def http(address: str, request: bytes) -> tuple[int, dict[str, str], str]:
    """Sends raw bytes and returns status, headers and body of the answer."""
    host, _, port = address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(request)
    answer = (await asyncio.wait_for(reader.read(), 20)).decode()
    writer.close()
    head, _, body = answer.partition("\r\n\r\n")
    first, *lines = head.split("\r\n")
    headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
    assert int(headers["content-length"]) == len(body.encode()) or (request.startswith(b"HEAD") and not body)
    return int(first.split()[1]), headers, body


async def get(address: str, path: str) -> tuple[int, dict[str, str], str]:
    return await http(address, f"GET {path} HTTP/1.1\r\nHost: {address}\r\n\r\n".encode())


def samples(text: str) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    """Samples as the Prometheus parser reads them."""
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


async def test_every_native_count_is_known(listener):
    """Session.metrics() has exactly the counters and histograms that native code lists."""
    async with await dial(listener) as session:
        (native,) = session.metrics().values()
        assert set(native) == {*COUNTS, "call_ns", "read_ns", "write_ns"}


async def test_the_figures_are_what_was_done(listener):
    """Calls, reads and writes are counted at the end that made them, by wire and by peer."""
    with listener.node.allocate(4096) as region:
        for wire in ("shm", "iwarp"):
            async with await dial(listener, wire) as session:
                for _ in range(10):
                    await session.call("echo", b"x" * 100)
                for _ in range(3):
                    await session.write(region.remote[:64], b"y" * 64)
                for _ in range(2):
                    await session.read(region.remote[:32])
                now = session.node.snapshot()
                figures = now.wires[wire]
                assert (figures["read_ops"], figures["read_bytes"]) == (2, 64)
                assert (figures["write_ops"], figures["write_bytes"]) == (3, 192)
                assert figures["send_ops"] >= 10
                assert figures["send_bytes"] >= 10 * 140
                assert figures.times["call"].count >= 10
                assert now.peers[listener.node.name][wire] == figures
                assert now.connections[wire] == 1
                assert now.regions == 0
                there = listener.node.snapshot()
                assert there.regions == 1
                assert {pool.kind for pool in there.pools if pool.wire == wire} == {"send", "receive"}
                assert all(0 <= pool.used <= pool.slots for pool in there.pools)


async def test_info_has_the_fields_and_totals_outlive_sessions(listener):
    """Exactly the documented fields; totals keep the counts of sessions that have ended."""
    last: dict[str, int] = {}
    for turn in range(3):
        async with await dial(listener) as session:
            await session.call("echo", b"z" * 1000)
            info = listener.node.info_rdma()
            assert set(info) == INFO
            assert info["rdma_connections"] == 1
            assert info["rdma_recv_bytes"] >= (turn + 1) * 1000
        await until(lambda: not listener.sessions)
        info = listener.node.info_rdma()
        assert info["rdma_connections"] == 0
        assert all(info[name] >= value for name, value in last.items() if name != "rdma_connections")
        last = info
    now = listener.node.snapshot()
    assert now.opened == 3
    assert now.ended == {"peer_closed": 3}
    assert now.wires["shm"]["links"] == 3


async def test_totals_never_go_backwards_while_sessions_come_and_go(listener):
    """The totals are read continuously from another thread."""
    stop = asyncio.Event()

    async def watch() -> int:
        seen, looks = 0, 0
        while not stop.is_set():
            sends = (await asyncio.to_thread(listener.node.info_rdma))["rdma_send_ops"]
            assert sends >= seen
            seen, looks = sends, looks + 1
        return looks

    watching = asyncio.ensure_future(watch())
    for _ in range(8):
        async with await dial(listener) as session:
            await asyncio.gather(*(session.call("echo", b"x") for _ in range(50)))
    stop.set()
    assert await watching > 8
    assert listener.node.info_rdma()["rdma_send_ops"] >= 400


async def test_a_closed_node_still_reports_its_totals(listener):
    """A closed node reports its totals and no session."""
    session = await dial(listener)
    await session.call("echo", b"x")
    node = session.node
    await session.close()
    now = node.snapshot()
    assert now.sessions == ()
    assert now.total("send_ops") >= 1


async def test_the_page_is_what_prometheus_reads(listener):
    """The Prometheus parser reads types, labels and values; buckets are cumulative from 1 µs, and the last
    has all."""
    (server,) = listener.node._metrics_servers
    async with await dial(listener) as session:
        for _ in range(5):
            await session.call("echo", b"x" * 10)
        with pytest.raises(errors.DeniedError):
            await verbena.connect(listener.address, secret="another secret altogether")
        status, headers, body = await get(server.address, "/metrics")
        here = prometheus.render(table.METRICS, session.node.snapshot())
    assert status == 200
    assert headers["content-type"] == prometheus.CONTENT_TYPE
    families = {family.name: family for family in text_string_to_metric_families(body)}
    kinds = {metric.name.removesuffix("_total"): metric.kind for metric in table.METRICS}
    assert {name: family.type for name, family in families.items()} == kinds
    for family in families.values():
        (metric,) = (row for row in table.METRICS if row.name.removesuffix("_total") == family.name)
        assert family.documentation == metric.help
        assert all(set(sample.labels) - {"le"} == set(metric.labels) for sample in family.samples)

    read = samples(body)

    def value(name: str, **labels: str) -> float:
        return read[name, frozenset(labels.items())]

    assert value("verbena_rdma_operations_total", type="recv", wire="shm") >= 5
    assert value("verbena_sessions", state="connected", wire="shm") == 1
    assert value("verbena_rdma_connections", wire="iwarp") == 0
    assert value("verbena_refused_total", reason="credentials") == listener.refused["credentials"] == 1
    assert value("verbena_wire_available", wire="shm") == 1

    times = [
        sample
        for family in text_string_to_metric_families(here)
        if family.name == "verbena_rdma_latency_seconds"
        for sample in family.samples
        if sample.labels["op"] == "call" and sample.labels["wire"] == "shm"
    ]
    buckets = [(float(one.labels["le"]), one.value) for one in times if one.name.endswith("_bucket")]
    assert buckets[0][0] == pytest.approx(1e-6, rel=0.03)
    assert buckets == sorted(buckets)
    assert [count for _, count in buckets] == sorted(count for _, count in buckets)
    (count,) = (one.value for one in times if one.name.endswith("_count"))
    (seconds,) = (one.value for one in times if one.name.endswith("_sum"))
    assert buckets[-1] == (float("inf"), count)
    assert count >= 5
    assert 0 < seconds < 60


def test_labels_are_escaped():
    """Any name in a label comes back unchanged from the parser."""
    name = 'a "quoted"\\back\nslash'
    bare = Snapshot(name, 1.5, {}, (), (), {}, 0, {}, {name: 2}, 0, ())
    read = samples(prometheus.render(table.METRICS, bare))
    assert read["verbena_node_info", frozenset({("node", name)})] == 1
    assert read["verbena_refused_total", frozenset({("reason", name)})] == 2


def test_times_fall_into_the_right_buckets():
    """The cumulative counts are the numbers of values below each bound."""
    counts = [0] * BUCKETS
    counts[34], counts[36], counts[100] = 3, 4, 5
    figures = replace(Counters(), times={**Counters().times, "read": Histogram(1000, tuple(counts))})
    text = prometheus.render(table.METRICS, Snapshot("n", 0, {"shm": figures}, (), (), {}, 0, {}, {}, 0, ()))
    buckets = {
        dict(labels)["le"]: value
        for (name, labels), value in samples(text).items()
        if name == "verbena_rdma_latency_seconds_bucket" and ("op", "read") in labels
    }
    assert (buckets["1.024e-06"], buckets["1.536e-06"], buckets["+Inf"]) == (3, 7, 12)
    assert figures.times["read"].quantile_ns(0.5) == (BOUNDS_NS[35] + BOUNDS_NS[36]) / 2
    assert Histogram().quantile_ns(0.5) is None
    assert total([{"shm": figures}, {"shm": figures}])["shm"].times["read"].count == 24


def test_the_page_names_every_metric():
    """docs/reference/metrics.md and the table in the code agree."""
    assert PAGE.read_text().startswith(table.page())
    named = re.findall(r"^\| `(verbena_\w+)`", table.page(), re.MULTILINE)
    assert named == [metric.name for metric in table.METRICS]
    assert len(set(named)) == len(named)
    assert all(("_total" in metric.name) == (metric.kind == "counter") for metric in table.METRICS)


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (b"GET /healthz HTTP/1.1\r\n\r\n", 200),
        (b"GET /metrics?format=text HTTP/1.0\r\n\r\n", 200),
        (b"GET /nothing HTTP/1.1\r\n\r\n", 404),
        (b"GET /metrics/.. HTTP/1.1\r\n\r\n", 404),
        (b"POST /metrics HTTP/1.1\r\nContent-Length: 4\r\n\r\nabcd", 405),
        (b"HEAD /healthz HTTP/1.1\r\n\r\n", 200),
        (b"hello\r\n\r\n", 400),
        (b"\x16\x03\x01\r\n\r\n", 400),
        (b"GET /metrics HTTP/1.1\r\nX: " + b"x" * 20_000 + b"\r\n\r\n", 431),
    ],
)
async def test_the_endpoint_takes_its_own_requests_and_no_other(listener, request_, status):
    """Other requests receive an error, and the next valid one is served."""
    (server,) = listener.node._metrics_servers
    answered, headers, _ = await http(server.address, request_)
    assert answered == status
    assert headers["connection"] == "close"
    assert headers.get("allow") == ("GET, HEAD" if status == 405 else None)
    assert (await get(server.address, "/healthz"))[2] == "ok\n"


async def test_idle_connections_do_not_block_other_clients_for_long(listener):
    """Above a limit the oldest ones are closed at once, and the others after their time limit."""
    (server,) = listener.node._metrics_servers
    host, _, port = server.address.rpartition(":")
    silent = [await asyncio.open_connection(host, int(port)) for _ in range(40)]
    answers = await asyncio.wait_for(asyncio.gather(*(reader.read() for reader, _ in silent)), 20)
    for _, writer in silent:
        writer.close()
    over = 40 - endpoint.MAX_CONNECTIONS
    assert answers[:over] == [b""] * over
    assert {answer.split()[1] for answer in answers[over:]} == {b"408"}
    for _ in range(100):  # the last connections may still be closing
        status = (await get(server.address, "/healthz"))[0]
        if status == 200:
            break
        await asyncio.sleep(0.05)
    assert status == 200


async def test_the_endpoint_ends_with_its_node():
    """An address that is in use raises an error with a message."""
    async with verbena.listen("127.0.0.1:0", config=replace(SMALL, metrics_listen="")) as listener:
        server = await asyncio.to_thread(listener.node.serve_metrics, "127.0.0.1:0")
        assert (await get(server.address, "/healthz"))[0] == 200
        with pytest.raises(errors.VerbenaError, match=re.escape(server.address)):
            await asyncio.to_thread(listener.node.serve_metrics, server.address)
    with pytest.raises(OSError, match=r"refused|[Cc]onnect"):
        await get(server.address, "/healthz")


async def test_a_program_adds_metrics_and_one_source_that_fails_spoils_no_other(listener, caplog):
    """The page has what the other sources and the node report; the log has the error."""

    async def count() -> str:
        return "# TYPE jobs gauge\njobs 3\n"

    async def fails() -> str:
        raise OSError("no queue")

    listener.node.metric_sources.update(queue=fails, jobs=count)
    (server,) = listener.node._metrics_servers
    status, _, body = await get(server.address, "/metrics")
    assert status == 200
    assert samples(body)["jobs", frozenset()] == 3
    assert "verbena_node_info" in body
    assert "the metrics of queue cannot be read" in caplog.text
