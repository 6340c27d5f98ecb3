"""What Wireshark makes of traffic on the loopback: a real capture by dumpcap, taken apart by tshark."""

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

# Its guess at who uses RDMA takes a payload of five bytes for a broken remote procedure call.
_NOT_OURS = ("--disable-protocol", "rpcordma", "-o", "tcp.try_heuristic_first:TRUE")  # the port may be known
_FINDING = re.compile(r"^ +(\d+) +(\S+) +(\S+) +(.+)$")


@dataclass
class Fpdu:
    """One FPDU as Wireshark shows it."""

    from_server: bool
    ulpdu_length: int
    checksum: str  # what it says of the CRC
    opcode: int | None = None
    last: bool = False
    termination: list[str] = field(default_factory=list)  # layer, type and code of a TERMINATE
    markers: list[int] = field(default_factory=list)  # how far back each says that the FPDU began

    @property
    def length(self) -> int:
        """On the wire, with length field, pad, CRC and markers."""
        return (2 + self.ulpdu_length + 3) // 4 * 4 + 4 + 4 * len(self.markers)


@dataclass
class Decoded:
    """A connection, from its first to its last byte."""

    fpdus: list[Fpdu] = field(default_factory=list)
    set_up_bytes: dict[bool, int] = field(default_factory=dict)  # by "from the server"
    stream_bytes: dict[bool, int] = field(default_factory=dict)
    malformed: list[str] = field(default_factory=list)
    findings: list[tuple[str, str]] = field(default_factory=list)  # protocol and text, TCP's own left out

    def opcodes(self, *, from_server: bool) -> list[int]:
        """Of whole messages, in their order."""
        return [
            f.opcode for f in self.fpdus if f.from_server is from_server and f.last and f.opcode is not None
        ]

    def understood_bytes(self, *, from_server: bool) -> int:
        return self.set_up_bytes[from_server] + sum(
            f.length for f in self.fpdus if f.from_server is from_server
        )


def missing() -> str:
    """Why nothing can be captured here, or nothing."""
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
    """Captures what goes to and from a port; the file is complete once the connection is seen to be over."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "capture.pcapng"
        path.touch(0o666)  # dumpcap may have given up root's rights
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
    """Returns when both ends of the captured connection have said their last."""

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
