"""The completion script for bash."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from verbena.cli.completion.words import Option, Value, Words

_HEAD = """\
# Completion of verbena for bash; printed by `verbena completion bash`.
"""
_FUNCTION = """\
_verbena() {
    local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD-1]}
    local at='' word commands='' usual='' every='' take='' values='' IFS=$' \\t\\n'
    if [[ $current == '=' ]]; then
        current=''
    elif [[ $previous == '=' ]]; then
        previous=${COMP_WORDS[COMP_CWORD-2]}
    fi
    for word in "${COMP_WORDS[@]:1:COMP_CWORD-1}"; do
        case "$at $word" in
            @PATHS@) at="$at $word" ;;
        esac
    done
    at=${at# }
    case "$at" in
@COMMANDS@
    esac
    case "$at $previous" in
@VALUES@
    esac
    if [[ -z $take ]]; then
        if [[ $current == -* ]]; then
            take=words values=$every
            [[ $current == - || $current == -- ]] && values=$usual
        elif [[ -n $commands ]]; then
            take=words values=$commands
        else
            case "$at" in
@ARGUMENTS@
            esac
        fi
    fi
    case "$take" in
        words) COMPREPLY=($(compgen -W "$values" -- "$current")) ;;
        files) IFS=$'\\n'; compopt -o filenames 2>/dev/null; COMPREPLY=($(compgen -f -- "$current")) ;;
        folders) IFS=$'\\n'; compopt -o filenames 2>/dev/null; COMPREPLY=($(compgen -d -- "$current")) ;;
        *) COMPREPLY=() ;;
    esac
}
complete -F _verbena verbena
"""


def script(found: Sequence[Words]) -> str:
    flags = sorted(
        {name for words in found for option in words.options if option.key for name in option.names}
    )
    text = _FUNCTION
    for mark, lines in {
        "@PATHS@": [" | ".join(f"' {words.path}'" for words in found if words.path)],
        "@COMMANDS@": [_command(words, set(flags)) for words in found],
        "@VALUES@": _values(found),
        "@ARGUMENTS@": [
            f"                '{words.path}') {_take(words.arguments)} ;;"
            for words in found
            if _take(words.arguments)
        ],
    }.items():
        text = text.replace(mark, "\n".join(lines))
    return f"{_HEAD}_verbena_flags='{' '.join(flags)}'\n{text}"


def _command(words: Words, flags: set[str]) -> str:
    own = [name for name in words.names(rare=True) if name not in flags]
    every = " ".join(own) + (" $_verbena_flags" if any(option.key for option in words.options) else "")
    commands = f"commands='{' '.join(words.commands)}' " if words.commands else ""
    usual = " ".join(words.names(rare=False))
    return f"        '{words.path}') {commands}usual='{usual}' every=\"{every}\" ;;"


def _values(found: Iterable[Words]) -> list[str]:
    """The cases of an option before the word; a flag of a key is the same in all commands."""
    lines = dict[str, None]()
    for words in found:
        for option in words.options:
            if option.value is not None:
                lines[
                    f"        {_pattern(words.path, option)}) {_take([option.value]) or 'take=text'} ;;"
                ] = None
    return list(lines)


def _pattern(path: str, option: Option) -> str:
    return " | ".join(f"*' {name}'" if option.key else f"'{path} {name}'" for name in option.names)


def _take(values: Sequence[Value]) -> str:
    """The assignment for what a value, or one of several arguments, may be; "": any text."""
    choices = [choice for value in values for choice in value.choices]
    if choices:
        return f"take=words values='{' '.join(choices)}'"
    if any(value.path for value in values):
        return "take=files"
    return "take=folders" if any(value.folder for value in values) else ""
