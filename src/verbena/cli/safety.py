"""What a service prints at its start about access, and sizes that this machine does not have."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path

from verbena.cli import text
from verbena.config import Config
from verbena.config.rules import is_loopback
from verbena.errors import VerbenaError, setup_error
from verbena.errors.values import proc_fields

_CGROUP_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


def store_note(hosts: Iterable[str], *, open_to_all: bool, protected: bool) -> str:
    """Returns the note of a store that other machines can reach and that needs no password; else ""."""
    reachable = [host for host in hosts if host and not is_loopback(host)]
    if not reachable or not open_to_all:
        return ""
    if protected:
        return (
            f"no password is set: on {reachable[0]} only clients of this machine are accepted"
            " (kv.protected_mode; set kv.password_file)"
        )
    return (
        f"UNSAFE: every machine that reaches {reachable[0]} can read and change all data: no password is set,"
        " and kv.protected_mode is off"
    )


def session_note(config: Config, *, admits_unproved: bool = False) -> str:
    """Returns the note of a service that accepts sessions without a secret or certificates; else ""."""
    if config.session.secret or config.session.secret_file or config.tls.require_client_certificate:
        return ""
    users = "every user" if admits_unproved else "this user and root"
    if config.session.allow_uids and not admits_unproved:
        users = f"this user, root and uid {config.session.allow_uids}"
    return f"no session secret is set: sessions are accepted from {users} of this machine only"


def registry_notes(config: Config) -> list[str]:
    """Returns the notes of a registry that other machines can reach without TLS, or that lets them push."""
    registry, notes = config.registry, []
    if is_loopback(registry.listen_address):
        return []
    if not registry.tls:
        notes.append("content and passwords are sent without encryption (--registry-tls)")
    if registry.anonymous in ("push", "delete") and not registry.access_file:
        may = {"push": "push", "delete": "push and delete"}[registry.anonymous]
        notes.append(f"UNSAFE: every machine may {may} without a login, through {registry.listen_address}")
    return notes


def require_memory(config: Config, *keys: str) -> None:
    """Raises StateError, which names the key, if a size exceeds the memory of this machine."""
    for key in keys:
        require_size(key, config[key])


def require_size(name: str, size: int) -> None:
    """As require_memory(), for a size that an option gives."""
    memory = machine_memory()
    if size > memory:
        raise _too_large(name, size, f"this machine has {text.amount(memory)} of memory")


def require_disk(config: Config, key: str, folder: str) -> None:
    """Raises StateError if a size that was set exceeds the file system of a folder that exists or will."""
    if not config.was_set(key):
        return
    place = Path(folder).resolve()
    whole = shutil.disk_usage(next(path for path in (place, *place.parents) if path.exists())).total
    if config[key] > whole:
        raise _too_large(key, config[key], f"the file system of {folder} has {text.amount(whole)}")


def require_huge_pages(config: Config, size: int, *, meminfo: Path = Path("/proc/meminfo")) -> None:
    """Raises RegistrationError if memory of this size is to be in huge pages and fewer are reserved."""
    if not config.network.rdma.huge_pages:
        return
    fields: Mapping[str, str] = proc_fields(meminfo.read_text())
    whole = int(fields.get("HugePages_Total", "0"))
    each = int(fields.get("Hugepagesize", "0 kB").split()[0]) << 10
    if size > whole * each:
        detail = (
            f"network.rdma.huge_pages is true, and {text.amount(size)} need {-(-size // (each or 1))} pages"
        )
        raise setup_error("huge_pages", operation="start", detail=detail)


def machine_memory() -> int:
    """Returns the bytes of memory that this process can have: those of the machine or of its cgroup."""
    found = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    for name in _CGROUP_LIMITS:
        try:
            limit = Path(name).read_text().strip()
        except OSError:
            continue
        found += [int(limit)] if limit.isdigit() and int(limit) > 0 else []
    return min(found)


def _too_large(key: str, size: int, than: str) -> VerbenaError:
    detail = f"{key} is {text.amount(size)}, but {than}"
    return setup_error("invalid_argument", operation="start", detail=detail)
