"""The five programs of examples/ as users run them: as they stand, with nothing closed, in a forked child of
a program with sessions of its own, and with Ctrl-C. Each ends within seconds, with the right output."""

from __future__ import annotations

import ast
import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from support.services import SERVICES, running

EXAMPLES = Path(__file__).parents[2] / "examples"
MAX_LINES = 25
ENDS_WITHIN_S = 30  # on a busy machine; alone each takes one or two

# The last line that each program prints.
PROGRAMS = {
    "parameter_server.py": "weights (100, 10) mean 3.0",
    "rpc_clients.py": "64 replies, the last {'items': 65, 'kinds': 2}",
    "redis_arrays.py": "sum 499999500000.0",
    "shared_counter.py": "counters [0, 4000, 0, 0, 0, 0, 0, 0]",
    "embeddings.py": "row 7 begins with 8.0 now",
}

# A program that has a session and a listener of its own when it forks. The child runs the example.
FORKING = """
import os, runpy, sys
import verbena

with verbena.sync.listen("127.0.0.1:0", handlers={"echo": lambda request: request.payload}) as listener:
    with verbena.sync.connect(listener.address) as session:
        assert session.call("echo", b"before") == b"before"
        child = os.fork()
        if child == 0:
            sys.argv = sys.argv[1:]
            runpy.run_path(sys.argv[0], run_name="__main__")
            sys.stdout.flush()
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert session.call("echo", b"after") == b"after"
"""


class Unclosed(ast.NodeTransformer):
    """Replaces `with opened as name: …` by `name = opened; …`, and `async with` by `name = await opened`."""

    def _opened(self, node: ast.With | ast.AsyncWith) -> list[ast.stmt]:
        lines: list[ast.stmt] = []
        for item in node.items:
            opened = item.context_expr
            if isinstance(node, ast.AsyncWith):
                opened = ast.Await(opened)
            assert item.optional_vars is not None
            lines.append(ast.Assign([item.optional_vars], opened, lineno=node.lineno))
        return lines + [self.visit(line) for line in node.body]

    visit_With = visit_AsyncWith = _opened


@pytest.fixture(params=PROGRAMS)
def program(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[str, list[str]]]:
    """The name, and the arguments: one program needs a store."""
    name = str(request.param)
    if name != "redis_arrays.py":
        yield name, []
        return
    folder = tmp_path / "store"
    folder.mkdir()
    store = replace(SERVICES["store"], arguments="serve --port 0 --session-listen-port 0")
    with running(store, folder) as (_, banner):
        found = re.search(r"sessions +(\S+)", banner)
        assert found is not None, banner
        yield name, [found[1]]


def start(*words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,  # so that Ctrl-C reaches its children too, as in a terminal
    )


def finish(process: subprocess.Popen[str], timeout_s: float = ENDS_WITHIN_S) -> tuple[str, str]:
    """Returns what it printed. Fails the test, and ends the program, if it does not end in time."""
    try:
        return process.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        printed = process.communicate()
        pytest.fail(f"it did not end in {timeout_s} s, and printed {printed}")


def check(process: subprocess.Popen[str], name: str) -> None:
    printed, complaints = finish(process)
    assert process.returncode == 0, complaints
    assert printed.splitlines()[-1:] == [PROGRAMS[name]], complaints


def test_a_program_runs_as_it_stands(program: tuple[str, list[str]]) -> None:
    name, arguments = program
    check(start(str(EXAMPLES / name), *arguments), name)


def test_a_program_may_close_nothing(program: tuple[str, list[str]], tmp_path: Path) -> None:
    """Without any `with`, it prints the same and ends."""
    name, arguments = program
    tree = Unclosed().visit(ast.parse((EXAMPLES / name).read_text()))
    unclosed = tmp_path / name
    unclosed.write_text(ast.unparse(ast.fix_missing_locations(tree)))
    assert "with " not in "".join(ast.unparse(line) for line in tree.body[1:])
    check(start(str(unclosed), *arguments), name)


def test_a_program_runs_in_a_forked_child(program: tuple[str, list[str]]) -> None:
    """The session of the parent works before and after."""
    name, arguments = program
    check(start("-c", FORKING, str(EXAMPLES / name), *arguments), name)


@pytest.mark.parametrize("after_s", [0.2, 0.6, 1.0])
def test_ctrl_c_ends_a_program(program: tuple[str, list[str]], after_s: float) -> None:
    """At any moment: it ends by KeyboardInterrupt, or it had ended already."""
    name, arguments = program
    process = start(str(EXAMPLES / name), *arguments)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(after_s)
    interrupted = time.monotonic()
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGINT)
    finish(process)
    assert process.returncode in (0, 1, 130, -signal.SIGINT)
    assert time.monotonic() - interrupted < ENDS_WITHIN_S


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_is_short(name: str) -> None:
    assert len((EXAMPLES / name).read_text().splitlines()) <= MAX_LINES
