"""`verbena cli` against the store: one command, input lines, the prompt, the modes; and TLS with every
client."""

from __future__ import annotations

import json
import os
import pty
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import redis
from support.certificates import Authority
from support.kv.kv_store import StartStore, Store
from support.kv.resp import pack

from verbena.cli.resp import shell as kv_shell
from verbena.cli.resp import text as kv_text
from verbena.cli.resp.shell import BadQuotes
from verbena.kv.client.resp_connection import ErrorReply


def cli(
    store: Store, *words: str, stdin: bytes = b"", environment: dict[str, str] | None = None
) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, "-m", "verbena", "cli", "-p", str(store.port), *words],
        input=stdin,
        capture_output=True,
        timeout=50,
        check=False,
        env={**os.environ, **(environment or {})},
    )
    return done.returncode, (done.stdout + done.stderr).decode()


def test_one_command_prints_its_reply(store: Store, client: redis.Redis):
    assert cli(store, "set", "a", "hello world") == (0, "OK\n")
    assert cli(store, "get", "a") == (0, "hello world\n")
    assert cli(store, "--no-raw", "get", "a") == (0, '"hello world"\n')
    for words in (["info"], ["INFO", "server"], ["info", "stats"]):
        status, text = cli(store, "--no-raw", *words)
        assert status == 0
        assert "\\r" not in text
        assert len(text.splitlines()) > 3
    assert cli(store, "--csv", "mget", "a", "b") == (0, '"hello world",NULL\n')
    status, text = cli(store, "nonsense")
    assert status == 1
    assert "unknown command" in text
    assert cli(store, "-x", "set", "b", stdin=b"from the input") == (0, "OK\n")
    assert client.get("b") == "from the input"
    assert cli(store, "-n", "3", "-r", "3", "incr", "n") == (0, "1\n2\n3\n")
    assert cli(store, stdin=b'set c "x\\ny"\nget c\n') == (0, "OK\nx\ny\n")
    status, text = cli(store, "--json", "config", "get", "maxmemory")
    assert json.loads(text) == {"maxmemory": "0"}


def test_modes(store: Store, client: redis.Redis):
    client.mset({f"user:{i}": i for i in range(30)})
    status, text = cli(store, "--scan", "--pattern", "user:*")
    assert (status, len(text.split())) == (0, 30)
    status, text = cli(store, "--pipe", stdin=pack("SET", "p", "1") * 500 + b"INCR p\r\n" * 10)
    assert (status, text) == (0, "errors: 0, replies: 510\n")
    assert client.get("p") == "11"
    status, text = cli(store, "--pipe", stdin=pack("NONSENSE"))
    assert status == 1
    assert "errors: 1, replies: 1" in text
    status, text = cli(store, "--stat", "-r", "2", "-i", "0.01")
    assert (status, len(text.splitlines())) == (0, 3)
    status, text = cli(store, "--latency", "-i", "0.1")
    assert status == 0
    assert re.match(r"min: [0-9.]+, max: [0-9.]+, avg: [0-9.]+ ms \([0-9]+ samples\)", text)


def test_an_unreachable_server_is_reported_in_one_line(store: Store):
    status, text = cli(store, "-s", "/nonexistent/socket", "ping")
    assert status == 1
    assert "/nonexistent/socket" in text
    assert "Traceback" not in text


def test_the_prompt_answers_explains_and_keeps_its_history(store: Store, tmp_path: Path):
    """On a terminal: typed replies, the database in the prompt, and no password in the history."""
    history = tmp_path / "history"
    main, end = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "verbena", "cli", "-p", str(store.port)],
        stdin=end, stdout=end, stderr=end,
        env={**os.environ, "VERBENA_CLI_HISTORY": str(history), "TERM": "dumb"},
    )  # fmt: skip
    os.close(end)
    heard = ""

    def until(what: str) -> None:
        nonlocal heard
        while what not in heard:
            heard += os.read(main, 4096).decode()

    try:
        until("> ")
        for line, prepare_reply in (
            ("set greeting hello", "OK"),
            ("strlen greeting", "(integer) 5"),
            ("select 2", "[2]> "),
            ("auth secret", "(error) ERR AUTH"),
            ("help strlen", "Returns the length of the string at a key, in bytes."),
            ("multi", "(TX)> "),
            ("exec", "(empty array)"),
        ):
            heard = ""
            os.write(main, f"{line}\n".encode())
            until(prepare_reply)
        os.write(main, b"exit\n")
        assert process.wait(20) == 0
    finally:
        process.kill()
        process.wait()
        os.close(main)
    assert "strlen greeting" in history.read_text()
    assert "secret" not in history.read_text()


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("set a 'b c'", [b"set", b"a", b"b c"]),
        (r'set a "\x00\n\""', [b"set", b"a", b'\x00\n"']),
        ("  ping  ", [b"ping"]),
        ("", []),
        ("set a ''", [b"set", b"a", b""]),
    ],
)
def test_lines_are_split_as_redis_cli_does(line: str, words: list[bytes]):
    assert kv_shell.split(line) == words


@pytest.mark.parametrize("line", ["'a", '"a', "'a'b"])
def test_quotes_must_match(line: str):
    with pytest.raises(BadQuotes):
        kv_shell.split(line)


def test_replies_formatted():
    reply = [b"a", 1, None, [b"b", ErrorReply("ERR x")], []]
    assert kv_text.formatted(reply) == (
        '1) "a"\n2) (integer) 1\n3) (nil)\n4) 1) "b"\n   2) (error) ERR x\n5) (empty array)'
    )


@pytest.fixture
def secure(start: StartStore, tmp_path: Path) -> tuple[Store, Authority, int]:
    authority = Authority(tmp_path)
    pair = authority.issue("server")
    store = start(
        *("--kv-tls-port", "0", "--tls-certificate", str(pair.certificate), "--tls-key", str(pair.key)),
        *("--tls-ca", str(authority.ca)),
    )
    match = re.search(r"redis, tls +\S+:([0-9]+)$", store.banner, re.M)
    assert match
    return store, authority, int(match[1])


def test_tls_works_with_every_client(secure: tuple[Store, Authority, int]):
    """redis-py, redis-cli and `verbena cli`, with short and long values in both directions."""
    store, authority, port = secure
    ca = str(authority.ca)
    with redis.Redis(port=port, ssl=True, ssl_ca_certs=ca, socket_timeout=20) as client:
        client.set("long", b"x" * 3_000_000)
        assert client.get("long") == b"x" * 3_000_000
        with client.pipeline(transaction=False) as pipe:
            for number in range(2000):
                pipe.set(f"k{number}", number)
            assert all(pipe.execute())
    status, text = cli(Store(store.process, "", port), "--tls", "--cacert", ca, "get", "k7")
    assert (status, text) == (0, "7\n")
    if tool := shutil.which("redis-cli"):
        done = subprocess.run(
            [tool, "-p", str(port), "--tls", "--cacert", ca, "get", "k8"],
            capture_output=True, text=True, timeout=30, check=True,
        )  # fmt: skip
        assert done.stdout == "8\n"
    with store.client() as plain:
        assert plain.get("k9") == b"9"


def test_plain_and_tls_ends_disconnect_from_each_other(secure: tuple[Store, Authority, int]):
    """A plain client at the TLS port is disconnected; a client that does not trust the certificate
    disconnects."""
    store, _, port = secure
    assert cli(Store(store.process, "", port), "ping")[0] == 1
    with pytest.raises(redis.ConnectionError), redis.Redis(port=port, ssl=True, socket_timeout=20) as client:
        client.ping()
    assert store.client().ping()


def test_tls_without_a_certificate_is_an_error(start: StartStore):
    with pytest.raises(AssertionError, match="needs tls"):
        start("--kv-tls-port", "0")
