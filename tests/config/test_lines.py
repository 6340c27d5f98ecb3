"""Where keys and values stand, in every way that TOML allows to write them."""

from __future__ import annotations

import sys
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from verbena import config
from verbena.config import document
from verbena.config.lines import locate
from verbena.errors import ConfigurationError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

TRICKY = {
    "a header": ("[network.rdma]\ncq_size = 0", 2),
    "a header with spaces": ("[ network . rdma ]\n  cq_size=0", 2),
    "a quoted header": ("[\"network\".'rdma']\ncq_size = 0", 2),
    "an escaped key": ('[network.rdma]\n\n"cq\\u005fsize" = 0', 3),
    "a dotted key": ("\nnetwork.rdma.cq_size = 0", 2),
    "a dotted key below a header": ("[network]\nrdma_port = 1\nrdma . cq_size = 0", 3),
    "an inline table": ("[network]\n\nrdma = { poll_batch = 1, cq_size = 0 }", 3),
    "nested inline tables": ("network = { rdma = { cq_size = 0 } }", 1),
    "a comment that looks like the key": ("# [network.rdma]\n#cq_size = 0\n[network.rdma]\ncq_size = 0", 4),
    "a string that looks like a file": (
        "[session]\nnode_name = '''x'''\n[log]\nlevel = \"info\" # \"\"\"\n[network.rdma]\ncq_size = 0",
        6,
    ),
    "a multi-line string before it": (
        '[tls]\nca = """\\\n  [network.rdma]\\\n  cq_size = 0\\\n"""\n[network.rdma]\ncq_size = 0',
        7,
    ),
    "an escaped quote before it": (
        '[tls]\nca = """a\\"""\\\n b"""\n[network.rdma]\ncq_size = 0',
        5,
    ),
    "quotes at the end of a string": (
        "[tls]\nca = \"\"\"a\"\"\"\"\"\nkey = '''b'''''\n[network.rdma]\ncq_size = 0",
        5,
    ),
    "sections out of order": ("[network.rdma]\npoll_batch = 1\n[log]\n[network]\nrdma.cq_size = 0", None),
    "CRLF": ("[network.rdma]\r\n# x\r\ncq_size = 0\r\n", 3),
    "a byte order mark": ("\ufeff[network.rdma]\ncq_size = 0", 2),
    "a byte order mark and CRLF": ("\ufeff# x\r\n[network.rdma]\r\ncq_size = 0", 3),
    "tabs": ("[network.rdma]\n\t\tcq_size\t=\t0\t# x", 2),
    "no last line end": ("[network.rdma]\n\n\n\ncq_size = 0", 5),
}


@pytest.mark.parametrize("name", TRICKY)
def test_a_wrong_value_is_found_on_its_line(name):
    text, line = TRICKY[name]
    with pytest.raises(ConfigurationError) as caught:
        config.loads(text)
    if line is None:  # TOML refuses it
        assert "not TOML" in caught.value.problems[0].message
        return
    problem = next(problem for problem in caught.value.problems if problem.key == "network.rdma.cq_size")
    assert problem.line == line
    assert problem.excerpt[problem.column - 1 : problem.column - 1 + problem.width] == "0"


def test_the_caret_stands_under_what_is_wrong():
    """An unknown key is marked itself, a wrong value at the value; tabs keep their width."""
    with pytest.raises(ConfigurationError) as caught:
        config.loads('[network.rdma]\n\tcq_siez = 1\n\tpoll_batch =  "many"  # why')
    unknown, wrong = map(str, caught.value.problems)
    assert unknown.splitlines()[1:] == ["    2 | \tcq_siez = 1", "      | \t^^^^^^^"]
    assert wrong.splitlines()[1:] == [
        '    3 | \tpoll_batch =  "many"  # why',
        "      | \t              ^^^^^^",
    ]


def test_the_caret_stands_where_it_should_on_a_terminal_for_wide_letters():
    """Letters that take two places are counted as two."""
    with pytest.raises(ConfigurationError) as caught:
        config.loads('"鍵" = 1\n[session]\nnode_name = "鍵"')
    first, second = map(str, caught.value.problems)
    assert first.splitlines()[2] == "      | ^^^^"
    assert second.splitlines()[2] == "      |             ^^^^"


def test_a_value_over_several_lines_is_marked_at_its_first():
    with pytest.raises(ConfigurationError) as caught:
        config.loads("[network.rdma]\ncq_size = [\n  1,\n]")
    (problem,) = caught.value.problems
    assert (problem.line, problem.excerpt, problem.width) == (2, "cq_size = [", 1)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("[network]\nrdma_port = 1\n[log]\n[network]\n", 4),
        ("[network]\nrdma_port = 1\nrdma_port = 2\n", 3),
        ("network = { rdma_port = 1, rdma_port = 2 }", 1),
        ("[network.rdma]\n[network]\nrdma = {}\n", 3),
    ],
)
def test_what_is_there_twice_is_told_so_on_the_second_line(text, line):
    with pytest.raises(ConfigurationError) as caught:
        config.loads(text)
    (problem,) = caught.value.problems
    assert problem.line == line
    assert "already" in problem.message


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[[network]]\nrdma_port = 1", "written once as [network]"),
        ("network = 5", "written once as [network]"),
        ("[network]\nrdma = true", "written once as [network.rdma]"),
        ("[network.rdma_port]\nx = 1", "network.rdma_port must be an integer from 1 to 255, not a table"),
        ("network.rdma_port = [1]", "not an array"),
        ('"network.rdma_port" = 1', "there is no key"),
        ("[[network.rdma.cq_size]]", "not an array"),
    ],
)
def test_a_section_is_a_section_and_a_key_a_key(text, words):
    with pytest.raises(ConfigurationError) as caught:
        config.loads(text)
    (problem,) = caught.value.problems
    assert words in problem.message
    assert problem.line == 1 + text.startswith("[network]")


# Any TOML: what locate() says of a leaf must be the leaf

keys = st.one_of(
    st.from_regex(r"[A-Za-z0-9_-]{1,6}", fullmatch=True),
    st.text(st.characters(codec="utf-8", exclude_categories=("Cc", "Cs")), max_size=5),
)
scalars = st.one_of(
    st.integers(-(2**40), 2**40),
    st.booleans(),
    st.floats(allow_nan=False, allow_infinity=False),
    st.dates().map(str),
    st.text(st.characters(codec="utf-8", exclude_categories=("Cc", "Cs")), max_size=12),
    st.sampled_from(["'", '"', "[x]\ny = 1", "a = '''", "# no", '""', "''", "\\", "a\nb\n", "}", "]", ","]),
)
trees = st.recursive(
    scalars,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(keys, inner, max_size=3)),
    max_leaves=12,
)


class Writer:
    """Writes a tree as TOML, each thing in a way that `draw` chooses."""

    def __init__(self, draw: st.DrawFn) -> None:
        self.draw = draw
        self.end = draw(st.sampled_from(["\n", "\r\n"]))

    def document(self, table: dict[str, Any]) -> str:
        return self.table(table, "")

    def table(self, table: dict[str, Any], above: str) -> str:
        plain, below = "", ""
        for name, value in table.items():
            key = self.key(name)
            full = f"{above}{self.space()}.{self.space()}{key}" if above else key
            if isinstance(value, dict) and self.draw(st.booleans()):
                below += f"[{self.space()}{full}{self.space()}]{self.rest()}{self.table(value, full)}"
            elif isinstance(value, dict) and value and self.draw(st.booleans()):
                for inner, leaf in value.items():
                    plain += f"{key}{self.space()}.{self.space()}{self.pair(inner, leaf)}{self.rest()}"
            elif self.is_array_of_tables(value) and self.draw(st.booleans()):
                for element in value:
                    below += f"[[{full}]]{self.rest()}{self.table(element, full)}"
            else:
                plain += f"{self.space()}{self.pair(name, value)}{self.rest()}"
        return plain + below

    def pair(self, name: str, value: Any) -> str:
        return f"{self.key(name)}{self.space()}={self.space()}{self.value(value)}"

    def value(self, value: Any) -> str:
        if isinstance(value, dict):
            pairs = (f"{self.space()}{self.pair(name, inner)}{self.space()}" for name, inner in value.items())
            return f"{{{','.join(pairs)}}}"
        if isinstance(value, list):
            items = "".join(f"{self.blank()}{self.value(inner)}{self.blank()}," for inner in value)
            return f"[{items}{self.blank()}]"
        if isinstance(value, str):
            return self.string(value)
        return str(value).lower() if isinstance(value, bool) else repr(value)

    def string(self, text: str) -> str:
        escaped = text.replace("\\", "\\\\").replace('"', '\\"')
        ways = [f'"{escaped}"'.replace("\n", "\\n"), f'"""{escaped}"""'.replace("\n", self.end)]
        if "'" not in text:
            ways.append(f"'''{text}'''".replace("\n", self.end))
            if "\n" not in text:
                ways.append(f"'{text}'")
        if "\n" not in text and '"""' not in text and "\\" not in text and not text.startswith('"'):
            ways.append(f'"""{text}"""' if not text.endswith('"""') else ways[0])
        # A line end right after the opening quotes would not count.
        return self.draw(
            st.sampled_from(
                [way for way in ways if not text.startswith("\n") or way[:3] not in ('"""', "'''")]
            )
        )

    def key(self, name: str) -> str:
        bare = name and all(letter.isascii() and (letter.isalnum() or letter in "_-") for letter in name)
        ways = [name] if bare else []
        ways.append('"' + name.replace("\\", "\\\\").replace('"', '\\"') + '"')
        if "'" not in name:
            ways.append(f"'{name}'")
        return self.draw(st.sampled_from(ways))

    def space(self) -> str:
        return self.draw(st.sampled_from(["", " ", "\t "]))

    def blank(self) -> str:
        return self.draw(st.sampled_from(["", " ", self.end, f" # ] 'x{self.end}"]))

    def rest(self) -> str:
        return self.draw(st.sampled_from([self.end, f" # [x] = '''{self.end}", self.end * 2]))

    @staticmethod
    def is_array_of_tables(value: Any) -> bool:
        return isinstance(value, list) and bool(value) and all(isinstance(element, dict) for element in value)


@st.composite
def documents(draw: st.DrawFn) -> tuple[dict[str, Any], str]:
    table = draw(st.dictionaries(keys, trees, max_size=4))
    return table, Writer(draw).document(table)


def leaves(value: Any, path: tuple[str | int, ...] = ()) -> list[tuple[tuple[str | int, ...], Any]]:
    if isinstance(value, dict):
        return [leaf for name, inner in value.items() for leaf in leaves(inner, (*path, name))]
    if isinstance(value, list):
        return [leaf for index, inner in enumerate(value) for leaf in leaves(inner, (*path, index))]
    return [(path, value)]


@settings(max_examples=300)
@given(documents())
def test_every_leaf_is_where_it_is_said_to_be(written):
    """The text at a leaf's place, parsed by itself, is the leaf; the key's text names it."""
    table, text = written
    text = text.replace("\r\n", "\n")
    parsed = tomllib.loads(text)
    assert parsed == table
    spans = locate(text)
    for path, value in leaves(parsed):
        assert all(path[:length] in spans for length in range(1, len(path)))
        span = spans[path]
        assert tomllib.loads(f"x = {text[slice(*span.value)]}") == {"x": value}
        if isinstance(path[-1], str):
            named = tomllib.loads(f"{text[slice(*span.key)]} = 0")
            assert leaves(named)[0][0][-1] == path[-1]


@given(st.text(st.sampled_from("[]{}=.,'\"#\\ \n\tax1-"), max_size=60))
def test_locating_in_anything_ends(text):
    """Broken text too: what was found until then is there, and within the text."""
    assert all(
        0 <= place <= len(text) for span in locate(text).values() for place in (*span.key, *span.value)
    )


def test_nesting_without_end_is_a_problem_and_no_crash():
    (problem,) = document.read(b"x = " + b"[\n" * 50_000, "deep").problems
    assert "nested" in problem.message
    assert locate("x = " + "[" * 100_000) == {}
