"""The exception tree, the error table, and the files made from it."""

from __future__ import annotations

import ast
import asyncio
import copy
import errno
import os
import pickle
import re
import resource
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from verbena import errors
from verbena.errors import (
    EXPLANATIONS,
    VerbenaError,
    WcStatus,
    completion_error,
    error_class,
    explain,
    from_native,
    setup_error,
)

ROOT = Path(__file__).resolve().parents[1]
FAILURES = [code for code in EXPLANATIONS if code != "SUCCESS"]

SETUP_CODES = re.findall(
    r"\w+",
    """
    memlock no_device port_down no_gid provider_missing huge_pages address_in_use unreachable
    connect_timeout rejected credentials version_mismatch bad_transition missing_attribute queue_full
    no_such_region region_not_permitted package_missing
    cq_overrun closed forked foreign_pd buffer_readonly buffer_not_contiguous out_of_range limit_exceeded
    fd_limit not_permitted unsupported_opcode unsupported_provider peer_died bad_message invalid_argument
    downgrade no_common_wire session_unknown peer_restarted resume_timeout stale_attempt drill session_failed
    call_timeout remote_failure no_such_method peer_busy region_denied message_too_long damaged
    pool_timeout numpy_missing far_full far_name_taken far_unknown log_failed log_corrupt log_locked
    no_memory protocol_error denied
    registry_folder registry_locked registry_missing registry_bucket s3_missing
    tls_file tls_key_mismatch tls_expired tls_handshake tls_missing tls_untrusted
    tls_wrong_host tls_plain_peer tls_required tls_refused tls_revoked
    bad_configuration configuration_file peer_refused
    bad_envelope bad_checkpoint bad_cluster_map map_conflict map_refused map_store map_store_timeout
    map_not_asked lease_lost not_ready move_failed not_a_member
    """,
)

IBV_WC_STATUS = re.findall(
    r"\w+",
    """
    SUCCESS LOC_LEN_ERR LOC_QP_OP_ERR LOC_EEC_OP_ERR LOC_PROT_ERR WR_FLUSH_ERR MW_BIND_ERR BAD_RESP_ERR
    LOC_ACCESS_ERR REM_INV_REQ_ERR REM_ACCESS_ERR REM_OP_ERR RETRY_EXC_ERR RNR_RETRY_EXC_ERR
    LOC_RDD_VIOL_ERR REM_INV_RD_REQ_ERR REM_ABORT_ERR INV_EECN_ERR INV_EEC_STATE_ERR FATAL_ERR
    RESP_TIMEOUT_ERR GENERAL_ERR TM_ERR TM_RNDV_INCOMPLETE
    """,
)


def subclasses(cls: type[VerbenaError]) -> Iterator[type[VerbenaError]]:
    yield cls
    for child in cls.__subclasses__():
        yield from subclasses(child)


CLASSES = list(subclasses(VerbenaError))


@pytest.fixture
def memlock_limit() -> Iterator[int]:
    """A soft limit on locked memory that no other machine is likely to have: 13 pages."""
    before = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    limit_bytes = 52 * 1024
    if before[1] != resource.RLIM_INFINITY and before[1] < limit_bytes:
        pytest.skip(f"the hard limit on locked memory is {before[1]} bytes")
    resource.setrlimit(resource.RLIMIT_MEMLOCK, (limit_bytes, before[1]))
    yield limit_bytes
    resource.setrlimit(resource.RLIMIT_MEMLOCK, before)


def test_the_statuses_are_those_of_libibverbs() -> None:
    """Names and numbers follow enum ibv_wc_status, so a number from hardware needs no translation."""
    assert [(status.name, status.value) for status in WcStatus] == [
        (name, number) for number, name in enumerate(IBV_WC_STATUS)
    ]


def test_every_status_and_every_setup_code_is_explained_and_nothing_else() -> None:
    assert sorted(EXPLANATIONS) == sorted(IBV_WC_STATUS + SETUP_CODES)
    assert all(code == row.code for code, row in EXPLANATIONS.items())


@pytest.mark.parametrize("code", EXPLANATIONS)
def test_an_explanation_has_words_for_everything(code: str) -> None:
    """What, each cause and the remedy are phrases, not sentences: str(error) and the page punctuate them."""
    row = explain(code)
    assert row.causes
    for text in (row.what, *row.causes, row.remedy, *row.checks):
        assert len(text.split()) >= 3, text
        assert text == " ".join(text.split())
        assert not text.endswith("."), text
        assert "{" not in text, text
    assert len(set(row.causes)) == len(row.causes)


def test_no_two_failures_have_the_same_words() -> None:
    whats = [row.what for row in EXPLANATIONS.values()]
    likeliest = [row.causes[0] for row in EXPLANATIONS.values()]
    assert len(set(whats)) == len(whats)
    assert len(set(likeliest)) == len(likeliest)


@pytest.mark.parametrize(
    "spelling",
    [12, WcStatus.RETRY_EXC_ERR, "12", "RETRY_EXC_ERR", "IBV_WC_RETRY_EXC_ERR", " ibv_wc_retry_exc_err "],
)
def test_a_status_is_known_by_number_and_by_name(spelling: str | int) -> None:
    assert explain(spelling) == EXPLANATIONS["RETRY_EXC_ERR"]


@pytest.mark.parametrize("unknown", ["no_such_code", "", "12x", 99, -1, "{memlock}"])
def test_an_unknown_code_is_said_to_be_unknown(unknown: str | int) -> None:
    """explain() answers for any code, so a newer native core or a vendor's status cannot break a report."""
    row = explain(unknown)
    assert str(unknown) in row.code
    assert "no explanation" in row.what
    assert error_class(unknown) is VerbenaError


def test_the_tree_in_the_docstring_is_the_real_tree() -> None:
    """Names, nesting and order; a class that is not drawn, or drawn elsewhere, fails."""

    def real(cls: type[VerbenaError], depth: int = 0) -> Iterator[tuple[int, str]]:
        yield depth, cls.__name__
        for child in cls.__subclasses__():
            yield from real(child, depth + 1)

    drawn = re.findall(r"^([│├└─ ]*)(\w+Error)\b", errors.__doc__ or "", flags=re.MULTILINE)
    assert [(len(branch) // 4, name) for branch, name in drawn] == list(real(VerbenaError))


def test_all_is_what_is_exported() -> None:
    """Every class of the tree is public, and every public name exists."""
    assert {cls.__name__ for cls in CLASSES} <= set(errors.__all__)
    assert [name for name in errors.__all__ if not hasattr(errors, name)] == []


def test_every_failure_has_a_class_of_its_kind() -> None:
    """A known failure never falls through to the root, where a caller could not tell what to do."""
    assert [code for code in FAILURES if error_class(code) is VerbenaError] == []


def test_every_class_is_raised_by_some_failure() -> None:
    assert {error_class(code) for code in FAILURES} == set(CLASSES) - {VerbenaError}


@pytest.mark.parametrize(
    ("code", "cls"),
    [
        ("RETRY_EXC_ERR", errors.BrokenLinkError),
        ("WR_FLUSH_ERR", errors.BrokenLinkError),
        ("REM_ACCESS_ERR", errors.DeniedError),
        ("LOC_PROT_ERR", errors.DeniedError),
        ("RESP_TIMEOUT_ERR", errors.TimedOutError),
        ("memlock", errors.RegistrationError),
        ("queue_full", errors.QueueFullError),
        ("queue_full", errors.BusyError),
        ("connect_timeout", TimeoutError),
        ("call_timeout", TimeoutError),
        ("peer_died", ConnectionError),
        ("resume_timeout", ConnectionError),
        ("unreachable", OSError),
        ("address_in_use", OSError),
        ("credentials", PermissionError),
        ("no_device", errors.UnavailableError),
        ("bad_transition", errors.StateError),
        ("foreign_pd", errors.DeniedError),
    ],
)
def test_a_failure_is_caught_by_what_the_caller_can_do(code: str, cls: type[Exception]) -> None:
    with pytest.raises(cls) as caught:
        raise setup_error(code, operation="try")
    assert isinstance(caught.value, VerbenaError)


def test_a_failed_completion_carries_operation_peer_and_status() -> None:
    error = completion_error(
        WcStatus.REM_ACCESS_ERR, operation="write", peer="10.0.0.7:9999", detail="rkey 0x2a"
    )
    assert (error.operation, error.peer, error.status) == ("write", "10.0.0.7:9999", WcStatus.REM_ACCESS_ERR)
    assert (error.code, error.detail) == ("REM_ACCESS_ERR", "rkey 0x2a")
    row = EXPLANATIONS["REM_ACCESS_ERR"]
    assert (error.what, error.causes, error.remedy) == (row.what, row.causes, row.remedy)
    assert error.cause == "; or ".join(row.causes)


def test_a_successful_completion_is_refused_as_an_error() -> None:
    with pytest.raises(ValueError, match="SUCCESS"):
        completion_error(WcStatus.SUCCESS, operation="send")


def test_a_status_that_verbs_does_not_define_still_gives_an_error() -> None:
    error = completion_error(77, operation="send")
    assert (type(error), error.status, error.code) == (VerbenaError, None, "status 77")


def test_an_error_reads_well_on_a_terminal() -> None:
    """First line what happened to what, then each cause on its line, then the remedy."""
    error = setup_error(
        "address_in_use", operation="listen", peer="0.0.0.0:9999", detail="tcp", errno=errno.EADDRINUSE
    )
    first, *causes, last = str(error).splitlines()
    row = EXPLANATIONS["address_in_use"]
    marks = "[address_in_use, EADDRINUSE: Address already in use]"
    assert first == f"listen (peer 0.0.0.0:9999) failed: {row.what}: tcp {marks}"
    assert causes == [f"cause: {row.causes[0]}", f"   or: {row.causes[1]}"]
    assert last == f"remedy: {row.remedy}"


def test_an_error_without_explanation_is_one_line() -> None:
    assert str(errors.ClosedError("it is shut")) == "it is shut"
    assert str(errors.ClosedError("it is shut", operation="poll")) == "poll failed: it is shut"


def test_the_memlock_text_names_the_limit_in_force(memlock_limit: int) -> None:
    """The value comes from this process when the error is made, as do the ways to raise it."""
    error = setup_error("memlock", operation="register_memory", errno=errno.ENOMEM)
    assert f"RLIMIT_MEMLOCK is {memlock_limit // 1024} KiB" in str(error)
    for way in ("ulimit -l", "LimitMEMLOCK", "/etc/security/limits.d", "--ulimit memlock", "IPC_LOCK"):
        assert way in error.remedy


def test_given_values_replace_the_machines_and_the_rest_join_the_detail() -> None:
    error = setup_error(
        "memlock", operation="register_memory", detail="arena", memlock_soft="7 KiB", length_bytes=8192
    )
    assert "RLIMIT_MEMLOCK is 7 KiB" in error.what
    assert error.detail == "arena, length_bytes=8192"


def test_the_huge_page_text_counts_the_pages() -> None:
    meminfo = Path("/proc/meminfo").read_text()
    total = re.search(r"^HugePages_Total:\s+(\d+)$", meminfo, flags=re.MULTILINE)
    if total is None:
        pytest.skip("this kernel has no huge pages")
    assert f" of {total[1]} huge pages of " in explain("huge_pages").causes[0]


def test_a_failure_can_be_explained_when_no_descriptor_is_left() -> None:
    """Reading the machine's values must not replace the failure by another."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, before[1]))
    try:
        huge_pages = setup_error("huge_pages", operation="map")
        fd_limit = setup_error("fd_limit", operation="connect", errno=errno.EMFILE)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    assert huge_pages.causes[0].startswith("unknown of unknown huge pages")
    assert "RLIMIT_NOFILE is 0" in fd_limit.what


@pytest.mark.parametrize("code", ["", "martian", "{0}", "SUCCESS"])
def test_an_odd_code_from_native_code_gives_a_plain_error(code: str) -> None:
    error = from_native(code, "open_device", "it said {braces} and 100%", errno.EIO)
    assert type(error) is VerbenaError
    assert (error.operation, error.code, error.errno) == ("open_device", code, errno.EIO)
    assert "it said {braces} and 100%" in str(error).splitlines()[0]


def test_a_native_error_without_detail_or_errno_has_neither() -> None:
    """C++ writes "" and 0 for none; neither may show as an empty place in the message."""
    error = from_native("closed", "post_send", "", 0)
    assert (type(error), error.detail, error.errno) == (errors.ClosedError, "", None)
    assert str(error).splitlines()[0] == f"post_send failed: {EXPLANATIONS['closed'].what} [closed]"


def test_a_native_error_may_carry_a_completion_status() -> None:
    error = from_native("IBV_WC_RNR_RETRY_EXC_ERR", "send")
    assert error.status is WcStatus.RNR_RETRY_EXC_ERR
    assert isinstance(error, errors.BrokenLinkError)


def test_a_rejection_carries_what_the_peer_said() -> None:
    error = setup_error("rejected", operation="connect", peer="a:1", private_data=b"\x00full")
    assert isinstance(error, errors.RejectedError)
    assert error.private_data == b"\x00full"


@pytest.mark.parametrize("code", FAILURES)
def test_an_error_survives_pickling(code: str) -> None:
    """multiprocessing and executors send exceptions by pickle: class, text and every attribute arrive."""
    error = setup_error(code, operation="try", peer="b:2", detail="d", errno=errno.EIO, private_data=b"no")
    error.__dict__["seen_by"] = "a caller"
    for twin in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
        assert type(twin) is type(error)
        assert vars(twin) == vars(error)
        assert (twin.errno, twin.args, str(twin)) == (errno.EIO, error.args, str(error))
        assert getattr(twin, "strerror", None) == getattr(error, "strerror", None)


def test_an_error_of_the_system_has_its_errno_and_text() -> None:
    """`except OSError as error` finds what the socket module would have set."""
    error = setup_error("address_in_use", operation="listen", errno=errno.EADDRINUSE)
    assert isinstance(error, OSError)
    assert (error.errno, error.strerror) == (errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))
    without = setup_error("unreachable", operation="connect")
    assert isinstance(without, OSError)
    assert (without.errno, without.strerror) == (None, None)


def test_a_timeout_is_what_asyncio_callers_catch() -> None:
    async def connect() -> None:
        raise setup_error("connect_timeout", operation="connect", timeout_ms=5000)

    with pytest.raises(TimeoutError, match="timeout_ms=5000"):
        asyncio.run(connect())


def reference(*arguments: str) -> subprocess.CompletedProcess[str]:
    tool = str(ROOT / "tools" / "reference.py")
    return subprocess.run([sys.executable, tool, *arguments], capture_output=True, text=True, check=False)


def test_the_reference_pages_are_current() -> None:
    """What tools/reference.py would write is what lies in docs/reference."""
    checked = reference("--check")
    assert (checked.returncode, checked.stdout, checked.stderr) == (0, "", "")


def test_a_stale_page_is_found_and_left_alone(tmp_path: Path) -> None:
    assert reference("--root", str(tmp_path)).returncode == 0
    page = tmp_path / "docs" / "reference" / "errors.md"
    stale = page.read_text(encoding="utf-8").replace("### memlock", "### memlok")
    page.write_text(stale, encoding="utf-8")
    checked = reference("--check", "--root", str(tmp_path))
    assert checked.returncode == 1
    assert "docs/reference/errors.md" in checked.stdout
    assert page.read_text(encoding="utf-8") == stale


def test_the_page_is_the_same_on_every_machine(tmp_path: Path, memlock_limit: int) -> None:
    """Run-time values stay open on the page; a limit of this machine would make it differ on the next."""
    assert reference("--root", str(tmp_path)).returncode == 0
    written = (tmp_path / "docs" / "reference" / "errors.md").read_text(encoding="utf-8")
    assert written == (ROOT / "docs" / "reference" / "errors.md").read_text(encoding="utf-8")
    assert "RLIMIT_MEMLOCK is *memlock soft*" in written


def test_every_code_and_class_is_on_the_page() -> None:
    page = (ROOT / "docs" / "reference" / "errors.md").read_text(encoding="utf-8")
    headings = re.findall(r"^### (\w+)", page, flags=re.MULTILINE)
    assert sorted(headings) == sorted(EXPLANATIONS)
    assert [cls.__name__ for cls in CLASSES if f"`{cls.__name__}`" not in page] == []


def codes_in(path: Path) -> Iterator[tuple[str, int]]:
    """Each literal that a module uses as the code of an error, with its line."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call) and node.args:
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if name in ("setup_error", "from_native", "error_class", "explain", "_file_error"):
                yield from literals(node.args[0])
        elif isinstance(node, ast.Assign) and [ast.unparse(target) for target in node.targets] == ["code"]:
            yield from literals(node.value)
        elif isinstance(node, ast.Compare) and ast.unparse(node.left) == "error.code":
            yield from (found for value in node.comparators for found in literals(value))


def literals(value: ast.expr) -> Iterator[tuple[str, int]]:
    if isinstance(value, ast.Constant) and isinstance(value.value, str) and value.value:  # "": no error
        yield value.value, value.lineno
    elif isinstance(value, ast.IfExp):
        yield from (*literals(value.body), *literals(value.orelse))
    elif isinstance(value, ast.Tuple | ast.Set | ast.List):
        yield from (found for item in value.elts for found in literals(item))


def test_python_code_uses_only_codes_of_the_table() -> None:
    """A misspelt code would give a plain VerbenaError without causes and remedy."""
    found = [
        (code, f"{path.relative_to(ROOT)}:{line}")
        for path in sorted((ROOT / "src" / "verbena").rglob("*.py"))
        for code, line in codes_in(path)
    ]
    assert len(found) > 100
    assert [(code, place) for code, place in found if code not in EXPLANATIONS] == []


@pytest.mark.parametrize(("code", "compiles"), [("unreachable", True), ("unreachabel", False)])
def test_native_code_with_an_unknown_code_does_not_compile(tmp_path: Path, code: str, compiles: bool) -> None:
    """verbena::Error takes a literal that is looked up in util/error_codes.h at compile time."""
    compiler = shutil.which("c++")
    if compiler is None:
        pytest.skip("no C++ compiler is installed")
    source = tmp_path / "throws.cc"
    source.write_text(f'''#include "util/error.h"
void fail() {{ throw verbena::Error("{code}", "connect", "no answer"); }}
''')
    command = [compiler, "-std=c++20", "-fsyntax-only", f"-I{ROOT / 'src' / 'native'}", str(source)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode == 0) is compiles, done.stderr
    assert compiles or "this_code_has_no_row_in_the_error_table" in done.stderr


def error_codes(*arguments: str) -> subprocess.CompletedProcess[str]:
    tool = str(ROOT / "tools" / "error_codes.py")
    return subprocess.run([sys.executable, tool, *arguments], capture_output=True, text=True, check=False)


def test_the_native_codes_are_those_of_the_table(tmp_path: Path) -> None:
    """The checked-in header is current; a stale one is found and left alone."""
    checked = error_codes("--check")
    assert (checked.returncode, checked.stdout, checked.stderr) == (0, "", "")
    assert error_codes("--root", str(tmp_path)).returncode == 0
    header = tmp_path / "src" / "native" / "util" / "error_codes.h"
    codes = re.findall(r'^    "(\w+)",$', header.read_text(encoding="utf-8"), flags=re.MULTILINE)
    assert codes == sorted(EXPLANATIONS)
    header.write_text("", encoding="utf-8")
    assert error_codes("--check", "--root", str(tmp_path)).returncode == 1
    assert header.read_text(encoding="utf-8") == ""
