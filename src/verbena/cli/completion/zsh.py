"""The completion script for zsh, with descriptions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from verbena.cli.completion.words import Option, Value, Words

_FUNCTION = """\
#compdef verbena
# Completion of verbena for zsh; printed by `verbena completion zsh`.

_verbena() {
    local at='' word previous=${words[CURRENT-1]} current=${words[CURRENT]} option
    local -a commands usual rare
    if [[ $current == --*=* ]]; then
        previous=${current%%=*}
        compset -P '*='
    fi
    for word in ${words[2,CURRENT-1]}; do
        case "$at $word" in
            (@PATHS@) at="$at $word" ;;
        esac
    done
    at=${at# }
    case "$at $previous" in
@VALUES@
    esac
    case "$at" in
@COMMANDS@
    esac
    if [[ $current == -* ]]; then
        [[ $current == -- || $current == - ]] || usual+=($rare)
        _describe -o option usual
    elif (( $#commands )); then
        _describe command commands
    else
        case "$at" in
@ARGUMENTS@
        esac
    fi
}

@FLAGS@

if [[ $zsh_eval_context[-1] == loadautofunc ]]; then
    _verbena "$@"
else
    compdef _verbena verbena
fi
"""


def script(found: Sequence[Words]) -> str:
    flags = {option.names[-1]: option for words in found for option in words.options if option.key}
    text = _FUNCTION
    for mark, lines in {
        "@PATHS@": ["|".join(f"' {words.path}'" for words in found if words.path)],
        "@COMMANDS@": [_command(words, set(flags)) for words in found],
        "@VALUES@": _values(found),
        "@ARGUMENTS@": [
            f"            ('{words.path}') {_complete(words.arguments)} ;;"
            for words in found
            if words.arguments and _complete(words.arguments) != "return"
        ],
        "@FLAGS@": [
            "typeset -ga _verbena_flags=(",
            *(f"    {_row(flags[name])}" for name in sorted(flags)),
            ")",
        ],
    }.items():
        text = text.replace(mark, "\n".join(lines))
    return text


def _command(words: Words, flags: set[str]) -> str:
    lines = [f"        ('{words.path}')"]
    if words.commands:
        rows = " ".join(_quoted(f"{name}:{help}") for name, help in words.commands.items())
        lines.append(f"            commands=({rows})")
    usual = " ".join(_row(option) for option in words.options if not option.rare)
    rare = [_row(option) for option in words.options if option.rare and option.names[-1] not in flags]
    rare += ["$_verbena_flags"] if any(option.key for option in words.options) else []
    lines += [f"            usual=({usual})", f"            rare=({' '.join(rare)}) ;;"]
    return "\n".join(lines)


def _values(found: Iterable[Words]) -> list[str]:
    lines = dict[str, None]()
    for words in found:
        for option in words.options:
            if option.value is not None:
                patterns = (
                    f"*' {name}'" if option.key else f"'{words.path} {name}'" for name in option.names
                )
                lines[f"        ({'|'.join(patterns)}) {_complete([option.value])}; return ;;"] = None
    return [line.replace("return; return", "return") for line in lines]


def _complete(values: Sequence[Value]) -> str:
    choices = [choice for value in values for choice in value.choices]
    if choices:
        return f"compadd -- {' '.join(choices)}"
    if any(value.path for value in values):
        return "_files"
    return "_files -/" if any(value.folder for value in values) else "return"


def _row(option: Option) -> str:
    return _quoted(f"{option.names[-1]}:{option.help}")


def _quoted(words: str) -> str:
    return "'" + words.replace("'", "'\\''") + "'"
