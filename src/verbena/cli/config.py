"""`verbena config`: checks the configuration, prints the effective values, explains every key."""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Sequence
from typing import Any

from verbena.cli.help.parser import Parser
from verbena.config import KEYS, SECTIONS, Config, places, reference
from verbena.config.flags import load_with_flags
from verbena.config.keys import Key
from verbena.config.near import nearest
from verbena.errors import ConfigurationError

EPILOG = """\
examples:
  verbena config reference --sample > verbena.toml   a file to start from
  verbena config check                               list all mistakes with their lines
  verbena config show --changed --origin             changed values and their sources
  verbena config reference network.rdma.cq_size      one key: meaning, range, variable and flag

exit status: 0 valid configuration, 1 mistakes found, 2 wrong usage
"""
NOTES = """\
Precedence: flag (--network-rdma-cq-size 8192), environment (VERBENA_NETWORK_RDMA_CQ_SIZE=8192),
file, default.
The file is that of --config or VERBENA_CONFIG, else the first of ./verbena.toml,
~/.config/verbena/verbena.toml and /etc/verbena/verbena.toml.
"""
FLAGS_NOTE = "Every key has a flag, such as --network-rdma-cq-size: `verbena config reference KEY` names it."


def add_parser(commands: argparse._SubParsersAction[Parser]) -> Parser:
    parser = commands.add_parser(
        "config",
        description="Checks, shows or explains the configuration: verbena.toml, the environment and flags.",
        epilog=EPILOG,
        notes=NOTES,
    )
    actions = parser.add_subparsers(title="actions", metavar="ACTION", required=True, help="what to do")

    check = actions.add_parser(
        "check",
        help="check the configuration and list every mistake",
        description="Reads the configuration as a service does, and lists every mistake with its line.",
        epilog=FLAGS_NOTE,
    )
    check.add_argument("file", nargs="?", metavar="FILE", help="file to check (default: the file in use)")
    check.add_argument("--json", action="store_true", help="print one JSON document")
    check.add_config()
    check.set_defaults(action=_check)

    show = actions.add_parser(
        "show",
        help="print the effective values as TOML",
        description="Prints the effective values as valid TOML. Secrets are not shown.",
        epilog=FLAGS_NOTE,
    )
    show.add_argument("key", nargs="?", metavar="KEY", help="a key or section (default: all)")
    show.add_argument("--changed", action="store_true", help="only values that differ from the default")
    show.add_argument("--origin", action="store_true", help="print the source of each value")
    show.add_argument("--json", action="store_true", help="print one JSON document, with sources")
    show.add_config()
    show.set_defaults(action=_show, parser=show)

    explain = actions.add_parser(
        "reference",
        help="explain the keys",
        description="Prints the meaning, default and range of every key.",
    )
    explain.add_argument("key", nargs="?", metavar="KEY", help="a key or section (default: all)")
    explain.add_argument(
        "--sample", action="store_true", help="print a verbena.toml with all keys commented out"
    )
    explain.add_argument("--json", action="store_true", help="print one JSON document")
    explain.set_defaults(action=_reference, parser=explain)
    return parser


def run(options: argparse.Namespace) -> int:
    status: int = options.action(options)
    return status


def _check(options: argparse.Namespace) -> int:
    options.config = options.file or options.config
    try:
        config = load_with_flags(options)
    except ConfigurationError as error:
        if options.json and error.problems:
            print(
                json.dumps(
                    {"valid": False, "problems": [_plain(problem) for problem in error.problems]}, indent=2
                )
            )
            return 1
        raise
    if options.json:
        file = str(config.file) if config.file else None
        print(
            json.dumps({"valid": True, "file": file, "warnings": config.warnings, "problems": []}, indent=2)
        )
        return 0
    print(_verdict(config))
    for line in _warnings(config):
        print(line)
    return 0


def _verdict(config: Config) -> str:
    kinds = Counter(source.kind for source in config.sources.values())
    counts = (
        (kinds["file"], "by the file"),
        (kinds["environment"], "by the environment"),
        (kinds["flag"], "by flags"),
    )
    summary = ", ".join(f"{count} set {source}" for count, source in counts if count) or "no keys set"
    if config.file:
        return f"{config.file} is valid: {summary}; defaults for the rest"
    looked = ", ".join(str(path if path.is_absolute() else f"./{path}") for path in places())
    return f"no file found ({looked}): {summary}; defaults for the rest"


def _show(options: argparse.Namespace) -> int:
    keys = _selected(options)
    config = load_with_flags(options)
    if options.changed:
        keys = [key for key in keys if config.source_of(key.path).kind != "default"]
    if options.json:
        values = {
            key.path: {"value": key.kind.to_json(config[key.path]), "origin": str(config.source_of(key.path))}
            for key in keys
        }
        print(json.dumps({"file": str(config.file) if config.file else None, "keys": values}, indent=2))
    else:
        print(f"# {config.file}" if config.file else "# no file")
        if not keys:
            print("# all values are defaults")
        for section in dict.fromkeys(key.section for key in keys):
            print(f"\n[{section}]")
            lines = [_line(config, key) for key in keys if key.section == section]
            width = max(map(len, lines))
            for line, key in zip(lines, (key for key in keys if key.section == section), strict=True):
                origin = f"  # {config.source_of(key.path)}" if options.origin else ""
                print(f"{line:<{width}}{origin}" if origin else line)
    for line in _warnings(config):
        print(line, file=sys.stderr)
    return 0


def _line(config: Config, key: Key) -> str:
    value = config[key.path]
    if key.kind.secret and value:
        return f"# {key.name} is set (hidden)"
    return f"{key.name} = {key.kind.to_toml(value)}"


def _reference(options: argparse.Namespace) -> int:
    if options.key and options.sample:
        options.parser.error("--sample prints all keys: omit KEY")
    if options.json and options.sample:
        options.parser.error("--sample is TOML: omit --json")
    if options.json:
        print(json.dumps({key.path: _described(key) for key in _selected(options)}, indent=2))
    elif options.key:
        print("\n\n".join(reference.describe(key) for key in _selected(options)))
    else:
        print(reference.sample() if options.sample else reference.page(), end="")
    return 0


def _selected(options: argparse.Namespace) -> list[Key]:
    """Returns the keys that KEY selects: a full name, a section, or the last part of a name; exits with a
    usage error if there is none."""
    name = (options.key or "").strip("[]").replace("-", "_")
    if not name:
        return list(KEYS.values())
    found = [key for key in KEYS.values() if key.path == name]
    found = found or [
        key for key in KEYS.values() if key.section == name or key.section.startswith(f"{name}.")
    ]
    found = found or [key for key in KEYS.values() if key.name == name]
    if not found:
        near = nearest(name, (*KEYS, *SECTIONS, *(key.name for key in KEYS.values())))
        options.parser.error(
            f"there is no key or section {name!r}" + (f"; did you mean {near}?" if near else "")
        )
    return found


def _described(key: Key) -> dict[str, Any]:
    return {
        "meaning": f"{key.meaning} {key.more}".strip(),
        "default": key.kind.to_json(key.default),
        "allowed": key.kind.allowed,
        "unit": key.unit,
        "variable": key.variable,
        "flag": key.flag,
        "read_by": key.read_by,
    }


def _warnings(config: Config) -> Sequence[str]:
    return [f"warning: {words}" for words in config.warnings]


def _plain(problem: Any) -> dict[str, Any]:
    return {
        "file": problem.source,
        "line": problem.line,
        "column": problem.column,
        "key": problem.key,
        "message": problem.message,
    }
