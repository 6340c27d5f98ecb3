"""Completion scripts, run by the shells themselves."""

from __future__ import annotations

import os
import pty
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from support.terminal import rest_of

from verbena.cli.app import build_parser
from verbena.cli.completion import bash, fish, zsh
from verbena.cli.completion.words import words_of
from verbena.cli.help.catalog import COMMANDS

Run = Callable[..., "subprocess.CompletedProcess[str]"]
WRITERS = {"bash": bash.script, "zsh": zsh.script, "fish": fish.script}
POLICIES = {"noeviction", "allkeys-lru", "volatile-lru", "allkeys-lfu", "volatile-lfu", "allkeys-random"}
POLICIES |= {"volatile-random", "volatile-ttl"}


@pytest.fixture(scope="module", params=WRITERS)
def shell(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """A shell that is installed, and the file with its script."""
    if shutil.which(request.param) is None:
        pytest.skip(f"{request.param} is not installed")
    file = tmp_path_factory.mktemp("completion") / f"verbena.{request.param}"
    file.write_text(WRITERS[request.param](list(words_of(build_parser()))))
    return request.param, file


def candidates(shell: tuple[str, Path], line: str, folder: Path) -> set[str]:
    """What the shell offers at the end of a line, without descriptions."""
    name, file = shell
    if name == "bash":
        words = " ".join(f"'{word}'" for word in line.replace("=", " = ").split(" "))
        program = (
            f"source {file}; COMP_WORDS=({words}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); _verbena;"
            ' printf "%s\\n" "${COMPREPLY[@]}"'
        )
    elif name == "fish":
        program = f"source {file}; complete -C '{line}'"
    else:
        pytest.skip("zsh completes on a terminal only: see the test of a terminal")
    options = ["--no-config"] if name == "fish" else ["--norc"]
    done = subprocess.run(
        [name, *options, "-c", program], cwd=folder, capture_output=True, text=True, check=True, timeout=30
    )
    assert not done.stderr
    return {row.partition("\t")[0].rpartition("=")[2] for row in done.stdout.splitlines() if row}


def test_commands_and_actions_are_completed(shell: tuple[str, Path], tmp_path: Path) -> None:
    assert candidates(shell, "verbena ", tmp_path) == set(COMMANDS)
    assert candidates(shell, "verbena se", tmp_path) == {"serve"}
    actions = {"map", "move", "rebalance", "status", "nodes", "abort"}
    assert candidates(shell, "verbena shards ", tmp_path) == actions
    assert candidates(shell, "verbena help s", tmp_path) == {"serve", "shards"}


def test_options_are_those_of_help_until_more_is_typed(shell: tuple[str, Path], tmp_path: Path) -> None:
    """After `--` the options that are used most; after further letters every option."""
    usual = candidates(shell, "verbena serve --", tmp_path)
    assert {"--port", "--kv-maxmemory"} <= usual
    assert "--kv-busy-poll-us" not in usual
    assert candidates(shell, "verbena serve --kv-busy", tmp_path) == {"--kv-busy-poll-us"}
    assert candidates(shell, "verbena shards move --det", tmp_path) == {"--detach"}
    assert candidates(shell, "verbena devices --kv", tmp_path) == set()


def test_choices_of_options_arguments_and_keys_are_completed(shell: tuple[str, Path], tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert candidates(shell, "verbena bench ", tmp_path) == {"latency", "rate", "bandwidth"}
    assert candidates(shell, "verbena bench latency --op ", tmp_path) == {"send", "write", "read", "atomic"}
    assert candidates(shell, "verbena bench latency --op=w", tmp_path) == {"write"}
    assert candidates(shell, "verbena serve --kv-maxmemory-policy ", tmp_path) == POLICIES
    assert candidates(shell, "verbena completion ", tmp_path) == set(WRITERS)


def test_files_are_completed_where_a_file_is_meant(shell: tuple[str, Path], tmp_path: Path) -> None:
    """Folders only, where a folder is meant; nothing for a number."""
    (tmp_path / "store.toml").touch()
    (tmp_path / "stored").mkdir()
    bare = {"store.toml", "stored"}
    found = {name.rstrip("/") for name in candidates(shell, "verbena serve --config sto", tmp_path)}
    assert found == bare
    found = {name.rstrip("/") for name in candidates(shell, "verbena kv check sto", tmp_path)}
    assert found == {"stored"}
    assert candidates(shell, "verbena serve --port sto", tmp_path) == set()


@pytest.mark.parametrize(
    ("typed", "ran"),
    [
        ("verbena expl\t", "explain"),
        ("verbena shards reb\t --dr\t", "shards rebalance --dry-run"),
        ("verbena serve --kv-maxmemory-p\tallkeys-lf\t", "serve --kv-maxmemory-policy allkeys-lfu"),
        ("verbena bench lat\t --op=se\t", "bench latency --op=send"),
        ("verbena serve --config only\t", "serve --config only.toml"),
    ],
)
def test_zsh_completes_on_a_terminal(tmp_path: Path, typed: str, ran: str) -> None:
    """The Tab key, in an interactive shell."""
    if shutil.which("zsh") is None:
        pytest.skip("zsh is not installed")
    (tmp_path / "only.toml").touch()
    (tmp_path / "script").write_text(zsh.script(list(words_of(build_parser()))))
    start = "PS1=; autoload -U compinit; compinit -u -D; source ./script; "
    start += "verbena() { print -r ran:$*: }; print re''ady\n"
    master, slave = pty.openpty()
    environment = {**os.environ, "TERM": "dumb", "HOME": str(tmp_path)}
    with subprocess.Popen(
        ["zsh", "-f", "-i"],
        stdin=slave,
        stdout=slave,
        stderr=slave,
        cwd=tmp_path,
        env=environment,
        start_new_session=True,
    ) as process:
        os.close(slave)
        os.write(master, start.encode())
        output = b""
        while b"\nready" not in output:
            output += os.read(master, 65536)
        # In one write: zsh reads Return only after the completion of Tab has ended.
        os.write(master, f"{typed}\nexit\n".encode())
        output += rest_of(master)
        assert process.wait(30) == 0
    os.close(master)
    assert f"ran:{ran}:".encode() in output


@pytest.mark.parametrize("name", WRITERS)
def test_the_command_prints_the_script(verbena: Run, name: str) -> None:
    """Without native code: it is run at the start of a shell."""
    assert verbena("completion", name).stdout == WRITERS[name](list(words_of(build_parser())))


def test_shellcheck_accepts_the_script_for_bash(tmp_path: Path) -> None:
    if shutil.which("shellcheck") is None:
        pytest.skip("shellcheck is not installed")
    file = tmp_path / "verbena.bash"
    file.write_text(bash.script(list(words_of(build_parser()))))
    # SC2207: bash 3 has no mapfile.
    done = subprocess.run(
        ["shellcheck", "-s", "bash", "-e", "SC2207", file], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout
