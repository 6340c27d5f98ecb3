"""docs/reference/hostile-processes.md has a statement for each place and wire, and each one has a test."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from support.security import hostile_kernel, hostile_page
from support.security.attacks import WIRES
from support.security.hostile_table import TABLE

ROOT = Path(__file__).resolve().parents[2]


def test_the_page_is_the_one_of_the_table() -> None:
    """The committed page is the one that the generator makes."""
    assert hostile_page.PAGE.read_text() == hostile_page.page(), hostile_page.COMMAND


def test_every_cell_has_a_test_that_exists() -> None:
    """No cell is empty, and tests of ibv are tests of the kernel testbed."""
    for place in TABLE:
        assert list(place.cells) == list(WIRES) or set(place.cells) == set(WIRES)
        assert all(test.startswith(hostile_page.KERNEL) for test in place.cells["ibv"].tests)
    assert all(cell.statement and cell.tests for cell in hostile_page.cells())
    for test in hostile_page.tests():
        file, _, name = test.partition("::")
        tree = ast.parse((ROOT / file).read_text())
        assert name in {
            node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        }, test


def test_the_tests_of_the_page_have_held() -> None:
    """As recorded by the runs of tests/security in this folder."""
    results = hostile_page.load()
    failed = [test for test, result in results.items() if result == hostile_page.FAILED]
    assert not failed
    missing = hostile_page.missing(results)
    if missing:
        pytest.skip(f"these did not run: {missing}")


CASE = '<testcase classname="tests.kernel.test_red_team" name="{}">{}</testcase>'


def test_a_row_of_ibv_needs_a_test_that_passed(tmp_path: Path) -> None:
    """A named test that is missing, skipped or failed in the results of the kernel testbed is found, also if
    that is so for one of its parameters only."""
    named = [test for test in hostile_page.tests() if test.startswith(hostile_page.KERNEL)]
    assert len(named) > 4
    junit = tmp_path / "junit.xml"

    def found(*changed: tuple[str, str]) -> list[str]:
        cases = [(test.partition("::")[2] + "[a]", "") for test in named if changed or test != named[0]]
        text = "".join(CASE.format(*case) for case in [*cases, *changed])
        junit.write_text(f"<testsuites><testsuite>{text}</testsuite></testsuites>")
        return list(hostile_kernel.not_passed(junit).items())

    name = named[1].partition("::")[2]
    assert hostile_kernel.not_passed(junit) == dict.fromkeys(named, "not run")
    assert found() == [(named[0], "not run")]
    assert found((f"{name}[b]", "")) == []
    assert found((f"{name}[b]", "<skipped/>")) == [(named[1], "skipped")]
    assert found((f"{name}[b]", "<failure/>"), (f"{name}[c]", "<skipped/>")) == [(named[1], "failed")]
    assert found((f"{name}[b]", "<error/>")) == [(named[1], "failed")]
