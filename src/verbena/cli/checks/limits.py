"""Limits of this process: locked memory, huge pages, descriptors, access to the memory of peers."""

from __future__ import annotations

import re
from collections.abc import Collection

from verbena.cli import text
from verbena.cli.checks.container import in_container, on_host
from verbena.cli.checks.diagnosis import Diagnosis, Roots, Verdict, explained, ok, text_of, warn
from verbena.errors.values import proc_fields

SMALL_MEMLOCK_BYTES = 256 << 20
MIN_DESCRIPTORS = 1024
NEARLY_ALL = 0.9
CAP_IPC_LOCK = 14
CAP_SYS_PTRACE = 19
LIMITS_FILE = "/etc/security/limits.d/90-rdma.conf"

PTRACE_SCOPES = {
    "0": "any process of the same user",
    "1": "a process's own children only",
    "2": "processes with CAP_SYS_PTRACE only",
    "3": "no process",
}


def check_limits(roots: Roots) -> list[Diagnosis]:
    """Returns one diagnosis for each limit."""
    return [
        check_memlock(roots),
        check_huge_pages(roots),
        check_process_vm(roots),
        check_descriptors(roots),
        check_open_files(roots),
    ]


def check_memlock(roots: Roots) -> Diagnosis:
    """Checks how much memory may be locked; hardware wires lock all registered memory."""
    check = "locked memory"
    limits = _limit(roots, "Max locked memory")
    if limits is None:
        return _unknown(check, "/proc/self/limits")
    soft, hard = limits
    finding = f"{_bytes(soft)} (hard limit {_bytes(hard)})"
    if soft is None or soft >= SMALL_MEMLOCK_BYTES:
        return ok(check, finding)
    if _capable(roots, CAP_IPC_LOCK):
        return ok(check, f"{finding}, but this process has CAP_IPC_LOCK")
    lasting = (
        f"printf '* soft memlock unlimited\\n* hard memlock unlimited\\n' | sudo tee {LIMITS_FILE}"
        "     (then log in again)"
    )
    now = "ulimit -l unlimited     (this shell)" if hard is None else ""
    return explained(
        check,
        Verdict.WARN,
        finding,
        code="memlock",
        command="\n".join(filter(None, (now, lasting))),
        reason="hardware wires lock all registered memory; registration beyond the limit fails",
    )


def memlock_note(wires: Collection[str], roots: Roots | None = None) -> str:
    """Returns what a service prints at its start if these wires are likely to exceed the limit of locked
    memory; "": they are not."""
    found = check_memlock(roots or Roots())
    if "ibv" not in wires or found.verdict is Verdict.OK:
        return ""
    return (
        f"RDMA devices lock registered memory, and this process may lock {found.finding}: clients may be "
        "rejected (ulimit -l unlimited, LimitMEMLOCK=infinity; verbena doctor)"
    )


def memlock_limit(roots: Roots) -> int | None:
    """Returns how many bytes this process may lock; None if it is unlimited or unknown."""
    limits = _limit(roots, "Max locked memory")
    return None if limits is None or _capable(roots, CAP_IPC_LOCK) else limits[0]


def check_huge_pages(roots: Roots) -> Diagnosis:
    """Checks reserved and free huge pages. They are optional, so having none is OK."""
    check = "huge pages"
    meminfo = proc_fields(text_of(roots.proc / "meminfo"))
    total, free = meminfo.get("HugePages_Total", ""), meminfo.get("HugePages_Free", "")
    size = meminfo.get("Hugepagesize", "unknown size")
    if not total.isdigit() or not free.isdigit():
        return ok(check, "not in this kernel (optional)")
    if total == "0":
        return ok(check, f"none reserved, {size} each (optional: sudo sysctl -w vm.nr_hugepages=512)")
    finding = f"{free} of {total} free, {size} each"
    if free != "0":
        return ok(check, finding)
    return explained(
        check,
        Verdict.WARN,
        finding,
        code="huge_pages",
        command=f"sudo sysctl -w vm.nr_hugepages={2 * int(total)}",
        values={"huge_free": free, "huge_total": total, "huge_size": size},
    )


def check_process_vm(roots: Roots) -> Diagnosis:
    """Checks whether a process may read another's memory (process_vm_readv), which shm does for plain
    buffers."""
    check = "process_vm_readv"
    scope = text_of(roots.proc / "sys/kernel/yama/ptrace_scope")
    if not scope:
        return ok(check, "allowed between processes of one user (the kernel has no yama)")
    finding = f"kernel.yama.ptrace_scope is {scope}: {PTRACE_SCOPES.get(scope, 'unknown')}"
    if scope == "0":
        return ok(check, finding)
    if scope in ("1", "2") and _capable(roots, CAP_SYS_PTRACE):
        return ok(check, f"{finding}, but this process has CAP_SYS_PTRACE")
    command = on_host("sudo sysctl kernel.yama.ptrace_scope=0", roots)
    if scope == "3":  # cannot be lowered while the kernel runs
        command = on_host("set kernel.yama.ptrace_scope=0 in /etc/sysctl.d", roots)
        command += "" if in_container(roots) else " and reboot"
    return explained(
        check,
        Verdict.WARN,
        finding,
        code="not_permitted",
        command=command,
        reason="shm copies plain buffers through the peer, which is slower; arenas are not affected",
    )


def check_descriptors(roots: Roots) -> Diagnosis:
    """Checks the descriptor limit; connections and completion queues use descriptors."""
    check = "file descriptors"
    limits = _limit(roots, "Max open files")
    if limits is None:
        return _unknown(check, "/proc/self/limits")
    soft, hard = limits
    finding = f"{_count(soft)} (hard limit {_count(hard)})"
    if soft is None or soft >= MIN_DESCRIPTORS:
        return ok(check, finding)
    lasting = (
        f"printf '* soft nofile 65536\\n* hard nofile 65536\\n' | sudo tee -a {LIMITS_FILE}"
        "     (then log in again)"
    )
    enough = hard is None or hard >= MIN_DESCRIPTORS
    command = f"ulimit -n {min(hard or 65536, 65536)}     (this shell)" if enough else lasting
    return explained(
        check,
        Verdict.WARN,
        finding,
        code="fd_limit",
        command=command,
        reason="every connection and armed completion queue uses descriptors",
    )


def check_open_files(roots: Roots) -> Diagnosis:
    """Checks how many files the whole system has open, and its limit."""
    check = "open files"
    numbers = text_of(roots.proc / "sys/fs/file-nr").split()
    if len(numbers) != 3 or not all(number.isdigit() for number in numbers):
        return _unknown(check, "/proc/sys/fs/file-nr")
    used, most = int(numbers[0]), int(numbers[2])
    finding = f"{used} of {most} system-wide"
    if used < NEARLY_ALL * most:
        return ok(check, finding)
    return warn(
        check,
        finding,
        reason="at the limit, new connections and shared memory fail",
        remedy=f"sudo sysctl -w fs.file-max={2 * most}",
    )


def _limit(roots: Roots, name: str) -> tuple[int | None, int | None] | None:
    """Returns the soft and hard limit, each None if unlimited; None alone if they cannot be read."""
    limits = text_of(roots.proc / "self/limits")
    found = re.search(rf"^{re.escape(name)}\s+(\S+)\s+(\S+)", limits, flags=re.MULTILINE)
    if not found or not all(value == "unlimited" or value.isdigit() for value in found.groups()):
        return None
    soft, hard = (None if value == "unlimited" else int(value) for value in found.groups())
    return soft, hard


def _capable(roots: Roots, capability: int) -> bool:
    effective = proc_fields(text_of(roots.proc / "self/status")).get("CapEff", "0")
    return bool(int(effective, 16) >> capability & 1)


def _bytes(limit: int | None) -> str:
    return "unlimited" if limit is None else text.size(limit)


def _count(limit: int | None) -> str:
    return "unlimited" if limit is None else str(limit)


def _unknown(check: str, where: str) -> Diagnosis:
    return warn(
        check,
        f"unknown: not in {where}",
        reason="the container hides the value, or this kernel uses another format",
        remedy=f"cat {where}",
    )
