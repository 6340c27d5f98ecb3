"""What services print about access at their start, and sizes that the machine does not have."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from verbena.cli import safety
from verbena.config import Config, loads
from verbena.errors import RegistrationError, StateError

Run = Callable[..., "subprocess.CompletedProcess[str]"]


def test_a_store_without_a_password_says_which_clients_it_refuses() -> None:
    """Only if other machines can reach it, and they need no password."""
    note = safety.store_note(["0.0.0.0"], open_to_all=True, protected=True)
    assert "only clients of this machine are accepted" in note
    assert "kv.password_file" in note
    assert safety.store_note(["127.0.0.1", "::1"], open_to_all=True, protected=True) == ""
    assert safety.store_note(["0.0.0.0"], open_to_all=False, protected=True) == ""


def test_a_store_that_every_machine_can_change_is_called_unsafe() -> None:
    assert safety.store_note(["10.0.0.1"], open_to_all=True, protected=False).startswith("UNSAFE")


def test_sessions_without_a_secret_name_the_users_that_are_accepted() -> None:
    """With a secret or client certificates there is no note."""
    assert "this user and root of this machine only" in safety.session_note(Config())
    assert "every user of this machine" in safety.session_note(Config(), admits_unproved=True)
    assert "uid 1000" in safety.session_note(loads('session.allow_uids = "1000"\n'))
    assert safety.session_note(loads('session.secret = "sixteen characters"\n')) == ""


def test_a_registry_that_others_reach_has_notes_about_tls_and_pushes() -> None:
    """On loopback there are none."""
    registry = replace(Config().registry, listen_address="0.0.0.0", anonymous="push")
    notes = safety.registry_notes(replace(Config(), registry=registry))
    assert ["encryption" in notes[0], "UNSAFE" in notes[1]] == [True, True]
    assert safety.registry_notes(Config()) == []


@pytest.mark.parametrize(
    ("arguments", "key"),
    [
        (("serve", "--kv-maxmemory", "900TiB"), "kv.maxmemory is 900 TiB"),
        (("memory-node", "--size", "900TiB"), "--size is 900 TiB"),
        (("registry", "--registry-s3-cache-size", "900TiB"), "registry.s3.cache_size is 900 TiB"),
    ],
)
def test_a_size_beyond_the_machine_is_refused_by_its_key(
    verbena: Run, arguments: tuple[str, ...], key: str
) -> None:
    """At the start, not when the memory is used up."""
    assert key in verbena(*arguments, status=1).stderr


def test_a_size_of_the_machine_is_accepted() -> None:
    safety.require_size("--size", safety.machine_memory())
    with pytest.raises(StateError, match=r"--size is .* but this machine has"):
        safety.require_size("--size", safety.machine_memory() + 1)


def test_more_huge_pages_than_are_reserved_are_refused(tmp_path: Path) -> None:
    """The error names the key and the number of pages; without the key nothing is checked."""
    meminfo = tmp_path / "meminfo"
    meminfo.write_text("HugePages_Total:       4\nHugepagesize:       2048 kB\n")
    wanted = loads("network.rdma.huge_pages = true\n")
    safety.require_huge_pages(wanted, 8 << 20, meminfo=meminfo)
    with pytest.raises(RegistrationError, match=r"rdma\.huge_pages is true, and 10\.0 MiB need 5 pages"):
        safety.require_huge_pages(wanted, 10 << 20, meminfo=meminfo)
    safety.require_huge_pages(Config(), 10 << 20, meminfo=meminfo)
