"""Fixtures that every layer's tests share: each provider by name, and connected pairs on it.
Gives `provider`, `context`, `make_pair`, `pair`, `managed_pair`; prints the conformance matrix.
Depends on the public API and tests/support only."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

sys.path.insert(
    0, str(Path(__file__).parent)
)  # --import-mode=importlib leaves it out, and tests import support

from support import parallel
from support.certificates import Authority
from support.rdma import devices, iwarp_tls, link, matrix

from verbena import errors, verbs

settings.register_profile(
    "bounded", deadline=None, max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
settings.register_profile("ci", settings.get_profile("bounded"), derandomize=True, print_blob=True)
settings.load_profile("ci" if os.environ.get("CI") else "bounded")


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(parallel)
    config.addinivalue_line(
        "markers", "rule(name): the row of the conformance matrix that the test belongs to"
    )
    # A shell that runs us in the background has SIGINT ignored, and the programs we start would inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        matrix.tag(item)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """A column that lacks operations, and says so, skips the tests that come upon one."""
    try:
        return (yield)
    except errors.UnsupportedError:
        if dict(item.user_properties).get("cell", ("", ""))[1] != "iwarp-plain":
            raise
        pytest.skip(devices.LACKING["atomics"])


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    table = matrix.outcomes(terminalreporter.stats)
    if table:
        terminalreporter.section("conformance")
        for line in matrix.lines(table) + devices.lines():
            terminalreporter.write_line(line)


@pytest.fixture(scope="session")
def tls_environment() -> Iterator[dict[str, str]]:
    """The variables for iwarp over TLS and for quic, with a certificate of a throw-away authority for this
    machine."""
    with tempfile.TemporaryDirectory(prefix="verbena-tls-") as folder:
        tls = iwarp_tls.issue(Authority(Path(folder)), names=iwarp_tls.names_here())
        Path(folder).chmod(0o755)  # children that gave up their rights read them, too
        Path(tls.key).chmod(0o644)
        yield iwarp_tls.environment(tls) | iwarp_tls.environment(tls, "quic")


@pytest.fixture(params=matrix.PROVIDERS)
def provider(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """A provider's name, once for each that can be used here; the others skip with their own reason."""
    name, _, way = request.param.partition("-")
    encrypted = way == "tls" or name == "quic"
    settings = (
        request.getfixturevalue("tls_environment") if encrypted else matrix.SETTINGS.get(request.param, {})
    )
    for variable, value in settings.items():
        monkeypatch.setenv(variable, value)
    info = next((info for info in verbs.providers() if info.name == name), None)
    if info is None:
        pytest.skip("not in this build")
    if not info.available:
        pytest.skip(info.reason)
    return name


@pytest.fixture
def context(provider: str) -> Iterator[verbs.Context]:
    with verbs.open_device(provider) as opened:
        yield opened


@pytest.fixture
def make_pair(provider: str) -> Iterator[Callable[..., link.Pair]]:
    """Makes connected pairs: `managed` through the connection manager, else by endpoints with `attributes`.
    Further options go to both queue pairs."""
    with contextlib.ExitStack() as stack:

        def make(
            *, managed: bool = False, attributes: dict[str, Any] | None = None, **options: Any
        ) -> link.Pair:
            left, right = link.open_contexts(provider, stack)
            pair = link.Pair(link.make_end(left, **options), link.make_end(right, **options))
            if managed:
                link.connect_managed(pair.a, pair.b)
            else:
                link.connect_endpoints(pair.a, pair.b, **(attributes or {}))
            return pair

        yield make


@pytest.fixture
def pair(make_pair: Callable[..., link.Pair]) -> link.Pair:
    return make_pair()


@pytest.fixture
def managed_pair(make_pair: Callable[..., link.Pair]) -> link.Pair:
    return make_pair(managed=True)


@pytest.fixture
def ends(provider: str) -> Iterator[link.Pair]:
    """Two ends whose queue pairs are still in RESET."""
    with contextlib.ExitStack() as stack:
        left, right = link.open_contexts(provider, stack)
        yield link.Pair(link.make_end(left), link.make_end(right))
