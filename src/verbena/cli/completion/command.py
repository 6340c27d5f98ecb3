"""`verbena completion`: prints a completion script for a shell."""

from __future__ import annotations

import argparse

from verbena.cli.help.parser import Parser

EPILOG = """\
examples:
  eval "$(verbena completion bash)"                                       this shell
  verbena completion bash > ~/.local/share/bash-completion/completions/verbena
  verbena completion zsh > "${fpath[1]}/_verbena"                         then: compinit
  verbena completion fish > ~/.config/fish/completions/verbena.fish

After `--` the options of --help are offered; after further letters every option.
"""
SHELLS = ("bash", "zsh", "fish")


def add_parser(commands: argparse._SubParsersAction[Parser]) -> Parser:
    parser = commands.add_parser(
        "completion",
        description="Prints a script that completes commands, options, choices and files.",
        epilog=EPILOG,
    )
    parser.add_argument("shell", choices=SHELLS, help="the shell that reads the script")
    return parser


def run(options: argparse.Namespace) -> int:
    from verbena.cli.app import build_parser
    from verbena.cli.completion import bash, fish, zsh
    from verbena.cli.completion.words import words_of

    write = {"bash": bash.script, "zsh": zsh.script, "fish": fish.script}[options.shell]
    print(write(list(words_of(build_parser()))), end="")
    return 0
