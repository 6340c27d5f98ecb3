"""The systemd units: systemd accepts them, their exposure is low, and each service works under its unit's
restrictions, as far as a process can apply them to itself."""

from __future__ import annotations

import ctypes
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support import unit as unit_program
from support.services import SERVICES, Service, running
from support.unit import UNITS, Unit

from verbena.cli.app import build_parser

MAX_EXPOSURE = 2.5
FOLDER = UNITS[0].parent
EVERY_UNIT = pytest.mark.parametrize("unit", [Unit(path) for path in UNITS], ids=lambda unit: unit.path.stem)


@pytest.fixture
def analyze() -> str:
    found = shutil.which("systemd-analyze")
    if found is None:
        pytest.skip("systemd-analyze is not installed (Debian: systemd)")
    return found


@EVERY_UNIT
def test_a_units_command_is_one_that_verbena_has(unit: Unit) -> None:
    """The line is parsed as the program would, with its variables filled in."""
    words = unit["ExecStart"].split()
    values = {"${SIZE}": "1GiB", "${FOLDER}": "/srv", "$OPTIONS": "--writable"}
    assert words[0] == "/usr/local/bin/verbena"
    build_parser().parse_args([values.get(word, word) for word in words[1:]])
    assert unit["LimitMEMLOCK"] == "infinity"


def test_systemd_accepts_the_units(analyze: str) -> None:
    """Its own check finds nothing but that the program is not installed in /usr/local here."""
    done = subprocess.run(
        [analyze, "verify", "--man=no", *map(str, UNITS)], capture_output=True, text=True, check=False
    )
    complaints = [line for line in done.stderr.splitlines() if "verbena" in line]
    assert [line for line in complaints if "/usr/local/bin/verbena is not executable" not in line] == []


@EVERY_UNIT
def test_the_exposure_of_a_unit_is_low(unit: Unit, analyze: str) -> None:
    """As systemd rates it: 0 is best, 10 worst."""
    done = subprocess.run(
        [analyze, "security", "--offline=true", "--no-pager", unit.path],
        capture_output=True,
        text=True,
        check=False,
    )
    found = re.search(r"Overall exposure level for \S+: ([0-9.]+)", done.stdout)
    assert found is not None, done.stdout + done.stderr
    assert float(found[1]) <= MAX_EXPOSURE


def test_each_service_has_a_user_and_a_folder_of_its_own() -> None:
    """No service can read the files or the memory of another."""
    units = [Unit(path) for path in UNITS]
    users = [unit["User"] for unit in units]
    assert len(set(users)) == len(units)
    assert users == [unit["Group"] for unit in units]
    made = re.findall(r"^u (\S+) ", (FOLDER / "sysusers.conf").read_text(), re.M)
    assert sorted(made) == sorted(users)
    folders = [unit["StateDirectory"] for unit in units if "StateDirectory" in unit.settings]
    assert len(set(folders)) == len(folders) == 3
    assert {unit["StateDirectoryMode"] for unit in units if "StateDirectory" in unit.settings} == {"0700"}


def test_secrets_reach_a_service_as_credentials() -> None:
    """The drop-ins name files; no unit has a secret in its environment or its arguments."""
    for file in FOLDER.glob("*.conf"):
        for name in re.findall(r"^Environment=(VERBENA_\w+)", file.read_text(), re.M):
            assert name.endswith("_FILE"), file
    for unit in map(Unit, UNITS):
        words = unit["ExecStart"] + " ".join(unit.settings.get("Environment", ()))
        assert not re.search(r"secret|password", words, re.I), unit.path
    for file in (FOLDER / "session-secret.conf", FOLDER / "kv-password.conf"):
        text = file.read_text()
        [(credential, source)] = re.findall(r"^LoadCredential=(\S+):(\S+)$", text, re.M)
        assert f"_FILE=%d/{credential}" in text
        assert source == f"/etc/verbena/{credential}"


# What a restricted process may not do, to see that the restrictions apply.
PROBES = {
    "a raw packet socket": "import socket; socket.socket(17, socket.SOCK_RAW)",
    "memory that is writable and executable": "import mmap; mmap.mmap(-1, 4096, prot=7)",
    "a system call of administrators": "import os; os.chroot('/')",
    "a capability": "import os; os.setpriority(os.PRIO_PROCESS, 0, -5)",
}


@pytest.fixture
def sandbox(analyze: str) -> list[str]:
    """The command that applies a unit's restrictions; the unit follows."""
    try:
        ctypes.CDLL("libseccomp.so.2")
    except OSError:
        pytest.skip("libseccomp is not installed (Debian: libseccomp2)")
    return [sys.executable, str(Path(unit_program.__file__))]


@pytest.mark.parametrize("what", PROBES)
def test_the_restrictions_apply(what: str, sandbox: list[str]) -> None:
    """The test of the services below would prove nothing otherwise."""
    done = subprocess.run(
        [*sandbox, str(UNITS[0]), sys.executable, "-c", PROBES[what]],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1, done.stderr
    assert re.search(r"PermissionError|Address family not supported", done.stderr), done.stderr


@pytest.mark.parametrize("service", SERVICES.values(), ids=SERVICES.keys())
def test_a_service_works_under_the_restrictions_of_its_unit(
    service: Service, sandbox: list[str], tmp_path: Path
) -> None:
    """It starts, serves a client, and ends with the status that the unit counts as success."""
    (unit,) = [path for path in UNITS if path.stem == service.unit]
    folder = tmp_path / "state"
    folder.mkdir(mode=0o700)
    with running(service, folder, prefix=[*sandbox, str(unit)]) as (process, banner):
        service.use(banner, folder)
        status = Path(f"/proc/{process.pid}/status").read_text()
        assert re.search(r"^Seccomp:\t2$", status, re.M)
        assert re.search(r"^CapEff:\t0+$", status, re.M)
    settings = Unit(unit).settings
    assert process.returncode in {0, *map(int, settings.get("SuccessExitStatus", ()))}
