"""`verbena kv`: checks and repairs the files of a store, and benchmarks servers."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from verbena.cli.measure import kv_bench
from verbena.errors import setup_error
from verbena.kv.storage.disk import MANIFEST, Disk, Inventory, Manifest

EPILOG = """\
examples:
  verbena kv check /var/lib/verbena             read every record; change nothing
  verbena kv repair /var/lib/verbena            truncate the log at damage, after confirmation
  verbena kv repair --yes /var/lib/verbena      without confirmation
  verbena kv bench                              compare a store with redis-server under the same load

A server removes the unfinished end that a crash leaves. Only damage that a crash does not explain needs
`repair`: records behind it are removed from the store and kept in a file that ends in .cut-OFFSET.

exit status: 0 all files are intact (or were repaired), 1 damage found, 2 wrong usage
"""


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> argparse.ArgumentParser:
    parser = commands.add_parser(
        "kv",
        help="check or repair the files of a store, or benchmark servers",
        description="Checks or repairs the snapshot and log of a store, or benchmarks servers.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    actions = parser.add_subparsers(title="actions", metavar="ACTION", required=True, help="what to do")
    check = actions.add_parser(
        "check",
        help="read every record and report damage",
        description="Reads every record of snapshot and log. Needs a stopped server; changes nothing.",
    )
    check.add_argument("directory", metavar="DIR", type=Path, help="the store's directory")
    check.add_argument("--json", action="store_true", help="print one JSON document")
    check.set_defaults(action=_check)
    repair = actions.add_parser(
        "repair",
        help="truncate the log at the first damaged record",
        description="Truncates the log at the first damaged record and keeps the rest in a file beside it.",
    )
    repair.add_argument("directory", metavar="DIR", type=Path, help="the store's directory")
    repair.add_argument("--yes", action="store_true", help="do not ask for confirmation")
    repair.set_defaults(action=_repair)
    kv_bench.add_parser(actions)
    return parser


def run(options: argparse.Namespace) -> int:
    status: int = options.action(options)
    return status


def _open(directory: Path) -> Disk:
    if not directory.is_dir():
        raise setup_error(
            "log_failed", operation="read the store's files", detail=f"{directory}: no directory"
        )
    return Disk(directory, create=False)


def _check(options: argparse.Namespace) -> int:
    with _open(options.directory) as disk:
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


def _repair(options: argparse.Namespace) -> int:
    with _open(options.directory) as disk:
        found = _verify(disk)
        damage = found.damage
        if damage is None:
            print(f"nothing to repair: {found.records:,} records are intact")
            return 0
        print(f"damaged: {damage}")
        if damage.path.suffix == ".vsnap":
            print(
                "  a snapshot cannot be truncated; restore the directory from a backup",
                file=sys.stderr,
            )
            return 1
        lost = damage.records_behind
        print(
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
            print(f"removed bytes saved to {path}")
        print(f"repaired: {disk.verify().records:,} records are intact")
    return 0


def _verify(disk: Disk) -> Inventory:
    """Verifies the files. Recreates a missing manifest if snapshots or a complete log show what it must
    contain."""
    if not (disk.path / MANIFEST).exists():
        segments = disk.segment_files()
        snapshots = sorted(disk.path.glob("snapshot-*.vsnap"))
        if segments and not snapshots and segments[0][0] == 1:
            disk.write_manifest(Manifest(segments=tuple(first for first, _ in segments)))
            print(f"{MANIFEST} was missing; recreated from the log")
        elif snapshots:
            first = int(snapshots[-1].name[9:29]) + 1
            current = tuple(begins for begins, _ in segments if begins >= first)
            disk.write_manifest(Manifest(snapshots[-1].name, first, segments=current))
            print(f"{MANIFEST} was missing; recreated for {snapshots[-1].name}")
    return disk.verify()


def _agrees() -> bool:
    try:
        return input("Truncate the log? [y/N] ").strip().lower() in ("y", "yes")
    except EOFError:
        return False
