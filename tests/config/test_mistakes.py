"""What a person reads who has made a mistake, and what no mistake may do."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from verbena import config
from verbena.config import KEYS, SECTIONS, Config, document, reference
from verbena.errors import ConfigurationError, ConfigurationProblem

SAMPLE = reference.sample()


def mistakes(text: str | bytes) -> tuple[ConfigurationProblem, ...]:
    with pytest.raises(ConfigurationError) as caught:
        config.loads(text, name="verbena.toml")
    assert str(caught.value).encode()
    assert caught.value.problems
    return caught.value.problems


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("[netwrok]", "did you mean [network]?"),
        ("[network.rmda]", "did you mean [network.rdma]?"),
        ("[network.tls]", "did you mean [tls]?"),
        ("[zzzzzzzzz]", "the sections are [network], "),
        ("[network]\ndevice = 1", "did you mean rdma_device?"),
        ("[shards]\nqp_depth = 1", "it belongs in [shards.rdma]"),
        ("[network]\nrdma_enable = true", "did you mean rdma_enabled?"),
        ("[network]\nrdma-enabled = true", "did you mean rdma_enabled?"),
        ("[network]\nRDMA_ENABLED = true", "did you mean rdma_enabled?"),
        ("[network]\ncq_size = 1", "it belongs in [network.rdma]"),
        ("rdma_device = 1", "it belongs in [network] or [replication]"),
        ("[session]\nport = 1", "did you mean data_port?"),
        ("[session]\nzzzzzzzzzzzzz = 1", "there is no key session.zzzzzzzzzzzzz"),
        ('network.rdma_fallback = "udp"', '"tcp", "quic" or "none", not "udp"'),
        ('network.rdma_fallback = "TCP"', 'did you mean "tcp"?'),
        ('network.rdma_port = "1"', "write it without quotes"),
        ('network.rdma_enabled = "true"', "write it without quotes"),
        ('network.rdma.max_mr_size = "1G"', 'write "1GiB" (1024) or "1GB" (1000)'),
        ("network.rdma.max_mr_size = 1979-05-27", "not 1979-05-27"),
        ("network.rdma_port = nan", "not nan"),
        (f"network.rdma_port = 0x{'f' * 9000}", "not a number of that length"),
        (f'log.level = "{"x" * 500}"', "x…xxx"),
        ("network.rdma.max_mr_size = 1GB", 'a size with a unit in quotes: "1GB"'),
        ("network.rdma_enabled = True", "must be true or false, in lower case"),
        ("network.rdma_enabled = yes", "must be true or false"),
        ("network.rdma_fallback = tcp", 'in quotes: "tcp"'),
        ("network.rdma_device = mlx5_0 # mine", 'in quotes: "mlx5_0"'),
        ("network.rdma_port =", "must be an integer from 1 to 255"),
        ("network.rdma_port 1", "a key must be followed by ="),
        ("network.rdma_port = 1 2", "must be an integer from 1 to 255"),
        ('network.rdma_device = "mlx', "the string is not closed"),
        ("[network", "not TOML"),
        ("network.rdma_port = 1\rlog = 2", "not TOML"),
        ("x = \x00", "not TOML"),
        (f"network.rdma_port = {'1' * 5000}", "not TOML"),
    ],
)
def test_a_mistake_says_how_to_mend_it(text, hint):
    (problem,) = mistakes(text)
    assert hint in problem.message
    assert problem.line == text.count("\n") + 1
    assert problem.summary.startswith(f"verbena.toml:{problem.line}: ")


def test_all_mistakes_are_reported_in_the_order_of_the_file():
    """One that keeps its line from being TOML does not hide those below it."""
    text = (
        "[network]\nrdma_enabled = True\nrdma_port = 0\n[network.rdma]\nmax_mr_size = 1GB\ncq_siez = 1\n[x]\n"
    )
    assert [problem.line for problem in mistakes(text)] == [2, 3, 5, 6, 7]


def test_what_could_not_be_read_breaks_no_rule():
    """The secret is there; only its line is wrong."""
    (problem,) = mistakes('[session]\nlisten_address = "0.0.0.0"\nsecret = correct horse battery\n')
    assert problem.line == 3


def test_a_broken_header_ends_the_report():
    """What follows it might belong to any section."""
    (problem,) = mistakes("[network\nlevel = 1\n")
    assert problem.line == 1


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ('[tls]\nca = """ \\q\n[nonsense]\n"""\nkey = 1\n', 2),
        ('[tls]\nca = """\nnever closed\n[nonsense]\n', 4),
        ("[tls]\nca = [ x,\n nonsense\n]\n", 2),
        ("[tls]\nca = { x,\n nonsense }\n", 2),
    ],
)
def test_a_statement_that_may_go_on_ends_the_report(text, line):
    """Without its first line the others would be taken for something else."""
    (problem,) = mistakes(text)
    assert problem.line == line


@pytest.mark.parametrize(
    "text", ["\nnetwrok.rdma.cq_size = 1", "\nx = { y.z.cq_size = 1 }", "\n[x.y.z]\n[x]\n"]
)
def test_an_unknown_section_is_found_however_it_is_named(text):
    (problem,) = mistakes(text)
    assert problem.line == 2
    assert "there is no section" in problem.message


def test_an_unknown_section_is_one_mistake():
    """Its keys are not."""
    assert len(mistakes("[orchard]\na = 1\nb = 2\n[orchard.c]\nd = 4\n")) == 1


def test_bytes_that_are_no_text_are_named_with_their_line():
    (problem,) = mistakes(b"[network]\n# caf\xe9\n")
    assert (problem.line, problem.message) == (2, "the file is not UTF-8 text: it has the byte 0xe9")
    assert mistakes("[network]\n".encode("utf-16"))[0].line == 1


def test_thousands_of_mistakes_do_not_take_long():
    """No guessing past the first hundred, and each place found without a new search."""
    assert len(mistakes("".join(f"unknown_{number} = 1\n" for number in range(10_000)))) == 10_000


@pytest.mark.parametrize(
    "part", ["x", " ", "x ", "x=", "x.", "'", '"', "[", "{", "x=[", '"""', "\\", "1,", "#"]
)
def test_a_long_line_does_not_take_long(part):
    """No search goes over it again and again."""
    long = part * (document.MAX_LINE_LENGTH // len(part) - 20)
    for text in (long, f"log.level = {long}", f"secret = '{long}"):
        try_to_load("\n".join([text] * 10))


def test_a_line_that_is_longer_still_is_refused():
    (problem,) = mistakes(f"\n#{'x' * document.MAX_LINE_LENGTH}\n")
    assert (problem.line, problem.message) == (2, "the line is longer than 10,000 characters")


def test_nothing_in_a_message_moves_the_cursor():
    """A file may come from anywhere."""
    text = '"\\u001b[2J" = 1\n[log]\nlevel = "\\u001b[31m\\u202e"\n# \u202e\nformat = "\u202e\u0085"\n'
    for problem in mistakes(text):
        assert all(line.isprintable() for line in str(problem).splitlines())


def test_the_sample_is_the_defaults():
    """As it is, and with every # before a key taken away."""
    assert config.loads(SAMPLE) == Config()
    assert config.loads(SAMPLE).sources == {}
    live = re.sub(r"^#(\w+ = )", r"\1", SAMPLE, flags=re.MULTILINE)
    loaded = config.loads(live)
    assert loaded == Config()
    assert set(loaded.sources) == set(KEYS)


def test_the_page_names_every_key_and_section():
    page = reference.page()
    for key in KEYS.values():
        assert f"| `{key.name}` | `{key.default_toml}` |" in page
    assert [name for name in SECTIONS if name != "shards" and f"## [{name}]\n" not in page] == []
    cells = {
        line.count(" | ") for line in page.splitlines() if line.startswith("| `") and "default" not in line
    }
    assert cells <= {1, 3}


# Nothing but ConfigurationError, whatever the text

names = st.sampled_from([*KEYS, *SECTIONS, *(key.name for key in KEYS.values()), "x", '"a.b"'])
values = st.sampled_from(
    ["1", "-1", "true", '"x"', '"1GB"', "[]", "{}", "[{}]", "{ x = 1 }", "nan", "1979-05-27", "07:32:00",
     "0xff", "1e400", '"""a\nb"""', "'", "[[", "=", ""]
)  # fmt: skip
statements = st.one_of(
    st.builds("{} = {}".format, names, values),
    st.builds("[{}]".format, names),
    st.builds("[[{}]]".format, names),
    st.text(max_size=20),
)


def try_to_load(text: str | bytes) -> None:
    problems: tuple[ConfigurationProblem, ...] = ()
    try:
        shown = repr(config.loads(text))
    except ConfigurationError as error:
        shown, problems = str(error), error.problems
    lines = 1 + (text.count("\n") if isinstance(text, str) else text.count(b"\n"))
    assert all(problem.line is None or 1 <= problem.line <= lines for problem in problems)
    assert shown.encode()


@settings(max_examples=400)
@given(st.lists(statements, max_size=12).map("\n".join))
def test_random_statements_load_or_are_refused(text):
    try_to_load(text)


@settings(max_examples=200)
@given(st.one_of(st.binary(max_size=80), st.text(max_size=80)))
def test_garbage_loads_or_is_refused(text):
    try_to_load(text)


@settings(max_examples=200)
@given(
    st.integers(0, len(SAMPLE)),
    st.integers(0, 40),
    st.text(st.sampled_from("[]{}=.,'\"#\\ \n\r\tx1\ufeff"), max_size=5),
)
def test_a_damaged_sample_loads_or_is_refused(start, length, instead):
    live = re.sub(r"^#(\w+ = )", r"\1", SAMPLE, flags=re.MULTILINE)
    try_to_load(live[:start] + instead + live[start + length :])


@given(
    st.dictionaries(
        st.sampled_from([key.variable for key in KEYS.values()]), st.text(max_size=20), max_size=5
    )
)
def test_any_environment_loads_or_is_refused(environment):
    named: set[str] = set()
    try:
        loaded = config.load("/dev/null", environment=environment)
        named = {str(source) for source in loaded.sources.values()}
    except ConfigurationError as error:
        named = {problem.source for problem in error.problems}
    assert named <= set(environment)
