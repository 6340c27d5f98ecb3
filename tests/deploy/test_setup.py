"""Set-up: which packages are installed for what, without starting services, and what is printed otherwise."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCRIPTS = ["tools/packages.sh", "tools/setup.sh", "tools/step.sh"]
MARK = "# Temporary: tools/packages.sh of Verbena is installing packages for tests."
# All that the scripts use; the tests' PATH has these and no package of the table.
COMMANDS = (
    "sh",
    "awk",
    "cat",
    "chmod",
    "comm",
    "cut",
    "dirname",
    "find",
    "fold",
    "grep",
    "kill",
    "mkdir",
    "rm",
    "sed",
    "sleep",
    "sort",
    "stty",
    "tail",
    "tr",
    "true",
)


class Machine:
    """A checkout with the set-up scripts, and a PATH of stand-ins for the system's commands."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.bin = folder / "bin"
        self.bin.mkdir()
        self.policy = folder / "policy-rc.d"
        (folder / "tools").mkdir()
        for script in SCRIPTS:
            shutil.copy(ROOT / script, folder / script)
        for name in COMMANDS:
            path = shutil.which(name)
            assert path is not None, name
            (self.bin / name).symlink_to(path)
        self.command("uname", "echo Linux")
        self.command(
            "c++", 'case "$*" in *-std*) ;; *) exit 1 ;; esac'
        )  # compiles, and has no libraries' headers
        self.user(0)

    def command(self, name: str, script: str) -> None:
        (self.bin / name).write_text(f"#!/bin/sh\n{script}\n")
        (self.bin / name).chmod(0o755)

    def user(self, uid: int) -> None:
        self.command("id", f"echo {uid}")

    def apt(self, install: str) -> None:
        """apt-get keeps what policy-rc.d is at that moment, then runs `install`."""
        self.command("apt-cache", "exit 0")
        copy = f"cat '{self.policy}' >policy-seen 2>/dev/null"
        self.command("apt-get", f'[ "$1" = install ] || exit 0\necho "$@" >>installed\n{copy}\n{install}')

    def start(self, *arguments: str, **variables: str) -> subprocess.Popen[str]:
        environment = {
            "PATH": str(self.bin),
            "PYTHON": sys.executable,
            "POLICY": str(self.policy),
            **variables,
        }
        return subprocess.Popen(
            ["/usr/bin/env", "--default-signal=INT,HUP", "tools/packages.sh", *arguments],
            cwd=self.folder,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def run(self, *arguments: str, **variables: str) -> tuple[int, str]:
        process = self.start(*arguments, **variables)
        output, _ = process.communicate(timeout=30)
        return process.returncode, output

    def read(self, name: str) -> str:
        return (self.folder / name).read_text()


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_each_package_is_listed_once_with_a_known_purpose(machine: Machine) -> None:
    rows = [line.split() for line in machine.run("list")[1].splitlines()]
    assert all(len(row) == 2 and row[0] in ("run", "test") for row in rows)
    packages = [package for _, package in rows]
    assert len(packages) > 30
    assert len(packages) == len(set(packages))


def test_run_installs_the_compiler_and_python_only(machine: Machine) -> None:
    """No package that only tests need, although all of them are missing."""
    machine.apt("exit 0")
    machine.command("c++", "exit 1")
    status, output = machine.run("run")
    assert machine.read("installed").split()[-1:] == ["g++"]
    assert "redis-server" not in machine.read("installed")
    assert status == 1  # the stand-in for apt-get installed nothing
    assert "C++20 compiler" in output


def test_nothing_missing_changes_nothing(machine: Machine) -> None:
    machine.apt("exit 0")
    assert machine.run("run") == (0, "")
    assert not (machine.folder / "installed").exists()


def test_services_are_forbidden_only_while_packages_are_installed(machine: Machine) -> None:
    machine.apt("exit 0")
    status, _ = machine.run("test")
    assert status == 0
    assert "redis-server" in machine.read("installed")
    assert MARK in machine.read("policy-seen")
    assert machine.read("policy-seen").endswith("exit 101\n")
    assert not machine.policy.exists()


def test_services_are_permitted_again_after_a_failure(machine: Machine) -> None:
    """Each package is tried on its own after apt refused all at once; none of them is required."""
    machine.apt("exit 100")
    status, output = machine.run("test")
    assert status == 0
    assert len(machine.read("installed").splitlines()) > 25
    assert "sudo apt-get install" in output
    assert not machine.policy.exists()


@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_services_are_permitted_again_after_an_interruption(machine: Machine, stop: signal.Signals) -> None:
    machine.apt("sleep 30")
    process = machine.start("test")
    while not (machine.folder / "policy-seen").exists():
        assert process.poll() is None
        time.sleep(0.01)
    os.killpg(process.pid, stop)
    process.communicate(timeout=10)
    assert process.returncode in (130, 143)
    assert not machine.policy.exists()


def test_a_policy_of_the_machine_is_kept(machine: Machine) -> None:
    machine.apt("exit 0")
    machine.policy.write_text("#!/bin/sh\nexit 0\n")
    assert machine.run("test")[0] == 0
    assert machine.read("policy-seen") == machine.policy.read_text() == "#!/bin/sh\nexit 0\n"


def test_a_policy_left_by_a_killed_run_is_removed(machine: Machine) -> None:
    machine.apt("exit 0")
    machine.policy.write_text(f"#!/bin/sh\n{MARK}\nexit 101\n")
    assert machine.run("test")[0] == 0
    assert not machine.policy.exists()


def test_an_ordinary_user_is_shown_the_packages_and_set_up_continues(machine: Machine) -> None:
    machine.apt("exit 0")
    machine.user(1000)
    status, output = machine.run("test")
    assert status == 0
    assert "sudo apt-get install" in output
    assert "redis-server" in output
    assert not (machine.folder / "installed").exists()


def test_without_apt_the_tools_are_named(machine: Machine) -> None:
    """A missing compiler stops set-up; the message has its name and version, and no apt-get."""
    status, output = machine.run("test", CXX="absent-compiler", PYTHON="absent-python")
    assert status == 1
    for tool in ("g++ 11 or clang++ 14", "Python 3.10 or newer", "redis-cli", "OpenSSL"):
        assert tool in output
    assert "apt-get" not in output


def test_other_systems_are_refused_at_once(machine: Machine) -> None:
    machine.command("uname", "echo Darwin")
    status, output = machine.run("run")
    assert status == 1
    assert "Linux only" in output
    assert "Darwin" in output


def test_cmake_refuses_other_systems_at_once(tmp_path: Path) -> None:
    if shutil.which("cmake") is None:
        pytest.skip("cmake is not installed")
    command = ["cmake", "-S", ROOT, "-B", tmp_path, "-DCMAKE_SYSTEM_NAME=Darwin"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "Linux only" in done.stderr
    assert "compiler" not in done.stdout


def test_a_step_that_fails_prints_its_output(machine: Machine) -> None:
    def step(script: str) -> tuple[int, str]:
        command = [machine.folder / "tools/step.sh", "name", "sh", "-c", script]
        done = subprocess.run(command, cwd=machine.folder, capture_output=True, text=True, check=False)
        return done.returncode, done.stdout

    assert step("echo hidden") == (0, "  name\n")
    assert machine.read("build/log/name") == "hidden\n"
    assert step("echo shown; exit 3") == (3, "  name\nshown\n")


def test_the_scripts_pass_shellcheck() -> None:
    if shutil.which("shellcheck") is None:
        pytest.skip("shellcheck is not installed")
    done = subprocess.run(["shellcheck", *SCRIPTS], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
