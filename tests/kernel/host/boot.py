#!/usr/bin/env python3
"""Boots a throw-away virtual machine with the distribution's stock kernel and runs a command in it as root.

    tests/kernel/host/boot.py [--timeout SECONDS] [--python] COMMAND [ARGUMENT…]

The guest sees this machine's files read-only, under an overlay in its memory, and has the Soft-RoCE devices
of guest/devices. What the command prints is streamed; what it leaves in /run/testbed is afterwards found in
build/kernel/results/NAME. The exit status is the command's, or 77 when the testbed cannot run here (1 in CI),
124 after the timeout, 125 when the guest died.
"""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import cpio

PROJECT = Path(__file__).resolve().parents[3]
FOLDER = PROJECT / "build" / "kernel"
SKIPPED, TIMED_OUT, GUEST_DIED = 77, 124, 125
PASSED_ON = ("CI", "VERBENA_", "VALKEY_")
# A guest that is not up by then never will be. Older emulated processors have less to emulate.
ACCELERATORS = {
    "kvm": (20.0, "-accel kvm -cpu host"),
    "tcg": (120.0, "-accel tcg,thread=multi -cpu Nehalem"),
}
# A port carries the output: the serial console is slow, and left to the kernel. The network leads nowhere.
MACHINE = """
    qemu-system-x86_64 -nodefaults -no-user-config -no-reboot -display none -smp 2 -m 2048
    -device virtio-serial-pci -chardev stdio,id=output,signal=off -device virtserialport,chardev=output
    -netdev user,id=net,restrict=on -device virtio-net-pci,netdev=net,romfile= -device virtio-rng-pci
    -virtfs local,path=/,mount_tag=root,security_model=none,readonly=on,multidevs=remap
"""
KERNEL_OPTIONS = "console=ttyS0 quiet panic=-1 mitigations=off random.trust_cpu=on"


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--timeout", type=float, default=600, metavar="SECONDS", help="for the command (600)")
    parser.add_argument(
        "--python", action="store_true", help="for a command that runs the project's Python: faster"
    )
    parser.add_argument("command", nargs=argparse.REMAINDER)
    options = parser.parse_args()
    if not options.command:
        parser.error("which command is to run in the guest?")

    prepared = subprocess.run(
        [PROJECT / "tests/kernel/host/prepare.sh"], stderr=subprocess.PIPE, text=True, check=False
    )
    if prepared.returncode:
        verdict = "SKIPPED" if prepared.returncode == SKIPPED else "FAILED"
        print(f"kernel testbed {verdict}: {prepared.stderr.strip()}")
        return prepared.returncode

    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    scratch = make_scratch()
    try:
        share, initrd = scratch / "share", scratch / "initrd"
        write_job(share, options.command)
        write_initrd(initrd, preloaded() if options.python else [])
        for accelerator in accelerators():
            status = run(share, initrd, accelerator, options.timeout)
            if status != GUEST_DIED or (share / "up").exists():
                break
        keep(share, Path(options.command[0]).name)
        return status
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def make_scratch() -> Path:
    """This process's folder, with the one that the guest shares; those of processes that were killed go."""
    scratch = FOLDER / f"run.{os.getpid()}"
    for old in FOLDER.glob("run.*"):
        if old == scratch or not Path("/proc", old.suffix[1:]).exists():
            shutil.rmtree(old, ignore_errors=True)
    (scratch / "share").mkdir(parents=True)
    return scratch


def write_job(share: Path, command: list[str]) -> None:
    """The shell script that the guest starts with: where the project is and what to run there."""
    environment = {name: value for name, value in os.environ.items() if name.startswith(PASSED_ON)}
    lines = [f"export {name}={shlex.quote(value)}" for name, value in sorted(environment.items())]
    lines += [f"PROJECT={shlex.quote(str(PROJECT))}", f"JOB=({shlex.join(command)})"]
    (share / "job").write_text("\n".join([*lines, '. "$PROJECT/tests/kernel/guest/start"', ""]))


def preloaded() -> list[str]:
    """The files that the project's tests import, so that the guest need not fetch them one by one."""
    command = [PROJECT / ".venv/bin/python", PROJECT / "tests/kernel/host/preload.py"]
    listed = subprocess.run(command, cwd=PROJECT, stdout=subprocess.PIPE, text=True, check=True)
    return listed.stdout.splitlines()


def write_initrd(initrd: Path, files: list[str]) -> None:
    """The initramfs that prepare.sh made, followed by the files as a layer over the host's."""
    with initrd.open("wb") as out:
        out.write((FOLDER / "initrd.gz").read_bytes())
        out.write(bytes(-out.tell() % 4))
        out.writelines(cpio.archive(files, "layer"))


def accelerators() -> list[str]:
    """What to try, best first. A /dev/kvm alone does not tell: the processor must virtualise too."""
    if chosen := os.environ.get("TESTBED_ACCEL"):
        return [chosen]
    flags = Path("/proc/cpuinfo").read_text().partition("\nflags")[2].partition("\n")[0].split()
    usable = os.access("/dev/kvm", os.R_OK | os.W_OK) and not {"vmx", "svm"}.isdisjoint(flags)
    return ["kvm", "tcg"] if usable else ["tcg"]


def machine(share: Path, initrd: Path, accelerator: str) -> list[str]:
    """The virtual machine's command line. It dies with this process, whatever ends that."""
    return [
        *("setpriv", "--pdeathsig", "KILL", *MACHINE.split(), *ACCELERATORS[accelerator][1].split()),
        *("-kernel", str(FOLDER / "vmlinux"), "-initrd", str(initrd), "-append", KERNEL_OPTIONS),
        *("-virtfs", f"local,path={share},mount_tag=share,security_model=none"),
        *("-serial", f"file:{share / 'console.log'}"),
    ]


def run(share: Path, initrd: Path, accelerator: str, timeout_s: float) -> int:
    """Boots once, streams what the command prints, and gives its exit status."""
    started = time.monotonic()
    guest = subprocess.Popen(
        machine(share, initrd, accelerator),
        stdin=subprocess.PIPE,  # the port is open as long as this is
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    assert guest.stdout is not None
    output = threading.Thread(target=stream, args=(guest.stdout.fileno(),), daemon=True)
    output.start()
    boot_timeout_s = ACCELERATORS[accelerator][0]
    up_s = None
    late = ""
    try:
        while guest.poll() is None and not late:
            elapsed_s = time.monotonic() - started
            if up_s is None and (share / "up").exists():
                up_s = elapsed_s
            if up_s is None and elapsed_s > boot_timeout_s:
                late = f"the guest did not start within {boot_timeout_s:.0f} s"
            elif up_s is not None and elapsed_s - up_s > timeout_s:
                late = f"the command did not end within {timeout_s:.0f} s"
            time.sleep(0.05)
    finally:
        if guest.poll() is None:
            guest.kill()
        guest.wait()
        output.join(5)

    total_s = time.monotonic() - started
    answer = share / "status"
    status = int(answer.read_text()) if answer.exists() else TIMED_OUT if up_s and late else GUEST_DIED
    booted = f"up after {up_s:.1f} s, " if up_s else ""
    print(f"kernel testbed: {accelerator}, {booted}{total_s:.1f} s in all, exit status {status}", flush=True)
    if not answer.exists():
        console = share / "console.log"
        tail = console.read_text(errors="replace").splitlines()[-60:] if console.exists() else []
        print("\n".join([late or "the guest ended without a status; its console:", *tail]), flush=True)
    return status


def stream(source: int) -> None:
    while piece := os.read(source, 65_536):
        sys.stdout.buffer.write(piece)
        sys.stdout.buffer.flush()


def keep(share: Path, name: str) -> None:
    """Moves what the guest left to its lasting place."""
    results = FOLDER / "results" / name
    shutil.rmtree(results, ignore_errors=True)
    results.parent.mkdir(parents=True, exist_ok=True)
    share.rename(results)


if __name__ == "__main__":
    sys.exit(main())
