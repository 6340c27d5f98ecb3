"""`verbena config`, run as a user runs it."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from verbena import config
from verbena.config import KEYS, Config

COMMAND = [sys.executable, "-m", "verbena", "config"]
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Runs `verbena config ARGUMENTS…` in an empty folder, with no variables but those given."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str, status: int = 0, **variables: str) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [*COMMAND, *arguments],
            capture_output=True,
            text=True,
            timeout=50,
            check=False,
            env={"HOME": str(tmp_path / "home"), "PYTHONUTF8": "1", **variables},
        )
        assert done.returncode == status, done.stdout + done.stderr
        assert "Traceback" not in done.stderr
        return done

    return run


def write(text: str) -> None:
    Path("verbena.toml").write_text(text)


def test_check_without_a_file_lists_the_searched_paths(run):
    out = run("check").stdout
    assert "./verbena.toml" in out
    assert "/etc/verbena/verbena.toml" in out


def test_check_of_a_valid_file_counts_the_keys(run):
    write("[network.rdma]\ncq_size = 512\n")
    out = run("check", "--registry-rdma-listen-port", "2", VERBENA_REGISTRY_RDMA_LISTEN_ADDR="::").stdout
    counts = "1 set by the file, 1 set by the environment, 1 set by flags; defaults for the rest"
    assert out == f"verbena.toml is valid: {counts}\n"


def test_check_shows_every_mistake_with_a_caret(run):
    write("[network.rdma]\ncq_siez = 1\npoll_batch = 0\n")
    err = run("check", status=1).stderr
    assert "2 mistakes" in err
    assert "verbena.toml:2: there is no key network.rdma.cq_siez; did you mean cq_size?" in err
    assert "    3 | poll_batch = 0\n      |              ^\n" in err
    assert "verbena config reference" in err


def test_check_accepts_a_file_as_argument_and_as_option(run, tmp_path):
    other = tmp_path / "other.toml"
    other.write_text("nonsense = 1\n")
    for arguments in (("check", str(other)), ("check", "--config", str(other))):
        assert f"{other}:1: " in run(*arguments, status=1).stderr
    assert f"{other}:1: " in run("check", status=1, VERBENA_CONFIG=str(other)).stderr
    assert "cannot be read" in run("check", "missing.toml", status=1).stderr


def test_check_prints_json(run):
    write("[log]\nlevel = 1\n")
    found = json.loads(run("check", "--json", status=1).stdout)
    assert found["valid"] is False
    (problem,) = found["problems"]
    assert (problem["file"], problem["line"], problem["column"]) == ("verbena.toml", 2, 9)
    assert problem["key"] == "log.level"
    write("")
    assert json.loads(run("check", "--json").stdout)["valid"] is True


def test_check_prints_warnings(run):
    write("session.listen_port = 4791\n")
    assert "warning: verbena.toml:1: " in run("check").stdout
    assert "warning: " in run("show", "--changed").stderr


def test_show_prints_a_valid_configuration(run):
    """The output is a verbena.toml with the same values."""
    write(
        '[network]\nrdma_device = "rxe0"\n[network.rdma]\nmax_mr_size = "3GiB"\n[session]\nlisten_port = 0\n'
    )
    shown = run("show", "--log-level", "debug").stdout
    loaded = config.loads(shown)
    assert set(loaded.sources) == set(KEYS)
    assert loaded == config.load("verbena.toml", environment={}, flags={"log.level": "debug"})
    assert config.loads(run("show", "--changed", "--origin").stdout) == config.load(
        "verbena.toml", environment={}
    )


def test_show_prints_the_source_of_each_value(run):
    write("[network.rdma]\npoll_batch = 8\n")
    out = run("show", "--changed", "--origin", "--no-tls-verify", VERBENA_NETWORK_RDMA_CQ_SIZE="600").stdout
    assert re.search(r"^poll_batch = 8 +# verbena\.toml:2$", out, re.MULTILINE)
    assert re.search(r"^cq_size = 600 +# VERBENA_NETWORK_RDMA_CQ_SIZE$", out, re.MULTILINE)
    assert re.search(r"^verify = false +# --no-tls-verify$", out, re.MULTILINE)
    assert out.count(" = ") == 3
    assert "# default" in run("show", "--origin", "log").stdout


def test_show_prints_json(run):
    document = json.loads(run("show", "--json", VERBENA_NETWORK_RDMA_MAX_MR_SIZE="1GiB").stdout)
    assert set(document["keys"]) == set(KEYS)
    assert document["keys"]["network.rdma.max_mr_size"] == {
        "value": 1 << 30,
        "origin": "VERBENA_NETWORK_RDMA_MAX_MR_SIZE",
    }
    assert document["file"] is None


def test_show_changed_without_changes_says_so(run):
    assert "all values are defaults" in run("show", "--changed").stdout


def test_show_accepts_a_key_or_a_section(run):
    assert run("show", "network.rdma.cq_size").stdout.splitlines()[-1] == "cq_size = 4096"
    assert run("show", "cq-size").stdout.splitlines()[-1] == "cq_size = 4096"
    assert "[network.rdma]" in run("show", "network").stdout
    assert "[log]" not in run("show", "[network]").stdout
    assert "did you mean cq_size?" in run("show", "cq_siez", status=2).stderr


@pytest.mark.parametrize("arguments", [(), ("--json",), ("--changed", "--origin"), ("session.secret",)])
def test_show_never_shows_a_secret(run, arguments):
    """Secrets from the file and from the environment are hidden."""
    write('[session]\nsecret = "hunter2hunter2hunter2"\n')
    for variables in ({}, {"VERBENA_SESSION_SECRET": "hunter2hunter2hunter3"}):
        done = run("show", *arguments, **variables)
        assert "hunter2" not in done.stdout + done.stderr
        assert "secret" in done.stdout


def test_reference_prints_the_page_the_sample_or_a_key(run):
    """The page and the sample equal the files in docs/reference."""
    assert run("reference").stdout == (ROOT / "docs/reference/configuration.md").read_text()
    sample = run("reference", "--sample").stdout
    assert sample == (ROOT / "docs/reference/verbena.toml").read_text()
    write(sample)
    assert config.load("verbena.toml", environment={}) == Config()
    key = run("reference", "network.rdma.inline_threshold").stdout
    for fact in ("256", "VERBENA_NETWORK_RDMA_INLINE_THRESHOLD", "--network-rdma-inline-threshold", "64KiB"):
        assert fact in key
    assert run("reference", "log").stdout.count("variable") == 2


@pytest.mark.parametrize(
    "arguments",
    [(), ("chekc",), ("reference", "nonsense"), ("reference", "log", "--sample"),
     ("show", "--network-rdma-port"), ("check", "--session-secret", "x" * 20), ("show", "--log-lev", "info")],
)  # fmt: skip
def test_wrong_usage_exits_2(run, arguments):
    assert "error:" in run(*arguments, status=2).stderr


def test_every_option_of_every_action_is_documented():
    from verbena.cli.app import build_parser

    def choices(parser):
        return next(action.choices for action in parser._actions if isinstance(action.choices, dict))

    for name, parser in choices(choices(build_parser())["config"]).items():
        undocumented = [action.dest for action in parser._actions if not action.help]
        assert not undocumented, name
