"""Checks and repairs the snapshot and log of a store, for `verbena kv`."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from verbena.cli.progress import Waiting
from verbena.errors import setup_error
from verbena.kv.storage.disk import MANIFEST, Disk, Inventory, Manifest


def _open(directory: Path) -> Disk:
    if not directory.is_dir():
        raise setup_error(
            "log_failed", operation="read the store's files", detail=f"{directory}: no directory"
        )
    return Disk(directory, create=False)


def check(options: argparse.Namespace) -> int:
    with _open(options.directory) as disk, Waiting("reading every record"):
        found = disk.verify()
    damage = found.damage
    if options.json:
        print(json.dumps(_document(found), indent=2))
    else:
        _print_files(found)
        if damage is None:
            print(f"intact: {found.records:,} records, next LSN {found.next_lsn}")
        else:
            print(f"{'torn' if damage.torn else 'damaged'}: {damage}")
            if damage.records_behind:
                print(f"  {damage.records_behind:,} intact records follow")
            print(
                "  caused by a crash; the server truncates the log there at its next start"
                if damage.torn
                else "  not caused by a crash; `verbena kv repair` truncates the log there"
            )
    return 0 if damage is None or damage.torn else 1


def _print_files(found: Inventory) -> None:
    for file in ([found.snapshot] if found.snapshot else []) + found.segments:
        report = file.report
        span = (
            f"as of LSN {report['first_lsn'] - 1} to {report['last_lsn']}"
            if file is found.snapshot
            else f"LSN {report['first_lsn']} to {report['next_lsn'] - 1}"
        )
        print(f"{file.path.name}  {report['file_bytes']:,} bytes, {report['records']:,} records, {span}")


def _document(found: Inventory) -> dict[str, Any]:
    files = [*([found.snapshot] if found.snapshot else []), *found.segments]
    damage = found.damage
    return {
        "whole": damage is None,
        "next_lsn": found.next_lsn,
        "records": found.records,
        "files": [{"name": file.path.name, **file.report} for file in files],
        "damage": damage and {**damage.__dict__, "path": damage.path.name},
    }


def repair(options: argparse.Namespace) -> int:
    say = (lambda _: None) if options.json else print
    with _open(options.directory) as disk:
        with Waiting("reading every record"):
            found = _verify(disk, say)
        damage = found.damage
        if damage is None:
            say(f"nothing to repair: {found.records:,} records are intact")
            return _finish(options, found, [])
        say(f"damaged: {damage}")
        if damage.path.suffix == ".vsnap":
            detail = (
                f"{damage.path.name}: a snapshot cannot be truncated; restore the directory from a backup"
            )
            raise setup_error("log_failed", operation="repair", detail=detail)
        lost = damage.records_behind
        say(
            f"  the log will end before LSN {found.next_lsn};"
            f" {lost:,} intact records after it will be removed"
        )
        if not options.yes and not _agrees():
            print("no changes made")
            return 1
        kept = disk.cut(found)
        first = found.manifest.first_lsn
        segments = tuple(begins for begins, _ in disk.segment_files() if begins >= first)
        disk.write_manifest(Manifest(found.manifest.snapshot, first, found.manifest.epoch, segments))
        for path in kept:
            say(f"removed bytes saved to {path}")
        with Waiting("reading every record"):
            found = disk.verify()
        say(f"repaired: {found.records:,} records are intact")
    return _finish(options, found, kept)


def _finish(options: argparse.Namespace, found: Inventory, kept: Sequence[Path]) -> int:
    if options.json:
        print(json.dumps({**_document(found), "removed_to": [str(path) for path in kept]}, indent=2))
    return 0


def _verify(disk: Disk, say: Callable[[str], None]) -> Inventory:
    """Verifies the files. Recreates a missing manifest if snapshots or a complete log show what it must
    contain."""
    if not (disk.path / MANIFEST).exists():
        segments = disk.segment_files()
        snapshots = sorted(disk.path.glob("snapshot-*.vsnap"))
        if segments and not snapshots and segments[0][0] == 1:
            disk.write_manifest(Manifest(segments=tuple(first for first, _ in segments)))
            say(f"{MANIFEST} was missing; recreated from the log")
        elif snapshots:
            first = int(snapshots[-1].name[9:29]) + 1
            current = tuple(begins for begins, _ in segments if begins >= first)
            disk.write_manifest(Manifest(snapshots[-1].name, first, segments=current))
            say(f"{MANIFEST} was missing; recreated for {snapshots[-1].name}")
    return disk.verify()


def _agrees() -> bool:
    try:
        return input("Truncate the log? [y/N] ").strip().lower() in ("y", "yes")
    except EOFError:
        return False
