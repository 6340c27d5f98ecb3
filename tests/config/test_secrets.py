"""A secret is used, and never shown."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest

from verbena import config
from verbena.config import Config, Secret, read_secret
from verbena.errors import ConfigurationError

WORD = "hunter2hunter2hunter2"


def test_a_secret_is_hidden_from_repr_and_str():
    loaded = config.loads(f'session.secret = "{WORD}"')
    assert loaded.session.secret.reveal() == WORD
    for shown in (repr(loaded), str(loaded), repr(loaded.session.secret), f"{loaded.session.secret}"):
        assert WORD not in shown
    assert loaded.session.secret
    assert not Config().session.secret


def test_secrets_compare_and_copy_by_value():
    assert Secret(WORD) == copy.deepcopy(Secret(WORD)) != Secret("other")
    assert hash(Secret(WORD)) == hash(Secret(WORD))
    assert Secret(WORD) != WORD


@pytest.mark.parametrize(
    "text",
    [
        '[session]\nsecret = "hunter2"',
        "[session]\nsecret = 7777777",
        '[session]\nsecret = "hunter2',
        "[session]\nsecret = hunter2",
        '[session]\nsecrt = "hunter2"',
        '[session]\n"secret" = "hunter2" x',
        '[session]\nSecret = "hunter2"',
        '[session]\npassword = "hunter2"',
        '[network]\nsecret = "hunter2"',
        '[session]\nsecret = """\nhunter2\n',
        "[session]\nsecret = '''\na = 1\nhunter2 = \\q\n''' x",
        '[session]\nsecret = ["hunter2"]',
        'session = { secret = "hunter2", listen_port = -1 }',
        'session = { listen_port = -1, secret = "hunter2" }',
        'session = { secrets = "hunter2", listen_port = -1 }',
        "session.secret = 'hunter2hunter2hunter2'\nsession.secret_file = 'x'",
        'session.secret = "hunter2hunter2hunter2"\nsession.secret = "hunter2hunter2"',
    ],
)
def test_a_mistake_in_or_beside_a_secret_does_not_show_it(text):
    """Right or wrong, misspelt, unfinished, in a table of one line, over several lines."""
    with pytest.raises(ConfigurationError) as caught:
        config.loads(text)
    for shown in (str(caught.value), repr(caught.value), *map(repr, caught.value.problems)):
        assert "hunter2" not in shown
        assert "7777777" not in shown


def test_a_secret_in_a_variable_is_not_shown_either():
    with pytest.raises(ConfigurationError) as caught:
        config.load("/dev/null", environment={"VERBENA_SESSION_SECRET": "hunter2"})
    assert "hunter2" not in str(caught.value)
    assert "VERBENA_SESSION_SECRET" in str(caught.value)


@pytest.fixture
def secret_file(tmp_path: Path) -> Path:
    path = tmp_path / "secret"
    path.write_text(f"{WORD}\n")
    path.chmod(0o600)
    return path


def of(path: Path) -> Config:
    return config.load("/dev/null", environment={"VERBENA_SESSION_SECRET_FILE": str(path)})


def test_a_secret_is_read_from_its_file_without_the_line_end(secret_file):
    assert read_secret(of(secret_file)).reveal() == WORD


def test_a_secret_comes_from_the_configuration_too():
    assert read_secret(config.loads(f'session.secret = "{WORD}"')).reveal() == WORD
    assert not read_secret(Config())


def test_a_file_that_everyone_may_read_is_refused(secret_file):
    secret_file.chmod(0o644)
    with pytest.raises(ConfigurationError, match="chmod 600"):
        read_secret(of(secret_file))
    secret_file.chmod(0o640)
    assert read_secret(of(secret_file))


def test_a_short_or_missing_file_is_refused_without_its_contents(secret_file):
    secret_file.write_text("hunter2\n")
    with pytest.raises(ConfigurationError) as caught:
        read_secret(of(secret_file))
    assert "at least 16 characters" in str(caught.value)
    assert "hunter2" not in str(caught.value)
    secret_file.unlink()
    with pytest.raises(ConfigurationError) as caught:
        read_secret(of(secret_file))
    assert caught.value.code == "configuration_file"
