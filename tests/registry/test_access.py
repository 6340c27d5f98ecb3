"""Access control: passwords, rules, tokens and rates; without HTTP, then with it."""

from __future__ import annotations

import base64
import json
import os
import time
from pathlib import Path

import bcrypt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.registry.filling import image_manifest
from support.registry.http_client import Client, serve

from verbena.errors import ConfigurationError
from verbena.registry.access.passwords import Passwords
from verbena.registry.access.rates import Rates
from verbena.registry.access.rules import Policy, read_rules
from verbena.registry.access.tokens import BadToken, Tokens, grant, load_secret


def hashed(password: str) -> str:
    return bcrypt.hashpw(password.encode(), bcrypt.gensalt(rounds=4)).decode()


def write_users(file: Path, **users: str) -> Path:
    lines = [f"{name}:{hashed(password)}" for name, password in users.items()]
    file.write_text("# users\n\n" + "\n".join(lines) + "\n")
    return file


def basic(user: str, password: str) -> dict[str, str]:
    return {"Authorization": "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()}


async def test_passwords_of_a_file(tmp_path: Path) -> None:
    passwords = Passwords(write_users(tmp_path / "users", alice="secret", bob="pass:word"))
    for _ in range(2):  # the second time from memory
        assert await passwords.verify("alice", "secret")
        assert await passwords.verify("bob", "pass:word")
        assert not await passwords.verify("alice", "Secret")
        assert not await passwords.verify("alice", "")
        assert not await passwords.verify("carol", "secret")
        assert not await passwords.verify("alic", "esecret")
        assert not await passwords.verify("alice", "\0\ud800")


async def test_a_changed_password_file_is_reloaded(tmp_path: Path) -> None:
    file = write_users(tmp_path / "users", alice="old")
    passwords = Passwords(file)
    assert await passwords.verify("alice", "old")
    os.replace(write_users(tmp_path / "next", alice="new"), file)
    assert not await passwords.verify("alice", "old")
    assert await passwords.verify("alice", "new")
    (tmp_path / "broken").write_text("alice:plain\n")
    os.replace(tmp_path / "broken", file)
    assert await passwords.verify("alice", "new")  # the last valid file holds until it is corrected


@pytest.mark.parametrize(
    "line",
    ["alice", "alice:plain", f":{hashed('x')}", "alice:$apr1$x$y"],
    ids=["no password", "plain", "no name", "apr1"],
)
def test_an_invalid_line_is_named(tmp_path: Path, line: str) -> None:
    (tmp_path / "users").write_text(f"bob:{hashed('x')}\n{line}\n")
    with pytest.raises(ConfigurationError, match="line 2"):
        Passwords(tmp_path / "users")
    with pytest.raises(ConfigurationError, match="absent"):
        Passwords(tmp_path / "absent")


def test_rules_by_repository(tmp_path: Path) -> None:
    (tmp_path / "access").write_text(
        "# who what\nanonymous public/** pull\n* team/* pull,push # one part\nalice ** pull,push,delete\n"
    )
    policy = Policy(rules=read_rules(tmp_path / "access"))
    allowed = [
        ("", "pull", "public/a/b"),
        ("bob", "push", "team/app"),
        ("alice", "delete", "anything/at/all"),
    ]
    denied = [
        ("", "push", "public/a"),
        ("", "pull", "publicity/a"),
        ("bob", "pull", "public/a"),  # a line for those who have not logged in says nothing about others
        ("bob", "push", "team/app/deep"),
        ("bob", "delete", "team/app"),
        ("bob", "pull", "ateam/app"),
    ]
    assert all(policy.allows(*one) for one in allowed)
    assert not any(policy.allows(*one) for one in denied)


def test_wrong_rules_are_listed(tmp_path: Path) -> None:
    (tmp_path / "access").write_text("alice **\nbob ** fly\ncarol A/* pull\ndave ** pull\n")
    with pytest.raises(ConfigurationError) as caught:
        read_rules(tmp_path / "access")
    assert [problem.line for problem in caught.value.problems] == [1, 2, 3]


def test_tokens_contain_their_grants() -> None:
    tokens = Tokens(b"s" * 32, service="here")
    token = tokens.issue("alice", {"a/b": frozenset({"pull"})}, now=1000)
    assert tokens.check(token, now=1100) == ("alice", {"a/b": frozenset({"pull"})})
    for when in (900, 1300, 5000):
        with pytest.raises(BadToken, match="expired"):
            tokens.check(token, now=when)
    for other in (Tokens(b"t" * 32, service="here"), Tokens(b"s" * 32, service="there")):
        with pytest.raises(BadToken):
            other.check(token, now=1100)


def test_a_changed_token_is_rejected() -> None:
    tokens = Tokens(b"s" * 32, service="here")
    token = tokens.issue("alice", {}, now=1000)
    head, claims, signature = token.split(".")
    forged = base64.urlsafe_b64encode(json.dumps({"alg": "none"}).encode()).rstrip(b"=").decode()
    for wrong in (
        *("", ".", "..", token + "x", token[1:], f"{forged}.{claims}.", f"{forged}.{claims}.{signature}"),
        *(f"{head}.{claims}A.{signature}", f"{head}.{claims}", token * 200, "é.é.é"),
    ):
        with pytest.raises(BadToken):
            tokens.check(wrong, now=1100)


@given(st.text(max_size=80))
def test_any_invalid_token_raises_badtoken(text: str) -> None:
    with pytest.raises(BadToken):
        Tokens(b"s" * 32, service="here").check(text)


@given(st.lists(st.text(alphabet="repositoy:a/b,pulshde*() ", max_size=40), max_size=4))
def test_no_scope_grants_more_than_the_policy(scopes: list[str]) -> None:
    granted = grant(Policy(frozenset({"pull"})), "", scopes)
    assert all(actions <= {"pull"} for actions in granted.values())


def test_a_scope_is_reduced_to_the_allowed_actions() -> None:
    policy = Policy(frozenset({"pull"}))
    asked = ["repository:a/b:pull,push repository:c:*", "registry:catalog:*", "repository:BAD:pull"]
    assert grant(policy, "", asked) == {"a/b": frozenset({"pull"}), "c": frozenset({"pull"})}
    assert grant(policy, "alice", asked)["c"] == {"pull", "push", "delete"}


def test_the_secret_is_created_once_and_readable_by_its_owner_only(tmp_path: Path) -> None:
    first = load_secret(tmp_path / "secret")
    assert load_secret(tmp_path / "secret") == first
    assert len(first) == 32
    assert (tmp_path / "secret").stat().st_mode & 0o777 == 0o600


def test_rates_allow_a_burst_and_then_the_average() -> None:
    rates = Rates(10)
    assert [rates.wait_s("a", 0.0) for _ in range(20)] == [0.0] * 20
    assert rates.wait_s("a", 0.0) == pytest.approx(0.1)
    assert rates.wait_s("b", 0.0) == 0.0
    assert rates.wait_s("a", 0.11) == 0.0
    assert rates.wait_s("a", 0.11) > 0


async def push_image(client: Client, name: str, **headers: str) -> int:
    """Pushes an image with these credentials; the status of the first refusal, or 201."""
    begun = await client("POST", f"/v2/{name}/blobs/uploads/", **headers)
    if begun.status != 202:
        return begun.status
    from verbena.registry import digests

    config = digests.of(b"{}")
    await client("PUT", f"{begun.headers['Location']}?digest={config}", b"{}", **headers)
    answer = await client("PUT", f"/v2/{name}/manifests/t", image_manifest((config, 2), []), **headers)
    return answer.status


async def test_without_credentials_clients_get_a_challenge(tmp_path: Path) -> None:
    users = write_users(tmp_path / "users", alice="secret")
    async with serve(tmp_path / "data", htpasswd=str(users)) as client:
        for method, path in (("GET", "/v2/"), ("GET", "/v2/a/tags/list"), ("POST", "/v2/a/blobs/uploads/")):
            answer = await client(method, path)
            assert (answer.status, answer.code) == (401, "UNAUTHORIZED")
            assert answer.headers["WWW-Authenticate"].startswith("Basic realm=")
        for wrong in (
            basic("alice", "x"),
            basic("x", "secret"),
            {"Authorization": "Basic !"},
            {"Authorization": "X"},
        ):
            assert (await client("GET", "/v2/", **wrong)).status == 401
        assert (await client("GET", "/v2/", **basic("alice", "secret"))).status == 200
        assert await push_image(client, "a", **basic("alice", "secret")) == 201
        assert (await client("GET", "/v2/a/manifests/t", **basic("alice", "secret"))).status == 200


async def test_anonymous_clients_may_pull_if_configured(tmp_path: Path) -> None:
    users = write_users(tmp_path / "users", alice="secret")
    async with serve(tmp_path / "data", htpasswd=str(users), anonymous="pull") as client:
        assert await push_image(client, "a") == 401
        assert await push_image(client, "a", **basic("alice", "secret")) == 201
        assert (await client("GET", "/v2/a/manifests/t")).status == 200
        assert (await client("GET", "/v2/a/manifests/t", **basic("", ""))).status == 200
        assert (await client("DELETE", "/v2/a/manifests/t")).status == 401


async def test_rules_apply_to_all_users(tmp_path: Path) -> None:
    users = write_users(tmp_path / "users", alice="a", bob="b")
    (tmp_path / "access").write_text(
        "anonymous pub/* pull\nbob team/* pull,push\nalice ** pull,push,delete\n"
    )
    keys = {"htpasswd": str(users), "access_file": str(tmp_path / "access")}
    alice, bob = basic("alice", "a"), basic("bob", "b")
    async with serve(tmp_path / "data", **keys) as client:
        for name in ("pub/x", "team/x", "own/x"):
            assert await push_image(client, name, **alice) == 201
        assert (await client("GET", "/v2/pub/x/manifests/t")).status == 200
        assert (await client("GET", "/v2/team/x/manifests/t")).status == 401
        denied = await client("GET", "/v2/own/x/manifests/t", **bob)
        assert (denied.status, denied.code) == (403, "DENIED")
        assert (await client("GET", "/v2/_catalog", **bob)).json == {"repositories": ["team/x"]}
        assert (await client("DELETE", "/v2/team/x/manifests/t", **bob)).status == 403
        assert (await client("DELETE", "/v2/team/x/manifests/t", **alice)).status == 202
        # A mount must not reveal what the asker may not read.
        from verbena.registry import digests

        blob = digests.of(b"{}")
        for origin in ("&from=own/x", "&from=team/y"):
            answer = await client("POST", f"/v2/team/y/blobs/uploads/?mount={blob}{origin}", **bob)
            assert answer.status == 202
        assert (
            await client("POST", f"/v2/team/y/blobs/uploads/?mount={blob}&from=team/x", **bob)
        ).status == 201


async def test_a_token_is_fetched_with_a_password_and_used_without(tmp_path: Path) -> None:
    users = write_users(tmp_path / "users", alice="secret")
    async with serve(tmp_path / "data", htpasswd=str(users), tokens=True, anonymous="pull") as client:
        asked = await client("POST", "/v2/a/b/blobs/uploads/")
        challenge = asked.headers["WWW-Authenticate"]
        assert asked.status == 401
        assert f'Bearer realm="{client.base}/token"' in challenge
        assert 'scope="repository:a/b:pull,push"' in challenge
        scope = "service=verbena&scope=repository:a/b:pull,push"
        wrong = await client("GET", f"/token?{scope}", **basic("alice", "x"))
        assert (wrong.status, wrong.code) == (401, "UNAUTHORIZED")
        given = (await client("GET", f"/token?{scope}", **basic("alice", "secret"))).json
        bearer = {"Authorization": f"Bearer {given['token']}"}
        assert given["token"] == given["access_token"]
        assert await push_image(client, "a/b", **bearer) == 201
        other = await client("GET", "/v2/c/tags/list", **bearer)
        assert (other.status, 'error="insufficient_scope"' in other.headers["WWW-Authenticate"]) == (
            401,
            True,
        )
        assert (await client("GET", "/v2/", **bearer)).status == 200
        nobody = (await client("GET", f"/token?{scope}")).json["token"]
        anonymous = {"Authorization": f"Bearer {nobody}"}
        assert (await client("GET", "/v2/a/b/manifests/t", **anonymous)).status == 200
        assert await push_image(client, "a/b", **anonymous) == 401
        bad = await client("GET", "/v2/", Authorization="Bearer nonsense")
        assert (bad.status, 'error="invalid_token"' in bad.headers["WWW-Authenticate"]) == (401, True)
        form = f"grant_type=password&username=alice&password=secret&{scope}"
        by_form = await client("POST", "/token", form, Content_Type="application/x-www-form-urlencoded")
        assert by_form.json["expires_in"] == 300


async def test_too_many_requests_get_429_with_retry_after(tmp_path: Path) -> None:
    async with serve(tmp_path, requests_per_s=5) as client:
        answers = [await client("GET", "/v2/") for _ in range(12)]
        refused = [answer for answer in answers if answer.status == 429]
        assert refused
        assert (refused[0].code, refused[0].headers["Retry-After"]) == ("TOOMANYREQUESTS", "1")


async def test_a_host_header_cannot_end_the_quotes_of_a_challenge(tmp_path: Path) -> None:
    users = write_users(tmp_path / "users", alice="secret")
    async with serve(tmp_path / "data", htpasswd=str(users), tokens=True) as client:
        answer = await client("GET", "/v2/", Host='evil",service="x')
        assert answer.headers["WWW-Authenticate"].count('"') == 4


def test_a_new_token_is_valid_now() -> None:
    """Tokens use the wall clock by default."""
    tokens = Tokens(b"s" * 32, service="here")
    assert tokens.check(tokens.issue("a", {}), now=time.time())[0] == "a"
