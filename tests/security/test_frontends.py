"""Every frontend of a store applies the same rules: each rule is tested on each frontend, and the page
docs/reference/frontends.md shows what this module has seen."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest
from support.kv import frontend_page
from support.kv.frontend_rules import RULES, Cell
from support.kv.frontends import FRONTENDS, Served, serving

NOT_APPLICABLE = {("protected mode", "unix")}


class Stores:
    """One store for all tests; another one after a test that failed, which may have left its settings."""

    def __init__(self, folders: pytest.TempPathFactory) -> None:
        self._folders = folders
        self._open = contextlib.ExitStack()
        self._served: Served | None = None

    def take(self) -> Served:
        if self._served is None:
            self._served = self._open.enter_context(serving(self._folders.mktemp("store")))
        return self._served

    def end(self) -> None:
        self._served = None
        self._open.close()


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stores]:
    stores = Stores(tmp_path_factory)
    yield stores
    stores.end()


@contextlib.contextmanager
def opened(stores: Stores, frontend: str) -> Iterator[Cell]:
    served = stores.take()
    try:
        with FRONTENDS["unix"].connect(served) as admin:
            yield Cell(served, FRONTENDS[frontend], admin)
    except Exception:
        stores.end()
        raise


ROWS = [pytest.param(name, marks=[pytest.mark.alone] * rule.is_timed) for name, rule in RULES.items()]


@pytest.mark.parametrize("frontend", FRONTENDS)
@pytest.mark.parametrize("rule", ROWS)
def test_a_rule_holds_on_every_frontend(rule: str, frontend: str, stores: Stores) -> None:
    """Sockets, sessions and Valkey over RDMA; or the table has the reason why the rule does not apply."""
    row = RULES[rule]
    if frontend in row.not_applicable:
        return
    with frontend_page.recorded(rule, frontend), opened(stores, frontend) as cell:
        row.instead.get(frontend, row.check)(cell)


def test_a_rule_that_does_not_apply_has_its_reason() -> None:
    """The combinations without a test are exactly these."""
    found = {(rule.name, frontend) for rule in RULES.values() for frontend in rule.not_applicable}
    assert found == NOT_APPLICABLE
    assert {frontend for rule in RULES.values() for frontend in rule.instead} <= set(FRONTENDS)


def test_the_page_shows_what_the_tests_saw() -> None:
    """The committed page is the one that the generator makes from the recorded results."""
    results = frontend_page.load()
    missing = frontend_page.unseen(results)
    if missing:
        pytest.skip(f"these did not run: {missing}")
    assert frontend_page.PAGE.read_text() == frontend_page.page(results), frontend_page.COMMAND
