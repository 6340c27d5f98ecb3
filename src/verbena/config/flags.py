"""Command-line flags for the configuration keys: `--network-rdma-cq-size 8192`,
`--no-network-rdma-huge-pages`."""

from __future__ import annotations

import argparse
from collections.abc import Iterable

from verbena.config.keys import Key
from verbena.config.kinds import Boolean
from verbena.config.load import load
from verbena.config.model import KEYS, SECTIONS, Config

_PREFIX = "config:"


def add_flags(parser: argparse.ArgumentParser, *, listed: Iterable[str] = ()) -> None:
    """Adds --config and a flag for every key except secrets. --help shows those of the `listed` sections."""
    parser.add_argument(
        "--config",
        metavar="FILE",
        help="the file to read (default: the first that `verbena config --help` names)",
    )
    # No abbreviations: --session-secret would be accepted as --session-secret-file.
    parser.allow_abbrev = False
    shown = set(listed)
    for section in SECTIONS:
        group = parser.add_argument_group(f"[{section}]") if section in shown else parser
        for key in KEYS.values():
            if key.section == section and key.flag:
                _add_flag(group, key, key.flag, listed=section in shown)


def given_flags(options: argparse.Namespace) -> dict[str, str]:
    """Returns the values of the flags of add_flags() that were given, as text by full key."""
    return {
        name.removeprefix(_PREFIX): value
        for name, value in vars(options).items()
        if name.startswith(_PREFIX) and value is not None
    }


def load_with_flags(options: argparse.Namespace) -> Config:
    """Calls load() with the file and the flags of a command line."""
    return load(options.config, flags=given_flags(options))


def _add_flag(group: argparse._ActionsContainer, key: Key, flag: str, *, listed: bool) -> None:
    # argparse interprets % in a help text.
    words = f"{key.meaning} (default: {key.default_toml})".replace("%", "%%") if listed else argparse.SUPPRESS
    destination = f"{_PREFIX}{key.path}"
    if isinstance(key.kind, Boolean):
        negative = f"--no-{flag.removeprefix('--')}"
        group.add_argument(flag, dest=destination, action="store_const", const="true", help=words)
        group.add_argument(
            negative, dest=destination, action="store_const", const="false", help=argparse.SUPPRESS
        )
    else:
        group.add_argument(flag, dest=destination, metavar="VALUE", help=words)
