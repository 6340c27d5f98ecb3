"""The completion script for fish, with descriptions."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from verbena.cli.completion.words import Option, Value, Words

_HEAD = """\
# Completion of verbena for fish; printed by `verbena completion fish`.

function __verbena_at --description 'Whether the command line is at one of these commands'
    set -l at
    for word in (commandline -opc)[2..-1]
        if contains -- "$at $word" @PATHS@
            set at "$at $word"
        end
    end
    contains -- (string trim -- "$at") $argv
end

function __verbena_more --description 'Whether more than - or -- has been typed'
    not contains -- (commandline -ct) - --
end

complete -c verbena -f
"""


def script(found: Sequence[Words]) -> str:
    lines = [_HEAD.replace("@PATHS@", " ".join(f"' {words.path}'" for words in found if words.path))]
    flags = defaultdict[Option, list[str]](list)
    for words in found:
        at = f"-n {_quoted('__verbena_at ' + _name(words.path))}"
        for name, help in words.commands.items():
            lines.append(f"complete -c verbena {at} -a {name} -d {_quoted(help)}")
        for value in words.arguments:
            if takes := _takes(value):
                lines.append(f"complete -c verbena {at} {takes}")
        for option in words.options:
            if option.key:
                flags[option].append(words.path)
            else:
                lines.append(_option(option, [words.path]))
    everywhere = max(flags.values(), key=len)
    lines.append(f"set -g __verbena_with_keys {' '.join(map(_name, everywhere))}")
    for option, paths in flags.items():
        lines.append(_option(option, ["$__verbena_with_keys"] if paths == everywhere else paths))
    return "\n".join(lines) + "\n"


def _option(option: Option, paths: Sequence[str]) -> str:
    condition = (
        "__verbena_at " + " ".join(map(_name, paths)) + ("; and __verbena_more" if option.rare else "")
    )
    names = " ".join(f"-l {name[2:]}" if name.startswith("--") else f"-s {name[1:]}" for name in option.names)
    value = ""
    if option.value is not None:  # -x: a value that is not a file
        value = f" {'-r' if option.value.path else '-x'} {_takes(option.value)}".rstrip()
    return f"complete -c verbena -n {_quoted(condition)} {names}{value} -d {_quoted(option.help)}"


def _takes(value: Value) -> str:
    if value.choices:
        return f"-a {_quoted(' '.join(value.choices))}"
    if value.folder:
        return "-a '(__fish_complete_directories)'"
    return "-F" if value.path else ""


def _name(path: str) -> str:
    return path if path.startswith("$") else f'"{path}"'


def _quoted(words: str) -> str:
    return "'" + words.replace("\\", "\\\\").replace("'", "\\'") + "'"
