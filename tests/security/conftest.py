"""Records the results of the tests that docs/reference/hostile-processes.md names."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support.security import hostile_page


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    report = yield
    test, bracket, parameters = item.nodeid.partition("[")
    if test in hostile_page.tests() and (report.failed or (report.when == "call" and report.passed)):
        result = hostile_page.FAILED if report.failed else hostile_page.HOLDS
        hostile_page.record(test, bracket + parameters, result)
    return report
