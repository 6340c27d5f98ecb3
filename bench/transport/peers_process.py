"""The processes of the benchmark `peers`: starts the two ends of a system, sends requests, ends them."""

from __future__ import annotations

import contextlib
import json
import os
import re
import select
import statistics
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.processes import cpu_ns
from verbena.cli.measure.probes import Probe

ROOT = Path(__file__).parent.parent.parent
ANSWER_S = 60.0
EXIT_S = 5.0


@dataclass(frozen=True)
class System:
    """What to measure. `module` has the two ends and `needs` the module `package`; `polls`: the target's
    processor takes part, so that it has to poll."""

    name: str
    module: str
    package: str
    arguments: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    polls: bool = False


class End:
    """The process of one end."""

    def __init__(self, interpreter: str, system: System, *arguments: str) -> None:
        self._name = f"{system.name}'s {arguments[0]}"
        self._log = tempfile.TemporaryFile(prefix="bench-peers-")  # noqa: SIM115 – closed by close()
        self._process = subprocess.Popen(
            [interpreter, "-m", f"bench.transport.{system.module}", *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            cwd=ROOT,
            env={**os.environ, **system.environment},
        )

    def ask(self, request: object) -> dict[str, Any]:
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # answer() has the reason
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
        return self.answer()

    def answer(self) -> dict[str, Any]:
        """RuntimeError, with the last line of the log, if the process has ended or does not answer."""
        output = self._process.stdout
        assert output is not None
        line = output.readline() if select.select([output], [], [], ANSWER_S)[0] else ""
        if not line:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(EXIT_S)  # for its last words
            last = self.log.strip().rpartition("\n")[2]
            raise RuntimeError(f"{self._name} does not answer: {last or 'it printed nothing'}")
        answer: dict[str, Any] = json.loads(line)
        return answer

    @property
    def cpu_ns(self) -> int:
        return cpu_ns(self._process.pid)

    @property
    def log(self) -> str:
        """What the process has printed, except answers."""
        descriptor = self._log.fileno()  # shared with the process: a seek would move its end, too
        return os.pread(descriptor, os.fstat(descriptor).st_size, 0).decode(errors="replace")

    def close(self) -> None:
        try:
            with contextlib.suppress(BrokenPipeError):
                self._process.communicate(timeout=EXIT_S)  # the end of its input ends it
        except subprocess.TimeoutExpired:
            pass
        finally:
            self._process.kill()
            self._process.wait()
            self._log.close()

    def __enter__(self) -> End:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Pair:
    """Both ends of a system, connected."""

    def __init__(self, interpreter: str, system: System) -> None:
        self.system = system
        with contextlib.ExitStack() as ends:
            self._target = ends.enter_context(End(interpreter, system, "target"))
            where = self._target.answer().values()
            arguments = ("initiator", *map(str, where), *system.arguments)
            self._initiator = ends.enter_context(End(interpreter, system, *arguments))
            self._poll(True)
            self._initiator.answer()
            self._poll(False)
            self._ends = ends.pop_all()

    def transfer(self, operation: str, length: int, count: int) -> tuple[float, float]:
        """Returns the duration of a transfer in nanoseconds, the median of `count`, and the CPU time of both
        ends for all of them."""
        before = self._target.cpu_ns + self._initiator.cpu_ns
        self._poll(True)
        answer = self._initiator.ask([operation, length, count])
        self._poll(False)
        return answer["ns"], self._target.cpu_ns + self._initiator.cpu_ns - before

    def transports(self, operation: str) -> str:
        """The transports that UCX has selected for an operation, such as "zero-copy cma"; empty for a system
        without UCX."""
        _, _, table = self._initiator.log.rpartition(f"remote memory {operation} by ")
        _, _, rows, *_ = [*table.split("-+\n"), "", ""]  # title, heading, rows, separated by lines
        found = re.findall(r"\| +\S+\.\.\S+ \| ([\w -]+?) +\| (\w+)/", rows)
        return ", ".join(dict.fromkeys(f"{how} {transport}" for how, transport in found))

    def _poll(self, begins: bool) -> None:
        if self.system.polls:
            self._target.ask("poll" if begins else "rest")

    def close(self) -> None:
        self._ends.close()

    def __enter__(self) -> Pair:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Transfers(Probe):
    """Transfers of one kind. A sample is the median duration of a round, in nanoseconds."""

    def __init__(self, pair: Pair, operation: str, length: int) -> None:
        self._pair, self._operation, self._length = pair, operation, length
        self._cpu: list[float] = []

    def run(self, count: int) -> Sequence[float]:
        ns, cpu = self._pair.transfer(self._operation, self._length, count)
        self._cpu.append(cpu / (count * self._length))
        return [ns]

    @property
    def cpu_s_per_gb(self) -> float:
        return statistics.median(self._cpu)


def missing(interpreter: str, package: str) -> str:
    """Returns why the interpreter cannot import the package; empty if it can."""
    command = [interpreter, "-c", f"import {package}"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=ANSWER_S)
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    return done.stderr.strip().rpartition("\n")[2] if done.returncode else ""
