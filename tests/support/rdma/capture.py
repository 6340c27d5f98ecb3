"""Captures loopback traffic with dumpcap and decodes it with tshark."""

from __future__ import annotations

import contextlib
import re
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from xml.etree import ElementTree

from support.rdma.link import wait_until

# The rpcordma heuristic takes a payload of five bytes for a malformed remote procedure call.
# the port may be assigned to another protocol
_NOT_OURS = ("--disable-protocol", "rpcordma", "-o", "tcp.try_heuristic_first:TRUE")
_FINDING = re.compile(r"^ +(\d+) +(\S+) +(\S+) +(.+)$")


@dataclass
class Fpdu:
    """One FPDU as Wireshark decodes it."""

    from_server: bool
    ulpdu_length: int
    checksum: str  # Wireshark's verdict on the CRC
    opcode: int | None = None
    last: bool = False
    termination: list[str] = field(default_factory=list)  # layer, type and code of a TERMINATE
    # the distance from each marker back to the start of its FPDU
    markers: list[int] = field(default_factory=list)

    @property
    def length(self) -> int:
        """Its length on the wire, with length field, padding, CRC and markers."""
        return (2 + self.ulpdu_length + 3) // 4 * 4 + 4 + 4 * len(self.markers)


@dataclass
class Decoded:
    """A whole connection, from its first to its last byte."""

    fpdus: list[Fpdu] = field(default_factory=list)
    set_up_bytes: dict[bool, int] = field(default_factory=dict)  # keyed by whether it is from the server
    stream_bytes: dict[bool, int] = field(default_factory=dict)
    malformed: list[str] = field(default_factory=list)
    findings: list[tuple[str, str]] = field(default_factory=list)  # protocol and text, without those of TCP

    def opcodes(self, *, from_server: bool) -> list[int]:
        """The opcodes of complete messages, in order."""
        return [
            f.opcode for f in self.fpdus if f.from_server is from_server and f.last and f.opcode is not None
        ]

    def understood_bytes(self, *, from_server: bool) -> int:
        return self.set_up_bytes[from_server] + sum(
            f.length for f in self.fpdus if f.from_server is from_server
        )


def missing() -> str:
    """The reason why nothing can be captured here, or an empty value."""
    for tool in ("dumpcap", "tshark"):
        if not shutil.which(tool):
            return f"{tool} is not installed"
    probe = subprocess.run(
        ["dumpcap", "-q", "-i", "lo", "-f", "tcp port 1", "-a", "duration:0", "-w", "/dev/null"],
        capture_output=True,
        text=True,
        check=False,
    )
    return "" if probe.returncode == 0 else f"dumpcap may not capture on lo: {probe.stderr.splitlines()[0]}"


@contextlib.contextmanager
def capturing(port: int) -> Iterator[Path]:
    """Captures the traffic of a port. The file is complete once the end of the connection has been
    captured."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "capture.pcapng"
        path.touch(0o666)  # dumpcap may have dropped root's privileges
        command = ["dumpcap", "-q", "-i", "lo", "-B", "32", "-f", f"tcp port {port}", "-w", str(path)]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
            try:
                assert process.stderr is not None
                started = any(line.startswith("File:") for line in process.stderr)
                assert started, "dumpcap ended before it began"
                yield path
            finally:
                process.send_signal(signal.SIGINT)
                process.wait(10)


def wait_for_end(path: Path) -> None:
    """Returns when both ends of the captured connection have closed it."""

    def ends() -> set[str]:
        seen = _tshark(path, "-Y", "tcp.flags.fin==1", "-T", "fields", "-e", "tcp.srcport")
        return set(seen.split())

    wait_until(lambda: len(ends()) == 2, "the end of the connection in the capture")


def decode(path: Path, server_port: int) -> Decoded:
    result = Decoded()
    for packet in ElementTree.fromstring(_tshark(path, "-T", "pdml")):
        _take_packet(packet, server_port, result)
    for line in _tshark(path, "-q", "-z", "expert").splitlines():
        finding = _FINDING.match(line)
        if finding and finding[3] not in ("TCP", "Protocol"):
            result.findings += [(finding[3], finding[4])] * int(finding[1])
    return result


def _take_packet(packet: ElementTree.Element, server_port: int, result: Decoded) -> None:
    shown = {f.get("name"): f for f in packet.iter("field")}
    from_server = shown["tcp.srcport"].get("show") == str(server_port)
    if shown["tcp.flags.fin"].get("show") in ("1", "True"):
        result.stream_bytes[from_server] = int(shown["tcp.nxtseq"].get("show", "")) - 2
    if any(p.get("name") == "_ws.malformed" for p in packet.iter("proto")):
        result.malformed.append(shown["frame.number"].get("show", ""))
    for item in packet.iter():
        name, show = item.get("name"), item.get("show", "")
        if name == "iwarp_mpa.pdlength":
            result.set_up_bytes[from_server] = 20 + int(show)
        elif name == "iwarp_mpa.ulpdulength":
            result.fpdus.append(Fpdu(from_server, int(show), "not shown"))
        elif name in ("iwarp_mpa.crc_check", "iwarp_mpa.crc"):
            result.fpdus[-1].checksum = item.get("showname", "").rpartition("(")[2].rstrip(")")
        elif name == "iwarp_mpa.marker_fpduptr":
            result.fpdus[-1].markers.append(int(show))
        elif name == "iwarp_rdma.opcode":
            result.fpdus[-1].opcode = int(show, 0)
        elif name == "iwarp_ddp.last_flag":
            result.fpdus[-1].last = show in ("1", "True")
        elif name and re.match(r"iwarp_rdma\.term_(layer|etype|errcode)", name):
            result.fpdus[-1].termination.append(item.get("showname", "").partition(": ")[2])


def _tshark(path: Path, *arguments: str) -> str:
    command = ["tshark", "-r", str(path), *_NOT_OURS, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout
