"""Finds failures in a text: by code, by number, or by messages of other programs. No I/O."""

from __future__ import annotations

import re
from collections.abc import Iterator

from verbena.cli.explanations.foreign import FOREIGN, found_in, messages_in
from verbena.errors import EXPLANATIONS, WcStatus

# Messages of libibverbs (ibv_wc_status_str), the kernel and common RDMA programs, with their codes.
PHRASES: tuple[tuple[str, str], ...] = (
    (r"local length error", "LOC_LEN_ERR"),
    (r"local QP operation error", "LOC_QP_OP_ERR"),
    (r"local EE context operation error", "LOC_EEC_OP_ERR"),
    (r"local protection error", "LOC_PROT_ERR"),
    (r"work request flushed", "WR_FLUSH_ERR"),
    (r"memory management operation error|memory window bind error", "MW_BIND_ERR"),
    (r"bad response error", "BAD_RESP_ERR"),
    (r"local access error", "LOC_ACCESS_ERR"),
    (r"remote invalid request error", "REM_INV_REQ_ERR"),
    (r"remote access error", "REM_ACCESS_ERR"),
    (r"remote operation error", "REM_OP_ERR"),
    (r"transport retry counter exceeded|retry exceeded|ACK timeout", "RETRY_EXC_ERR"),
    (r"RNR retry counter exceeded|receiver not ready", "RNR_RETRY_EXC_ERR"),
    (r"remote abort error", "REM_ABORT_ERR"),
    (r"fatal error on (?:the )?device|IBV_EVENT_DEVICE_FATAL", "FATAL_ERR"),
    (r"response timeout error", "RESP_TIMEOUT_ERR"),
    (r"ibv_reg_mr\w*.{0,40}(?:cannot allocate memory|ENOMEM)|memlock|RLIMIT_MEMLOCK", "memlock"),
    (r"no RDMA devices? found|no (?:IB|RDMA|InfiniBand) devices?|ibv_get_device_list", "no_device"),
    (r"port (?:is )?(?:not active|down)|IBV_EVENT_PORT_ERR|state:? (?:PORT_)?DOWN", "port_down"),
    (r"invalid gid|gid (?:index|table).{0,30}(?:invalid|not found|empty)", "no_gid"),
    (r"connection timeout after|RDMA_CM_EVENT_UNREACHABLE|timed? ?out.{0,20}connect", "connect_timeout"),
    (r"RDMA_CM_EVENT_REJECTED", "rejected"),
    (r"connection refused|no route to host|ECONNREFUSED|EHOSTUNREACH|network is unreachable", "unreachable"),
    (r"RDMA_CM_EVENT_ADDR_ERROR|RDMA_CM_EVENT_ROUTE_ERROR|name or service not known", "unreachable"),
    (r"address already in use|EADDRINUSE", "address_in_use"),
    (r"too many open files|EMFILE", "fd_limit"),
    (r"hugetlb|huge ?pages?.{0,30}(?:fail|not|cannot)", "huge_pages"),
    (r"IBV_EVENT_CQ_ERR|CQ overrun", "cq_overrun"),
    (r"CERTIFICATE_VERIFY_FAILED", "tls_untrusted"),
)
# A number is a status only after a word such as "status".
_STATUS_NUMBER = re.compile(r"\b(?:wc|cqe|completion|status|syndrome)[\w.\s]{0,12}[=:( ]\s*(\d{1,2})\b", re.I)
_NAME = re.compile(r"\b(?:IBV_WC_|WC_)?([A-Z][A-Z_]+_(?:ERR|INCOMPLETE)|SUCCESS)\b")
_CODE = re.compile(r"\[(\w+)[\],]")


def recognise(text: str) -> list[str]:
    """Returns the codes of the failures in a text, each once, in order of position."""
    whole = text.strip()
    alone = whole.upper().removeprefix("IBV_WC_")
    if whole.isdigit():
        return [WcStatus(int(whole)).name] if int(whole) in WcStatus._value2member_map_ else []
    for name in (alone, whole.lower(), f"{alone}_ERR"):
        if name in EXPLANATIONS or name in FOREIGN:
            return [name]
    found = sorted({*_found(text), *found_in(text)}) or sorted(messages_in(text))
    return list(dict.fromkeys(code for _, code in found))


def _found(text: str) -> Iterator[tuple[int, str]]:
    for match in _NAME.finditer(text):
        if match[1] in EXPLANATIONS and match[1] != "SUCCESS":
            yield match.start(), match[1]
    for match in _CODE.finditer(text):
        if match[1] in EXPLANATIONS:
            yield match.start(), match[1]
    for match in _STATUS_NUMBER.finditer(text):
        if int(match[1]) in WcStatus._value2member_map_ and int(match[1]) != WcStatus.SUCCESS:
            yield match.start(), WcStatus(int(match[1])).name
    for pattern, code in PHRASES:
        for match in re.finditer(pattern, text, re.I):
            yield match.start(), code
