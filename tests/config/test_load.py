"""Which file, and who beats whom."""

from __future__ import annotations

import argparse
import errno
import os
import pickle
from pathlib import Path

import pytest

from verbena import config
from verbena.config import KEYS, Config
from verbena.config.flags import add_flags, given_flags, load_with_flags, short_help
from verbena.errors import ConfigurationError

PATH = "network.rdma.cq_size"
VARIABLE = "VERBENA_NETWORK_RDMA_CQ_SIZE"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "verbena.toml"
    path.write_text("[network.rdma]\ncq_size = 1000\n")
    return path


def test_a_flag_beats_the_environment_beats_the_file_beats_the_default(file):
    """And the source says which it was."""
    steps = [
        (config.load(environment={"HOME": "/nonexistent"}), 4096, "default", "default"),
        (config.load(file, environment={}), 1000, "file", f"{file}:2"),
        (config.load(file, environment={VARIABLE: "2000"}), 2000, "environment", VARIABLE),
        (
            config.load(file, environment={VARIABLE: "2000"}, flags={PATH: "3000"}),
            3000,
            "flag",
            "--network-rdma-cq-size",
        ),
    ]
    for loaded, value, kind, words in steps:
        assert loaded.network.rdma.cq_size == loaded[PATH] == value
        assert (loaded.source_of(PATH).kind, str(loaded.source_of(PATH))) == (kind, words)
        assert loaded.was_set(PATH) is (kind != "default")


def test_the_file_is_the_named_one_else_the_variables_else_the_first_that_exists(tmp_path, monkeypatch):
    """--config, VERBENA_CONFIG, the working directory, the user's, the machine's."""
    work, home = tmp_path / "work", tmp_path / "home"
    monkeypatch.chdir(_made(work))
    environment = {"HOME": str(home)}
    assert config.places(environment) == [
        Path("verbena.toml"),
        home / ".config/verbena/verbena.toml",
        Path("/etc/verbena/verbena.toml"),
    ]
    user = _made(home / ".config/verbena") / "verbena.toml"
    candidates = [
        (user, environment, None),
        (work / "verbena.toml", environment, None),
        (
            tmp_path / "by_variable.toml",
            {**environment, "VERBENA_CONFIG": str(tmp_path / "by_variable.toml")},
            None,
        ),
        (tmp_path / "named.toml", {**environment, "VERBENA_CONFIG": "/nowhere"}, tmp_path / "named.toml"),
    ]
    for number, (path, variables, named) in enumerate(candidates, start=1):
        path.write_text(f"network.rdma_port = {number}\n")
        loaded = config.load(named, environment=variables)
        assert loaded.network.rdma_port == number
        assert loaded.file is not None
        assert loaded.file.resolve() == path


def test_the_users_folder_follows_xdg(tmp_path):
    assert config.places({"XDG_CONFIG_HOME": str(tmp_path)})[1] == tmp_path / "verbena/verbena.toml"


def test_a_named_file_must_be_there(tmp_path):
    """A typing error in a path must not start a service with defaults."""
    for named, environment in (
        (tmp_path / "no.toml", {}),
        (None, {"VERBENA_CONFIG": str(tmp_path / "no.toml")}),
    ):
        with pytest.raises(ConfigurationError) as caught:
            config.load(named, environment=environment)
        assert (caught.value.code, caught.value.errno) == ("configuration_file", errno.ENOENT)
        assert "no.toml" in str(caught.value)


@pytest.mark.parametrize("name", ["", "\0", "x" * 300])
def test_a_path_that_cannot_be_is_an_error_in_words(tmp_path, name):
    """A folder, an impossible name, one too long."""
    with pytest.raises(ConfigurationError) as caught:
        config.load(f"{tmp_path}/{name}", environment={})
    assert caught.value.code == "configuration_file"


def test_a_folder_that_may_not_be_looked_into_is_an_error_in_words(tmp_path, monkeypatch):
    """HOME may be another user's, as under sudo: a file that may be there is not passed over in silence."""
    closed = tmp_path / "closed"
    closed.mkdir(mode=0)
    monkeypatch.chdir("/")
    user = os.geteuid()
    if user == 0:
        os.seteuid(65534)  # root may look into everything
    try:
        with pytest.raises(ConfigurationError, match="Permission denied") as caught:
            config.load(environment={"XDG_CONFIG_HOME": str(closed)})
    finally:
        os.seteuid(user)
    assert (caught.value.code, caught.value.errno) == ("configuration_file", errno.EACCES)
    assert f"{closed}/verbena/verbena.toml" in str(caught.value)


def test_a_file_without_end_is_not_read():
    with pytest.raises(ConfigurationError, match="longer than"):
        config.load("/dev/zero", environment={})


@pytest.mark.parametrize("path", KEYS)
def test_every_key_is_set_by_its_variable(path):
    """Text becomes the type of the key; an empty variable counts as not set."""
    key = KEYS[path]
    text = key.default_toml.strip('"') or "x" * 16
    loaded_or_rule = _loaded(environment={key.variable: text})
    if isinstance(loaded_or_rule, Config):
        assert loaded_or_rule.source_of(path).kind == "environment"
        assert type(loaded_or_rule[path]) is type(key.default)
    else:
        assert path in loaded_or_rule.problems[0].message
    empty = config.load(os.devnull, environment={key.variable: ""})
    assert empty.source_of(path).kind == "default"


@pytest.mark.parametrize(
    ("text", "value"), [("yes", True), ("ON", True), ("1", True), ("False", False), ("no", False)]
)
def test_switches_in_the_environment_take_the_usual_words(text, value):
    loaded = config.load(os.devnull, environment={"VERBENA_NETWORK_RDMA_ENABLED": text})
    assert loaded.network.rdma_enabled is value


@pytest.mark.parametrize("text", ["", " ", "1.5", "0x10", "1e3", "１", "--", "9" * 5000, "\udcff", "1 2"])
def test_a_number_in_the_environment_is_a_decimal_one(text):
    """Anything else is refused by the variable's name; nothing at all counts as not set."""
    found = _loaded(environment={VARIABLE: text})
    if not text:
        assert isinstance(found, Config)
        return
    assert isinstance(found, ConfigurationError)
    assert str(found.problems[0]).startswith(f"{VARIABLE}: {PATH} must be ")
    assert str(found).encode()


def test_a_misspelt_variable_is_a_warning():
    """Not an error: an environment belongs to many."""
    loaded = config.load(os.devnull, environment={"VERBENA_NETWORK_RDMA_CQ_SISE": "1"})
    assert f"did you mean {VARIABLE}?" in loaded.warnings[0]


@pytest.mark.parametrize(
    "name",
    ["VERBENA_METRICS_SERVICE_HOST", "VERBENA_SESSION_PORT", "VERBENA_SHM_PLAIN_MEMORY", "VERBENA_KERNEL"],
)
def test_variables_of_others_are_left_alone(name):
    """Such as those that Kubernetes sets for a service called verbena-metrics."""
    assert config.load(os.devnull, environment={name: "10.0.0.1"}).warnings == ()


def test_all_mistakes_of_all_sources_are_reported_at_once(file):
    file.write_text("[network]\nrdma_port = 0\n[log]\nlevle = 1\n")
    with pytest.raises(ConfigurationError) as caught:
        config.load(file, environment={VARIABLE: "many"}, flags={"log.format": "xml"})
    assert [(problem.source, problem.line) for problem in caught.value.problems] == [
        (str(file), 2),
        (str(file), 4),
        (VARIABLE, None),
        ("--log-format", None),
    ]
    assert "4 mistakes" in str(caught.value)


def test_a_wrong_value_is_an_error_even_if_another_source_beats_it(file):
    file.write_text("[network.rdma]\ncq_size = 0\n")
    with pytest.raises(ConfigurationError):
        config.load(file, environment={VARIABLE: "512"})


def test_paths_in_a_file_are_relative_to_it(tmp_path, monkeypatch):
    """A service does not start where its file lies. ~ is the home; a variable's path is as it is."""
    monkeypatch.setenv("HOME", "/home/v")
    folder = _made(tmp_path / "etc")
    (folder / "verbena.toml").write_text('[tls]\nca = "ca.pem"\nkey = "~/key.pem"\ncertificate = "/c.pem"\n')
    loaded = config.load(folder / "verbena.toml", environment={"VERBENA_SESSION_SECRET_FILE": "secret"})
    assert loaded.tls.ca == f"{folder}/ca.pem"
    assert (loaded.tls.key, loaded.tls.certificate) == ("/home/v/key.pem", "/c.pem")
    assert loaded.session.secret_file == "secret"


# Flags


def parse(*arguments: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="service")
    add_flags(parser, first=("network.rdma",))
    return parser.parse_args(arguments)


@pytest.mark.parametrize("path", [path for path, key in KEYS.items() if key.flag])
def test_every_key_is_set_by_its_flag(path):
    key = KEYS[path]
    assert key.flag is not None
    if isinstance(key.default, bool):
        assert given_flags(parse(key.flag)) == {path: "true"}
        assert given_flags(parse(f"--no-{key.flag[2:]}")) == {path: "false"}
    else:
        assert given_flags(parse(key.flag, "some text")) == {path: "some text"}


def test_flags_that_are_not_given_set_nothing():
    assert given_flags(parse()) == {}


def test_the_last_of_two_flags_counts(file):
    options = parse("--config", str(file), "--network-rdma-enabled", "--no-network-rdma-enabled")
    loaded = load_with_flags(options)
    assert loaded.network.rdma_enabled is False
    assert str(loaded.source_of("network.rdma_enabled")) == "--no-network-rdma-enabled"
    assert loaded.network.rdma.cq_size == 1000


def test_help_lists_every_flag_with_meaning_and_default(capsys):
    """By section; the sections that a service asks for come first."""
    with pytest.raises(SystemExit):
        parse("--help")
    shown = " ".join(capsys.readouterr().out.split())
    assert (
        "--network-rdma-cq-size N The number of completions that a completion queue holds. (default: 4096)"
    ) in shown
    assert all(key.flag in shown for key in KEYS.values() if key.flag)
    assert shown.index("[network.rdma]:") < shown.index("[network]:")


@pytest.mark.parametrize("path", [path for path, key in KEYS.items() if key.flag])
def test_the_short_help_of_a_flag_is_one_clause(path):
    """It begins in lower case, like the help of other options, and does not end with a full stop."""
    words = short_help(path)
    assert words[0].islower() or not words[1].islower()
    assert "\n" not in words
    assert not words.endswith(".")


def test_a_secret_has_no_flag():
    """Everyone can see a command line."""
    assert KEYS["session.secret"].flag is None
    with pytest.raises(SystemExit):
        parse("--session-secret", "x" * 16)


# The value itself


def test_override_checks_like_a_file_and_keeps_the_rest(file):
    loaded = config.load(file, environment={})
    changed = config.override(loaded, {"network.rdma.poll_batch": 64, "network.rdma.max_mr_size": "2GB"})
    assert (changed.network.rdma.cq_size, changed.network.rdma.poll_batch) == (1000, 64)
    assert changed.network.rdma.max_mr_size == 2 * 10**9
    assert str(changed.source_of("network.rdma.poll_batch")) == "program"
    assert changed.source_of(PATH) == loaded.source_of(PATH)
    assert loaded.network.rdma.poll_batch == 32
    with pytest.raises(ConfigurationError, match="poll_batch must be"):
        config.override(loaded, {"network.rdma.poll_batch": 0})
    with pytest.raises(ConfigurationError, match="more completions than"):
        config.override(loaded, {"network.rdma.poll_batch": 2000})


def test_an_unknown_key_in_a_program_is_a_key_error_with_the_nearest():
    for use in (
        lambda: Config()["network.rdma.cq_siez"],
        lambda: Config().source_of("network.rdma.cq_siez"),
        lambda: config.override(Config(), {"network.rdma.cq_siez": 1}),
        lambda: config.load(os.devnull, environment={}, flags={"network.rdma.cq_siez": "1"}),
    ):
        with pytest.raises(KeyError, match=r"did you mean 'network\.rdma\.cq_size'"):
            use()


def test_a_configuration_travels_between_processes(file):
    loaded = config.load(file, environment={"VERBENA_SESSION_SECRET": "x" * 20})
    twin = pickle.loads(pickle.dumps(loaded))
    assert twin == loaded
    assert twin.source_of(PATH) == loaded.source_of(PATH)
    assert twin.session.secret.reveal() == "x" * 20


def test_configurations_are_equal_by_their_values(file):
    assert config.load(file, environment={}) == config.loads("network.rdma.cq_size = 1000")
    assert config.load(file, environment={}) != Config()


def test_an_error_travels_between_processes_with_its_problems():
    with pytest.raises(ConfigurationError) as caught:
        config.loads("x = 1")
    twin = pickle.loads(pickle.dumps(caught.value))
    assert twin.problems == caught.value.problems
    assert str(twin) == str(caught.value)


def _made(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _loaded(*, environment: dict[str, str]) -> Config | ConfigurationError:
    try:
        return config.load(os.devnull, environment=environment)
    except ConfigurationError as error:
        return error
