"""Command-line flags for the configuration keys: `--network-rdma-cq-size 8192`,
`--no-network-rdma-huge-pages`."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterable

from verbena.config.keys import Key
from verbena.config.kinds import Boolean, Choice, Endpoint, FilePath, Integer, Size
from verbena.config.load import load
from verbena.config.model import KEYS, SECTIONS, Config

_PREFIX = "config:"
_FEW = 4  # choices that fit on a line
_METAVARS = ((Size, "SIZE"), (FilePath, "PATH"), (Endpoint, "HOST:PORT"), (Integer, "N"))


def add_flags(parser: argparse.ArgumentParser, *, first: Iterable[str] = ()) -> dict[str, argparse.Action]:
    """Adds --config and a flag for every key except secrets, in one group per section; the `first` sections
    come first. Returns the actions of the keys, by full key."""
    parser.add_argument(
        "--config",
        metavar="FILE",
        help="configuration file (default: see `verbena config --help-all`)",
    )
    # No abbreviations: --session-secret would be accepted as --session-secret-file.
    parser.allow_abbrev = False
    leading = [section for section in first if section in SECTIONS]
    found = {}
    for section in dict.fromkeys((*leading, *SECTIONS)):
        group = parser.add_argument_group(f"[{section}]")
        for key in KEYS.values():
            if key.section == section and key.flag:
                found[key.path] = _add_flag(group, key, key.flag)
    return found


def short_help(path: str) -> str:
    """Returns the help of a key's flag in one line: the first clause of its meaning, values and default."""
    key = KEYS[path]
    words = re.split(r"[;:.] |\.$", key.meaning)[0]
    words = words[0].lower() + words[1:] if words[1].islower() else words
    if isinstance(key.kind, Choice) and len(key.kind.options) <= _FEW:
        marked = (f"{name} (default)" if name == key.default else name for name in key.kind.options)
        return f"{words}: {', '.join(marked)}"
    if key.default and not isinstance(key.kind, Boolean):
        words += f" (default: {str(key.default) if isinstance(key.default, str) else key.default_toml})"
    return words.replace("%", "%%")


def key_of(action: argparse.Action) -> Key | None:
    """Returns the key that an option sets; None if it is not one of add_flags()."""
    return KEYS.get(action.dest.removeprefix(_PREFIX)) if action.dest.startswith(_PREFIX) else None


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


def _add_flag(group: argparse._ActionsContainer, key: Key, flag: str) -> argparse.Action:
    # argparse interprets % in a help text.
    words = f"{key.meaning} (default: {key.default_toml})".replace("%", "%%")
    destination = f"{_PREFIX}{key.path}"
    if isinstance(key.kind, Boolean):
        action = group.add_argument(flag, dest=destination, action="store_const", const="true", help=words)
        group.add_argument(
            f"--no-{flag.removeprefix('--')}",
            dest=destination,
            action="store_const",
            const="false",
            help=argparse.SUPPRESS,
        )
        return action
    return group.add_argument(flag, dest=destination, metavar=_metavar(key), help=words)


def _metavar(key: Key) -> str:
    otherwise = "HOST" if key.name == "listen_address" else "VALUE"
    return next((name for kind, name in _METAVARS if isinstance(key.kind, kind)), otherwise)
