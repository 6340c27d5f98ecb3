"""`verbena doctor`: the network, the configuration, the script, and the path to a peer."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from support.ports import free_port

from verbena import verbs
from verbena.cli.checks import adapters, devices, kernel, limits, network, peer, settings
from verbena.cli.checks.diagnosis import Diagnosis, Roots, Verdict, error, ok, warn
from verbena.cli.checks.script import script
from verbena.config import Config, load, loads
from verbena.errors import setup_error
from verbena.verbs import DeviceAttributes, Gid, PortAttributes, PortState, ProviderInfo

OK, WARN, ERROR = Verdict
ADDRESS = Gid.parse("::ffff:10.0.2.15")
NEARBY = Gid.parse("fe80::1")
Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def roots(tmp_path: Path) -> Roots:
    return Roots(*(tmp_path / name for name in ("sys", "proc", "dev", "modules", "etc", "root")))


def write(path: Path, text: str = "") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def port(**changes: object) -> PortAttributes:
    good = PortAttributes(PortState.ACTIVE, 1024, 0, "Ethernet", (NEARBY, ADDRESS), ("RoCE v1", "RoCE v2"))
    return replace(good, **changes)  # type: ignore[arg-type]


def device(*ports: PortAttributes, name: str = "mlx5_0") -> DeviceAttributes:
    known = next(found for found in verbs.devices() if found.name == "shm0").attributes
    return replace(known, name=name, provider="ibv", transport="RoCE", numa_node=-1, ports=ports)


def with_device(attributes: DeviceAttributes) -> list[ProviderInfo]:
    known = next(found for found in verbs.providers() if found.name == "shm")
    return [replace(known, name="ibv", devices=(replace(known.devices[0], attributes=attributes),))]


def asked(**changes: object) -> Config:
    config = Config()
    return replace(config, network=replace(config.network, rdma_enabled=True, **changes))


def only(diagnoses: list[Diagnosis], words: str) -> Diagnosis:
    (found,) = [diagnosis for diagnosis in diagnoses if words in diagnosis.check]
    return found


# Adapters


def slot(roots: Roots, *, driver: str = "", rdma: str = "", vendor: str = "0x15b3") -> None:
    """An adapter in a PCI slot, with its driver and its RDMA device."""
    folder = roots.sys / "bus/pci/devices/0000:3b:00.0"
    write(folder / "vendor", f"{vendor}\n")
    write(folder / "device", "0x1017\n")
    write(folder / "class", "0x020000\n")
    if driver:
        (roots.sys / "drivers" / driver).mkdir(parents=True)
        (folder / "driver").symlink_to(roots.sys / "drivers" / driver)
    if rdma:
        write(folder / f"infiniband/{rdma}/node_type")


@pytest.mark.parametrize(
    ("driver", "rdma", "dep", "verdict", "words"),
    [
        ("mlx5_core", "mlx5_0", "", OK, "PCI 15b3:1017, driver mlx5_core: mlx5_0"),
        ("mlx5_core", "", "mlx5_ib", WARN, "sudo modprobe mlx5_ib"),
        ("mlx5_core", "", "", WARN, "install the distribution's full kernel"),
        ("", "", "mlx5_core", WARN, "sudo modprobe mlx5_core"),
    ],
)
def test_an_adapter_without_its_rdma_driver_is_a_warning_with_modprobe(
    roots: Roots, driver: str, rdma: str, dep: str, verdict: Verdict, words: str
) -> None:
    write(roots.proc / "sys/kernel/osrelease", "6.1.0-test\n")
    write(roots.modules / "6.1.0-test/modules.dep", f"kernel/drivers/{dep}.ko: \n")
    slot(roots, driver=driver, rdma=rdma)
    (found,) = adapters.check_adapters(roots)
    assert found.verdict is verdict
    assert words in f"{found.finding}\n{found.remedy}"


def test_an_adapter_with_both_drivers_and_no_device_refers_to_the_kernel_log(roots: Roots) -> None:
    write(roots.proc / "modules", "mlx5_ib 16384 0 - Live 0x0\n")
    slot(roots, driver="mlx5_core")
    (found,) = adapters.check_adapters(roots)
    assert (found.verdict, found.remedy) == (WARN, "sudo dmesg | grep -e mlx5_core -e mlx5_ib")


def test_other_cards_are_ignored(roots: Roots) -> None:
    slot(roots, driver="e1000", vendor="0x8086")
    assert adapters.check_adapters(roots) == []


# The network


def test_lost_packets_are_a_warning_that_explains_each_counter(roots: Roots) -> None:
    """Only counters that are 0 on a healthy network are reported."""
    folder = roots.sys / "class/infiniband/mlx5_0/ports/1"
    write(folder / "hw_counters/local_ack_timeout_err", "12\n")
    write(folder / "hw_counters/np_cnp_sent", "99\n")
    write(folder / "counters/symbol_error", "0\n")
    found = only(list(network.check_network(device(port()), roots)), "counters")
    assert (found.verdict, found.finding) == (WARN, "local_ack_timeout_err 12")
    assert "acknowledgement timeouts" in found.reason
    assert "PFC or ECN" in found.remedy


def test_counters_at_zero_are_ok(roots: Roots) -> None:
    write(roots.sys / "class/infiniband/mlx5_0/ports/1/hw_counters/packet_seq_err", "0\n")
    assert only(list(network.check_network(device(port()), roots)), "counters").verdict is OK


def test_ecn_that_is_off_is_a_warning_on_hardware_only(roots: Roots) -> None:
    for name in ("mlx5_0", "rxe0"):
        write(roots.sys / f"class/infiniband/{name}/ports/1/gid_attrs/ndevs/0", "eth1\n")
    write(roots.sys / "class/net/eth1/mtu", "1500\n")
    write(roots.sys / "class/net/eth1/ecn/roce_np/enable/3", "0\n")
    found = list(network.check_network(device(port()), roots))
    assert only(found, "PFC, ECN").verdict is WARN
    assert "9000 on the whole path lets RDMA use 4096" in only(found, "MTU").finding
    assert len(list(network.check_network(device(port(), name="rxe0"), roots))) == 2
    write(roots.sys / "class/net/eth1/ecn/roce_rp/enable/3", "1\n")
    assert only(list(network.check_network(device(port()), roots)), "PFC, ECN").verdict is OK


def test_the_firewall_line_names_the_ports(roots: Roots) -> None:
    write(roots.sys / "module/nf_tables/version")
    found = network.check_firewall(7471, which=lambda tool: tool if tool == "nft" else None, roots=roots)
    assert "TCP 7471" in found.finding
    assert "UDP 4791" in found.finding
    assert "sudo nft list ruleset" in found.finding


# The configuration


def check(config: Config, providers: list[ProviderInfo], roots: Roots) -> list[Diagnosis]:
    return list(settings.check_settings(config, providers, roots))


def test_a_missing_device_is_an_error_without_fallback(roots: Roots) -> None:
    for fallback, verdict in (("none", ERROR), ("tcp", WARN)):
        found = only(check(asked(rdma_fallback=fallback), [], roots), "rdma_device")
        assert found.verdict is verdict
        assert f"mlx5_0 not found (devices: none); fallback: {fallback}" in found.finding


def test_the_device_of_slot_moves_is_checked_if_moves_use_rdma(roots: Roots) -> None:
    """The finding lists the existing devices."""
    network, cluster = asked(), loads('cluster.enabled = true\nshards.rdma.device = "mlx5_7"\n')
    here = with_device(device(port()))
    assert not [found for found in check(network, here, roots) if found.check.startswith("shards")]
    found = only(check(replace(cluster, network=network.network), here, roots), "shards.rdma.device")
    assert found.verdict is WARN
    assert "mlx5_7 not found (devices: mlx5_0); fallback: tcp" in found.finding
    wrong = loads("cluster.enabled = true\nshards.rdma.port = 2\n")
    found = only(check(replace(wrong, network=network.network), here, roots), "shards.rdma.port")
    assert found.verdict is ERROR
    assert found.finding == "2, but the last port of mlx5_0 is 1"
    assert found.remedy.startswith("VERBENA_SHARDS_RDMA_PORT=1")


@pytest.mark.parametrize(
    ("index", "verdict", "words"),
    [
        (1, OK, "RoCE v2"),
        (0, WARN, "RoCE v1"),
        (7, ERROR, "7 is empty"),
        (3, WARN, "3 is empty: the best entry is used instead"),
    ],
)
def test_the_gid_index_is_checked_against_the_table(
    roots: Roots, index: int, verdict: Verdict, words: str
) -> None:
    found = only(check(asked(rdma_gid_index=index), with_device(device(port())), roots), "gid_index")
    assert found.verdict is verdict
    assert words in found.finding


def test_the_port_must_exist_and_be_active(roots: Roots) -> None:
    down = with_device(device(port(state=PortState.DOWN)))
    assert only(check(asked(), down, roots), "rdma_port").verdict is ERROR
    assert "is 1" in only(check(asked(rdma_port=2), down, roots), "rdma_port").finding


def test_buffers_above_the_memlock_limit_are_an_error(roots: Roots) -> None:
    """The default is 10,000 buffers of 4 KiB."""
    write(roots.proc / "self/status", "CapEff:\t0\n")
    write(roots.proc / "self/limits", "Max locked memory  8388608  8388608  bytes\n")
    found = only(check(asked(), with_device(device(port())), roots), "memory to lock")
    assert found.verdict is ERROR
    assert "the limit is 8 MiB" in found.finding
    assert "ulimit -l unlimited" in found.remedy


def test_an_invalid_configuration_is_an_error_with_its_message(roots: Roots) -> None:
    wrong = setup_error("bad_configuration", operation="", detail="1 mistake")
    (found,) = settings.check_settings(wrong, [], roots)
    assert found.verdict is ERROR
    assert "1 mistake" in found.finding


def test_a_port_in_use_is_reported(roots: Roots) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        number = taken.getsockname()[1]
        config = load(flags={"session.listen_port": str(number)})
        found = only(check(config, [], roots), "session port")
    assert found.verdict is WARN
    assert f"sport = :{number}" in found.remedy


# The script


def test_the_script_has_the_commands_once_and_the_rest_as_comments(tmp_path: Path) -> None:
    """bash parses the script; placeholders and manual steps are comments."""
    kernel = "sudo apt install kernel && sudo reboot"
    written = script(
        [
            ok("fine", "works"),
            warn("a", "x", reason="", remedy=kernel),
            warn("b", "x", reason="", remedy=kernel),
            error(
                "c", "x", reason="", remedy="sudo ip address add ADDRESS/PREFIX dev eth0\nlook at it, please"
            ),
            warn("d", "x", reason="", remedy="ulimit -l unlimited     (this shell)"),
        ]
    )
    commands = [line for line in written.splitlines() if line and not line.startswith("#")]
    assert commands == ["set -u", "sudo apt install kernel", "ulimit -l unlimited    # this shell"]
    assert "#   see above" in written
    assert "#   sudo ip address add ADDRESS/PREFIX dev eth0" in written
    assert written.endswith("# Finally: sudo reboot")
    subprocess.run(["bash", "-n"], input=written, text=True, check=True)


def test_a_script_without_fixes_says_so() -> None:
    assert "nothing to fix" in script([ok("fine", "works")])


def test_fix_prints_a_script_for_this_machine(verbena: Run) -> None:
    """bash parses the output, which contains nothing but the script."""
    done = verbena("doctor", "--fix", "--provider", "shm")
    assert done.stdout.startswith("#!/bin/bash\n")
    subprocess.run(["bash", "-n"], input=done.stdout, text=True, check=True)


def test_shellcheck_accepts_the_script_for_every_problem(tmp_path: Path, roots: Roots) -> None:
    """The machine has every problem that the checks can find."""
    if shutil.which("shellcheck") is None:
        pytest.skip("shellcheck is not installed")
    write(roots.proc / "sys/kernel/osrelease", "6.1.0-test\n")
    write(roots.modules / "6.1.0-test/modules.dep", "kernel/mlx5_ib.ko: \nkernel/ib_uverbs.ko: \n")
    write(roots.etc / "os-release", "ID=debian\n")
    write(roots.sys / "class/infiniband_verbs/uverbs0/ibdev", "mlx5_0")
    write(roots.sys / "class/infiniband/mlx5_0/ports/1/hw_counters/packet_seq_err", "3")
    write(roots.sys / "class/infiniband/mlx5_0/parent", "eth0")
    for side in ("np", "rp"):
        write(roots.sys / f"class/net/eth0/ecn/roce_{side}/enable/3", "0")
    write(roots.proc / "self/limits", "Max open files  100 100 files\nMax locked memory  1 unlimited bytes\n")
    write(roots.proc / "self/status", "CapEff:\t0\n")
    write(roots.proc / "meminfo", "HugePages_Total: 4\nHugePages_Free: 0\nHugepagesize: 2048 kB\n")
    write(roots.proc / "sys/kernel/yama/ptrace_scope", "1")
    write(roots.proc / "sys/fs/file-nr", "95 0 100")
    write(roots.dev / "infiniband/rdma_cm")
    slot(roots, driver="mlx5_core")
    wrong = device(port(active_mtu=512, gids=(NEARBY,), gid_types=("RoCE v2",)))
    down = device(port(state=PortState.DOWN, gids=()))
    nobody = f"127.0.0.1:{free_port()}"
    found = [
        *kernel.check_modules(roots),
        *adapters.check_adapters(roots),
        *devices.check_nodes(roots, access=lambda path, mode: False),
        *devices.check_device(wrong, roots),
        *devices.check_device(down, roots),
        *network.check_network(wrong, roots),
        *limits.check_limits(roots),
        *settings.check_settings(asked(rdma_device="mlx5_0"), with_device(down), roots),
        *settings.check_settings(asked(rdma_device="other"), with_device(down), roots),
        *peer.check_peer(nobody, Config(), timeout_s=5),
    ]
    file = tmp_path / "fix.sh"
    file.write_text(script(found))
    commands = [line for line in file.read_text().splitlines() if line and not line.startswith("#")]
    assert len(commands) > 12, file.read_text()
    done = subprocess.run(["shellcheck", file], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


# The peer


def test_the_path_to_a_node_is_tested_wire_by_wire(verbena: Run, start_node: Callable[..., str]) -> None:
    """Name, port and MTU are checked, shm and iwarp are measured, and disabled wires are listed with the
    command that tests them."""
    address = start_node()
    done = verbena("doctor", "--json", "--provider", "shm", "--peer", address)
    found = {row["check"]: row for row in json.loads(done.stdout)}
    assert found["peer name"]["verdict"] == "OK"
    assert "connected in" in found[f"TCP to {address}"]["finding"]
    assert int(found["path MTU"]["finding"].split(";")[0]) > 1000
    for wire in ("shm", "iwarp"):
        assert "data verified" in found[f"peer over {wire}"]["finding"]
    assert "VERBENA_NETWORK_RDMA_ENABLED=true" in found["peer over ibv"]["finding"]


def test_a_wire_that_the_peer_lacks_is_a_warning(verbena: Run, start_node: Callable[..., str]) -> None:
    """RDMA without a device is a warning with its reason, and the other wires are still tested."""
    if any(info.name == "ibv" and info.available for info in verbs.providers()):
        pytest.skip("there is an RDMA device here")
    address = start_node()
    flags = ("--network-rdma-enabled", "--network-rdma-fallback", "tcp")
    done = verbena("doctor", "--json", "--provider", "shm", "--peer", address, *flags)
    found = {row["check"]: row for row in json.loads(done.stdout)}
    assert found["peer over ibv"]["verdict"] == "WARN"
    assert found["peer over ibv"]["remedy"]
    assert "data verified" in found["peer over iwarp"]["finding"]


def test_a_closed_port_is_an_error_with_the_firewall_command(verbena: Run) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
    done = verbena("doctor", "--json", "--provider", "shm", "--peer", address, status=1)
    last = json.loads(done.stdout)[-1]
    assert (last["check"], last["verdict"]) == (f"TCP to {address}", "ERROR")
    assert "firewall" in last["reason"]
    assert f"--add-port={address.rpartition(':')[2]}/tcp" in last["remedy"]


def test_an_unknown_host_name_is_an_error() -> None:
    (found,) = peer.check_peer("nobody.invalid:1", Config(), timeout_s=5)
    assert found.verdict is ERROR
    assert "getent hosts nobody.invalid" in found.remedy
