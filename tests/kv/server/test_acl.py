"""ACL users and rules, as redis-py and redis-cli see them."""

from __future__ import annotations

from pathlib import Path

import pytest
import redis
from support.kv.kv_store import StartStore, Store
from support.kv.resp import RespConnection


@pytest.fixture
def admin(store: Store):
    with store.client(decode_responses=True) as connected:
        connected.flushall()
        yield connected
        for user in connected.acl_users():
            if user != "default":
                connected.acl_deluser(user)
        connected.acl_log_reset()


def as_user(store: Store, name: str, password: str) -> redis.Redis:
    return store.client(username=name, password=password, decode_responses=True)


def test_a_user_may_do_only_what_the_rules_allow(store: Store, admin: redis.Redis):
    """For commands, keys and channels, native commands included."""
    admin.execute_command(
        "ACL", "SETUSER", "al", "on", ">pw", "~app:*", "%R~shared:*", "&news*", "+@all", "-flushall"
    )
    admin.set("shared:x", "s")
    with as_user(store, "al", "pw") as al:
        assert al.set("app:1", "v")
        assert al.get("shared:x") == "s"
        assert al.publish("newsletter", "x") == 0
        for refused, why in (
            (lambda: al.get("other"), "No permissions to access a key"),
            (lambda: al.set("shared:x", "t"), "No permissions to access a key"),
            (lambda: al.mget("app:1", "other"), "No permissions to access a key"),
            (lambda: al.execute_command("SET", "shared:x", "1", "GET"), "No permissions to access a key"),
            (al.flushall, "no permissions to run the 'flushall' command"),
            (lambda: al.publish("sport", "x"), "No permissions to access a channel"),
        ):
            with pytest.raises(redis.exceptions.NoPermissionError, match=why):
                refused()
        assert al.acl_whoami() == "al"
    reasons = [(entry["reason"], entry["object"]) for entry in admin.acl_log()]
    assert ("command", "flushall") in reasons
    assert ("key", "other") in reasons
    assert ("channel", "sport") in reasons
    assert admin.info("stats")["acl_access_denied_key"] >= 4


def test_selectors_grant_beside_the_first_rules(store: Store, admin: redis.Redis):
    """A command is allowed if the root rules or one selector allow all of it; they are not combined."""
    admin.execute_command("ACL", "SETUSER", "s", "on", ">pw", "~a*", "+get", "(+set ~b*)")
    with as_user(store, "s", "pw") as user:
        assert user.get("a") is None
        assert user.set("b", 1)
        for refused in (lambda: user.set("a", 1), lambda: user.get("b")):
            with pytest.raises(redis.exceptions.NoPermissionError):
                refused()


@pytest.mark.parametrize("options", ["BY nosort GET *", "BY w_*", "GET #", "GET # STORE app:out"])
def test_patterns_of_sort_need_the_right_to_read_every_key(store: Store, admin: redis.Redis, options: str):
    """BY and GET of SORT read keys that no argument names; read access to `*` in the selector that allows
    the command suffices. redis-server gives the same replies."""
    admin.execute_command("ACL", "SETUSER", "al", "on", ">pw", "~app:*", "+@all", "(%R~* +get)")
    admin.execute_command("ACL", "SETUSER", "bo", "on", ">pw", "%R~*", "~app:*", "+@all")
    admin.set("secret", "x")
    admin.rpush("app:list", "secret")
    arguments = ["SORT", "app:list", "ALPHA", *options.split()]
    option = "GET" if "BY nosort" in options else options.split(maxsplit=1)[0]
    with as_user(store, "al", "pw") as al:
        with pytest.raises(redis.ResponseError, match=f"{option} option of SORT denied"):
            al.execute_command(*arguments)
        assert al.sort("app:list", alpha=True) == ["secret"]
        assert al.sort("app:list", by="nosort") == ["secret"]
        assert al.exists("app:out") == 0
    with as_user(store, "bo", "pw") as bo:
        assert bo.execute_command(*arguments)


def test_rules_are_shown_as_they_were_given(admin: redis.Redis):
    """ACL LIST and GETUSER use the syntax of Redis."""
    admin.execute_command(
        "ACL",
        "SETUSER",
        "al",
        "on",
        ">pw",
        "~a*",
        "%R~r*",
        "&ch*",
        "+@read",
        "-get",
        "+config|get",
        "(+set ~s*)",
    )
    digest = "30c952fab122c3f9759f02a6d95c3758b246b4fee239957b2d4fee46e26170c4"
    assert admin.acl_list()[0] == (
        f"user al on #{digest} ~a* %R~r* resetchannels &ch* -@all +@read -get +config|get "
        "(~s* resetchannels -@all +set)"
    )
    found = admin.acl_getuser("al")
    assert found["flags"] == ["on"]
    assert found["passwords"] == [digest]
    assert admin.acl_getuser("nobody") is None


@pytest.mark.parametrize(
    ("rule", "why"),
    [
        ("+@nonsense", "Unknown command or category"),
        ("+nonsense", "Unknown command or category"),
        ("nonsense", "Syntax error"),
        ("(+get", "Unmatched parenthesis"),
        ("<nothing", "does not exist"),
        ("#abc", "must be exactly 64"),
        ("%X~a", "Syntax error"),
    ],
)
def test_a_wrong_rule_changes_nothing(admin: redis.Redis, rule: str, why: str):
    with pytest.raises(redis.ResponseError, match=why):
        admin.execute_command("ACL", "SETUSER", "half", "on", rule)
    assert "half" not in admin.acl_users()


def test_a_user_whose_rules_change_is_bound_at_once(store: Store, admin: redis.Redis):
    """New rules apply to open connections; connections of a deleted user are closed."""
    admin.execute_command("ACL", "SETUSER", "al", "on", ">pw", "~*", "+@all")
    with RespConnection(store.port) as wire:
        assert wire("AUTH", "al", "pw") == "OK"
        assert wire("SET", "k", "v") == "OK"
        admin.execute_command("ACL", "SETUSER", "al", "-set")
        assert str(wire("SET", "k", "w")).startswith("NOPERM")
        assert wire("GET", "k") == b"v"
        admin.acl_deluser("al")
        with pytest.raises((EOFError, ConnectionError)):
            wire("GET", "k")


def test_dryrun_and_categories(admin: redis.Redis):
    """ACL DRYRUN checks a command without running it."""
    admin.execute_command("ACL", "SETUSER", "al", "on", "~a*", "+@read")
    assert admin.acl_dryrun("al", "GET", "a1") == "OK"
    assert "no permissions to run the 'set'" in admin.acl_dryrun("al", "SET", "a1", "x")
    assert "no permissions to access the 'b' key" in admin.acl_dryrun("al", "GET", "b")
    assert {"keyspace", "read", "dangerous"} <= set(admin.acl_cat())
    assert "get" in admin.acl_cat("read")
    assert "flushall" in admin.acl_cat("dangerous")
    assert len(admin.acl_genpass()) == 64
    assert len(admin.acl_genpass(5)) == 2


def test_without_the_password_only_a_few_commands_are_accepted(start: StartStore):
    """requirepass: NOAUTH for all other commands, only tiny requests are accepted, and the right password
    authenticates."""
    store = start(environment={"VERBENA_KV_PASSWORD": "open sesame"})
    with RespConnection(store.port) as wire:
        for words in (("GET", "a"), ("PING",), ("CONFIG", "GET", "requirepass"), ("INFO",)):
            assert str(wire(*words)) == "NOAUTH Authentication required."
        assert str(wire("HELLO", "3")).startswith("NOAUTH HELLO must be called")
        assert str(wire("AUTH", "wrong")).startswith("WRONGPASS")
        assert wire("AUTH", "open sesame") == "OK"
        assert wire("SET", "a", "1") == "OK"
        assert wire("GET", "a") == b"1"
    with RespConnection(store.port) as wire:
        wire.socket.sendall(b"*2\r\n$3\r\nGET\r\n$1000000\r\n")
        assert str(wire.read()).startswith("ERR Protocol error: unauthenticated bulk length")
        with pytest.raises((EOFError, ConnectionError)):
            wire.read()
    with store.client(password="open sesame") as client:
        assert client.ping()
        assert client.config_set("requirepass", "")
    assert store.client().ping()


def test_users_are_kept_in_their_file(start: StartStore, tmp_path: Path):
    """ACL SAVE writes the file, the next start reads it, and LOAD reads it again or refuses all of it if it
    is invalid."""
    path = tmp_path / "users.acl"
    store = start("--kv-acl-file", str(path))
    with store.client(decode_responses=True) as client:
        client.execute_command("ACL", "SETUSER", "al", "on", ">pw", "~*", "+@all")
        client.acl_save()
        kept = path.read_text()
        assert "user al on #" in kept
        path.write_text(kept + "user broken on +nonsense\n")
        with pytest.raises(redis.ResponseError, match=r"broken|nonsense"):
            client.acl_load()
        assert client.acl_users() == ["al", "default"]
        path.write_text(kept.replace("user al ", "user bert "))
        client.acl_load()
        assert client.acl_users() == ["bert", "default"]
    store.end()
    again = start("--kv-acl-file", str(path))
    with as_user(again, "bert", "pw") as bert:
        assert bert.ping()
