"""Generates docs/reference/wire-formats.md from the structs, enumerations and comments of layouts in the
source."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

# Title, and the headers of that section.
NATIVE = (
    ("A session's messages", ("src/native/transport/session/message_layout.h",)),
    (
        "A session's memory",
        ("src/native/bind/verbs/remote_layout.h", "src/native/transport/node/methods_layout.h"),
    ),
    ("iwarp and quic: MPA", ("src/native/providers/iwarp/protocol/mpa_layout.h",)),
    ("iwarp and quic: DDP and RDMAP", ("src/native/providers/iwarp/protocol/ddp_layout.h",)),
    ("iwarp and quic: beyond the RFCs", ("src/native/providers/iwarp/protocol/verbena_layout.h",)),
    ("shm: set-up", ("src/native/providers/shm/control_layout.h",)),
    ("The store by sessions", ("src/native/kv/protocol/session_layout.h",)),
    ("The store on disk", ("src/native/kv/journal/log_layout.h",)),
    ("Messages between cluster nodes", ("src/native/kv/migration/envelope_layout.h",)),
    ("Valkey over RDMA", ("src/native/kv/protocol/valkey_rdma_layout.h",)),
)
# Formats packed in Python: title, module, name of the struct, fields.
PACKED = (
    (
        "A hello's frame",
        "transport/handshake/frames.py",
        "_HEADER",
        "magic VRBN, type, length of the JSON object",
    ),
    (
        "A link's request, in the connect's private data, then 24 bytes of HMAC-SHA256 and 0x01",
        "transport/handshake/link_token.py",
        "_REQUEST",
        "version, session id, attempt, received, window, slot bytes, replaces",
    ),
    (
        "A link's answer, in the accept's private data, then 24 bytes of HMAC-SHA256 and 0x01",
        "transport/handshake/link_token.py",
        "_ANSWER",
        "version, received, window, slot bytes",
    ),
    (
        "The first message of a proof of membership between cluster nodes",
        "kv/cluster/membership.py",
        "_HELLO",
        "magic VSMB, version, message 1, opener, acceptor, nonce",
    ),
    (
        "The second message of a proof of membership: the acceptor's challenge",
        "kv/cluster/membership.py",
        "_CHALLENGE",
        "magic VSMB, version, message 2, nonce, HMAC-SHA256 of the acceptor",
    ),
    (
        "The third message of a proof of membership: the opener's proof; its reply is empty",
        "kv/cluster/membership.py",
        "_PROOF",
        "magic VSMB, version, message 3, revision of the cluster map, HMAC-SHA256 of the opener",
    ),
    (
        "A migration's checkpoint, then the payload (JSON) and CRC32C of all of it",
        "kv/migration/checkpoint.py",
        "_HEADER",
        "magic VSCP, version, phase, migration, attempt, payload length",
    ),
    (
        "A frame in a message of Dask's",
        "integrations/dask_frames.py",
        "_FRAME",
        "its length, and in how many regions it lies",
    ),
    (
        "A message about files",
        "integrations/file_messages.py",
        "_LENGTH",
        "length of the JSON object; bytes follow",
    ),
)
SIZES = {"char": 1, "bool": 1, "std::byte": 1, "uint8_t": 1, "uint16_t": 2, "uint32_t": 4, "uint64_t": 8}
SIZES |= {"int64_t": 8, "Be16": 2, "Be32": 4, "Be64": 8, "HashKey": 16}
LETTERS = {"B": 1, "H": 2, "I": 4, "Q": 8, "4s": 4, "16s": 16, "20s": 20, "32s": 32}
ORDERS = {"<": "little-endian", "!": "network order"}

_STRUCT = re.compile(r"((?:^//[^\n]*\n)*)^struct (?:alignas\(\w+\) )?(\w+) \{\n(.*?)^\};", re.M | re.S)
_ENUM = re.compile(r"((?:^//[^\n]*\n)*)^enum class (\w+) : (\w+) \{(.*?)\};", re.M | re.S)
_FIELD = re.compile(
    r"^  (?:alignas\(\w+\) )?([\w:<>, ]+?) (\w+(?:, \w+)*)(?:\[(\w+)\])?(?: = [^;]+|\{[^;]*\})?;"
    r"(?:\s*//\s*(.*))?$"
)
_VALUE = re.compile(r"(\w+)(?:\s*=\s*([^,/\s]+))?,?\s*(?://\s*(.*))?$")
_CONSTANT = re.compile(r"constexpr \w+ (\w+) = (\w+);")


def page() -> str:
    """Returns the whole page."""
    lines = [
        "# Wire formats",
        "",
        "Layouts of messages and files, generated from the source. Sizes are asserted at compile time.",
        "Input is checked before use.",
        "Types that begin with `Be` are big-endian; all others are little-endian.",
        "",
        "## Set-up of sessions and other messages in Python",
        "",
        "| what | order | bytes | fields |",
        "|---|---|---|---|",
        *(_packed(*row) for row in PACKED),
        "",
    ]
    for title, paths in NATIVE:
        lines += [f"## {title}", ""]
        for path in paths:
            lines += _header(ROOT / path)
    return "\n".join(lines)


def _packed(title: str, module: str, name: str, fields: str) -> str:
    source = (ROOT / "src/verbena" / module).read_text()
    (form,) = re.findall(rf'^{name} = struct\.Struct\("([^"]+)"\)', source, flags=re.MULTILINE)
    letters = re.findall(r"\d*[a-zA-Z]", form[1:])
    sizes = [LETTERS[letter] for letter in letters]
    return f"| {title} | {ORDERS[form[0]]} | {sum(sizes)}: {' + '.join(map(str, sizes))} | {fields} |"


def _header(path: Path) -> list[str]:
    source = path.read_text()
    first = re.match(r"(?://[^\n]*\n)+", source)
    lines = [_words(first[0]) if first else "", ""]
    constants = dict(_CONSTANT.findall(source))
    known: dict[str, int] = dict(SIZES)
    for found in sorted(
        [*_ENUM.finditer(source), *_STRUCT.finditer(source)], key=lambda match: match.start()
    ):
        if found.re is _ENUM:
            comment, name, kind, body = found.groups()
            known[name] = SIZES[kind]
            lines += [f"### {name} ({SIZES[kind]} bytes)", "", _words(comment), "", *_values(body), ""]
        else:
            comment, name, body = found.groups()
            if "std::span" in body:  # a parsed message, not a wire format
                continue
            rows, size = _fields(body, known, constants)
            known[name] = size
            lines += [f"### {name}" + (f" ({size} bytes)" if size else ""), "", _words(comment), ""]
            lines += ["| offset | bytes | field | |", "|---|---|---|---|", *rows, ""]
    return [line for place, line in enumerate(lines) if line or (place and lines[place - 1])]


def _values(body: str) -> Iterator[str]:
    yield "| value | name | |"
    yield "|---|---|---|"
    value = -1
    parts = [line.strip() for line in body.splitlines() if line.strip()]
    if len(parts) == 1 and "//" not in parts[0]:
        parts = [part.strip() for part in parts[0].split(",")]
    for part in parts:
        match = _VALUE.match(part)
        if match:
            value = int(match[2], 0) if match[2] else value + 1
            yield f"| {match[2] or value} | {match[1]} | {match[3] or ''} |"


def _fields(body: str, known: dict[str, int], constants: dict[str, str]) -> tuple[list[str], int]:
    rows, offset, aligned = [], 0, 1
    for line in body.splitlines():
        match = _FIELD.match(line)
        if not match or match[1].startswith(("static", "using", "return")):
            continue
        kind, names, count, comment = match.groups()
        size = known.get(kind, 0)
        times = int(constants.get(count, count), 0) if count and constants.get(count, count).isdigit() else 1
        align = 1 if kind.startswith("Be") else min(size or 1, 8)
        for name in names.split(", "):
            offset = -(-offset // align) * align
            aligned = max(aligned, align)
            shown = (str(offset), str(size * times)) if size and offset >= 0 else ("", "")
            rows.append(f"| {shown[0]} | {shown[1]} | `{name}` | {comment or ''} |")
            offset = offset + size * times if size and offset >= 0 else -(1 << 40)
    return rows, -(-offset // aligned) * aligned if offset > 0 else 0


def _words(comment: str) -> str:
    return " ".join(line.removeprefix("//").strip() for line in comment.splitlines())
