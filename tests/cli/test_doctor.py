"""`verbena doctor`: each verdict with simulated system folders, and a run on this machine."""

import json
import sys
import time
from dataclasses import replace

import pytest
from support.terminal import run_on_terminal

from verbena import testing, verbs
from verbena.cli.checks import devices, kernel, limits, loopback, transfer
from verbena.cli.checks.container import in_container
from verbena.cli.checks.diagnosis import Roots, Verdict
from verbena.errors import EXPLANATIONS, VerbenaError, WcStatus
from verbena.verbs import Gid, PortAttributes, PortState, ProviderInfo

OK, WARN, ERROR = Verdict
COMMAND = [sys.executable, "-m", "verbena"]
RELEASE = "6.1.0-test"
NEARBY = Gid.parse("fe80::1")
ADDRESS = Gid.parse("::ffff:10.0.2.15")


@pytest.fixture
def roots(tmp_path):
    """An empty system: a kernel without RDMA."""
    write(tmp_path / "proc/sys/kernel/osrelease", RELEASE + "\n")
    return Roots(*(tmp_path / name for name in ("sys", "proc", "dev", "modules", "etc", "root")))


def write(path, text=""):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def load(roots, *names):
    write(roots.proc / "modules", "".join(f"{name} 16384 0 - Live 0x0\n" for name in names))


def on_disk(roots, *files):
    write(roots.modules / RELEASE / "modules.dep", "".join(f"kernel/drivers/{file}: \n" for file in files))


def give_device(roots, name="rxe0", interface="eth0"):
    write(roots.sys / f"class/infiniband/{name}/parent", interface + "\n")
    write(roots.sys / "class/infiniband_verbs/uverbs0/ibdev", name + "\n")


def limit(roots, *, memlock="unlimited unlimited", nofile="1024 4096", capabilities="0"):
    write(
        roots.proc / "self/limits",
        f"Limit  Soft Limit  Hard Limit  Units\nMax open files  {nofile}  files\n"
        f"Max locked memory  {memlock}  bytes\n",
    )
    write(roots.proc / "self/status", f"Name:\tpython\nCapEff:\t{capabilities}\n")


def port(**changes):
    good = PortAttributes(PortState.ACTIVE, 1024, 0, "Ethernet", (ADDRESS,), ("RoCE v2",))
    return replace(good, **changes)


def device(*ports, **changes):
    """A RoCE device: the attributes of one that every machine has, changed."""
    known = next(found for found in verbs.devices() if found.name == "shm0").attributes
    roce = replace(known, name="rxe0", provider="ibv", transport="RoCE", numa_node=-1, ports=ports)
    return replace(roce, **changes)


def verdicts(diagnoses):
    return {diagnosis.check: diagnosis.verdict for diagnosis in diagnoses}


def only(diagnoses, words):
    (found,) = [diagnosis for diagnosis in diagnoses if words in diagnosis.check]
    return found


# Kernel modules


@pytest.mark.parametrize(
    "file", ["infiniband/sw/rxe/rdma_rxe.ko", "infiniband/sw/rxe/rdma-rxe.ko.xz", "rdma_rxe.ko.zst"]
)
def test_a_module_on_disk_is_found_with_any_compression(roots, file):
    """modules.dep is parsed with - for _ and with any compression suffix."""
    on_disk(roots, "net/dummy.ko", file)
    assert kernel.module_state("rdma_rxe", roots) is kernel.Module.ON_DISK
    assert kernel.module_state("siw", roots) is kernel.Module.ABSENT


def test_a_module_is_loaded_or_built_in(roots):
    """The state comes from the module list, modules.builtin, or /sys/module in kernels without loadable
    modules."""
    load(roots, "ib_core")
    write(roots.modules / RELEASE / "modules.builtin", "kernel/drivers/infiniband/core/ib_uverbs.ko\n")
    write(roots.sys / "module/rdma_ucm/version")
    assert kernel.module_state("ib_core", roots) is kernel.Module.LOADED
    assert kernel.module_state("ib_uverbs", roots) is kernel.Module.BUILT_IN
    assert kernel.module_state("rdma_ucm", roots) is kernel.Module.BUILT_IN
    assert {diagnosis.verdict for diagnosis in kernel.check_modules(roots)} == {OK}


def test_a_module_that_is_not_loaded_is_a_warning_with_modprobe(roots):
    """Without a device a missing module is not an error."""
    on_disk(roots, "ib_core.ko", "ib_uverbs.ko", "rdma_ucm.ko")
    found = only(kernel.check_modules(roots), "ib_uverbs")
    assert (found.verdict, found.remedy) == (WARN, "sudo modprobe ib_uverbs")


def test_a_device_without_uverbs_is_an_error(roots):
    """Without ib_uverbs no program can use the device."""
    give_device(roots)
    on_disk(roots, "ib_uverbs.ko")
    load(roots, "ib_core", "rdma_ucm")
    found = kernel.check_modules(roots)
    assert only(found, "ib_uverbs").verdict is ERROR
    assert only(found, "ib_core").verdict is OK


@pytest.mark.parametrize(
    ("release", "command"),
    [
        ("ID=debian\n", 'sudo apt install "linux-image-'),
        ("ID=ubuntu\nID_LIKE=debian\n", 'sudo apt install "linux-modules-extra-'),
        ('ID_LIKE="ubuntu debian"\nID=linuxmint\n', 'sudo apt install "linux-modules-extra-'),
        ('ID="rocky"\nID_LIKE="rhel centos fedora"\n', "sudo dnf install"),
        ("ID=other\n", "install the distribution's full kernel"),
        ("", "install the distribution's full kernel"),
    ],
)
def test_a_missing_module_has_the_distributions_command(roots, release, command):
    """The remedy is the command of this distribution, or a general instruction."""
    write(roots.etc / "os-release", release)
    found = only(kernel.check_modules(roots), "ib_core")
    assert found.verdict is WARN
    assert found.remedy.startswith(command)


# Software devices


def with_interfaces(roots):
    for name, state in {"lo": "unknown", "dummy0": "down", "eth0": "up"}.items():
        write(roots.sys / f"class/net/{name}/operstate", state + "\n")
    write(roots.sys / "class/net/bonding_masters")


def test_the_command_that_creates_a_software_device(roots):
    """It uses the interface that is up, and loads the module first if necessary."""
    with_interfaces(roots)
    load(roots, "rdma_rxe")
    on_disk(roots, "siw.ko")
    found = kernel.check_software_device(roots, which=lambda name: f"/sbin/{name}")
    assert found.verdict is OK
    assert "one on eth0: sudo rdma link add rxe0 type rxe netdev eth0" in found.finding
    assert "sudo modprobe siw && sudo rdma link add siw0 type siw netdev eth0" in found.finding


def test_why_no_software_device_can_be_created(roots):
    """The tool, an interface or the module is missing; the loopback interface does not count."""
    give_device(roots, "mlx5_0")
    write(roots.etc / "os-release", "ID=debian\n")

    def why(which):
        found = kernel.check_software_device(roots, which=which)
        assert found.verdict is OK
        return found.finding

    assert why(str) == "none: rdma_rxe and siw are not in this kernel"
    load(roots, "rdma_rxe")
    assert why(lambda name: None) == "none: the tool `rdma` is not installed (sudo apt install iproute2)"
    assert "there is no network interface" in why(str)


def test_an_existing_software_device_is_listed(roots):
    """The finding contains the interface of the device."""
    give_device(roots)
    assert kernel.check_software_device(roots).finding == "rxe0 on eth0"


# Devices and their nodes

ABSENT = ProviderInfo("ibv", False, "No RDMA devices found: the kernel has none", [])
PRESENT = ProviderInfo("ibv", True, "", [])


def test_no_device_is_one_warning_with_its_remedy(roots):
    """A machine without RDMA hardware is not an error. The remedy is what this machine can do."""
    assert not devices.has_device(roots)
    write(roots.etc / "os-release", "ID=debian\n")
    found = devices.check_absence(roots, which=str)
    assert found.verdict is WARN
    assert found.finding.startswith("none: sessions use shared memory, TCP and QUIC")
    assert found.remedy.startswith("sudo apt install")
    with_interfaces(roots)
    load(roots, "rdma_rxe")
    found = devices.check_absence(roots, which=str)
    assert found.remedy.startswith("sudo rdma link add rxe0 type rxe netdev eth0")
    assert "iproute2" in devices.check_absence(roots, which=lambda name: None).remedy


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("root/.dockerenv", ""),
        ("root/run/.containerenv", ""),
        ("proc/1/cgroup", "0::/kubepods.slice/x\n"),
        ("proc/1/sched", "init (1234, #threads: 1)\n"),
    ],
)
def test_in_a_container_no_remedy_is_a_reboot_or_a_module(roots, tmp_path, file, text):
    """The kernel is that of the host, so its changes are made there."""
    write(tmp_path / file, text)
    assert in_container(roots)
    assert "--device /dev/infiniband" in devices.check_absence(roots).remedy
    write(roots.proc / "sys/kernel/yama/ptrace_scope", "3")
    on_disk(roots, "ib_core.ko")
    found = [*kernel.check_modules(roots), limits.check_process_vm(roots), devices.check_absence(roots)]
    assert not [diagnosis for diagnosis in found if "reboot" in diagnosis.remedy]
    assert only(found, "ib_core").remedy == "on the host: sudo modprobe ib_core"


def test_a_machine_is_no_container(roots):
    """Process 1 of a machine has the number 1, and a cgroup without a container's name."""
    write(roots.proc / "1/cgroup", "0::/init.scope\n")
    write(roots.proc / "1/sched", "systemd (1, #threads: 1)\n")
    assert not in_container(roots)


def test_a_device_that_the_provider_cannot_use_is_an_error(roots):
    """The kernel lists the device and the library does not."""
    give_device(roots)
    found = devices.check_devices(replace(ABSENT, reason="libibverbs is not installed"), roots)
    assert (found.verdict, found.reason) == (ERROR, "libibverbs is not installed")
    assert devices.check_devices(PRESENT, roots).verdict is OK


def test_a_device_without_its_node_is_an_error(roots):
    """A container without --device has the device and no node."""
    give_device(roots)
    found = devices.check_nodes(roots)
    assert verdicts(found) == {"/dev/infiniband/uverbs0": ERROR, "/dev/infiniband/rdma_cm": WARN}
    assert "--device /dev/infiniband" in found[0].remedy


def test_accessible_nodes_are_ok(roots):
    """Nodes that Verbena does not open are ignored."""
    give_device(roots)
    for name in ("uverbs0", "rdma_cm", "umad0"):
        write(roots.dev / "infiniband" / name)
    assert set(verdicts(devices.check_nodes(roots, access=lambda path, mode: True)).values()) == {OK}


def test_an_inaccessible_node_is_an_error_with_chmod(roots):
    """The reason contains mode, owner and group."""
    give_device(roots)
    write(roots.dev / "infiniband/uverbs0")
    (roots.dev / "infiniband/uverbs0").chmod(0o600)
    found = devices.check_nodes(roots, access=lambda path, mode: False)[0]
    assert (found.verdict, found.remedy) == (ERROR, "sudo chmod 666 /dev/infiniband/uverbs0")
    assert "-rw-------" in found.reason


# Ports, GIDs, NUMA


def test_an_active_port_shows_state_mtu_gids_and_numa_node(roots):
    """Each fact has its own line."""
    give_device(roots)
    found = devices.check_device(device(port()), roots)
    assert {diagnosis.verdict for diagnosis in found} == {OK}
    assert only(found, "port 1").finding == "ACTIVE, Ethernet, MTU 1024, on eth0"
    assert only(found, "GIDs 1").finding == f"0: {ADDRESS} RoCE v2"
    assert only(found, "NUMA").finding == ("none; buffers on any node (this machine has one NUMA node)")


def test_a_port_that_is_down_is_an_error_if_it_is_the_only_one(roots):
    """A second port that is down is a warning. The command names the interface."""
    give_device(roots)
    down = port(state=PortState.DOWN)
    alone = only(devices.check_device(device(down), roots), "port 1")
    assert alone.verdict is ERROR
    assert alone.remedy.startswith("sudo ip link set eth0 up\n")
    assert EXPLANATIONS["port_down"].remedy in alone.remedy
    spare = devices.check_device(device(port(), down), roots)
    assert (only(spare, "port 1").verdict, only(spare, "port 2").verdict) == (OK, WARN)


def test_an_infiniband_port_in_init_needs_a_subnet_manager(roots):
    """The remedy starts opensm."""
    waiting = port(state=PortState.INIT, link_layer="InfiniBand")
    assert "opensm" in devices.check_device(device(waiting), roots)[0].remedy


def test_a_small_mtu_is_a_warning(roots):
    """The command raises the MTU of the interface."""
    give_device(roots)
    found = only(devices.check_device(device(port(active_mtu=256)), roots), "port 1")
    assert found.verdict is WARN
    assert found.remedy.startswith("sudo ip link set eth0 mtu 1500")


@pytest.mark.parametrize(
    ("gids", "types", "verdict"),
    [
        ((), (), ERROR),
        ((Gid(bytes(16)),), ("",), ERROR),
        ((NEARBY,), ("RoCE v2",), WARN),
        ((NEARBY, ADDRESS), ("RoCE v1", "RoCE v1"), WARN),
        ((NEARBY, Gid(bytes(16)), ADDRESS), ("RoCE v2", "", "RoCE v2"), OK),
    ],
)
def test_the_gid_table_needs_a_routable_entry(roots, gids, types, verdict):
    """An empty table is an ERROR; link-local entries only, or no RoCE v2 entry, is a WARN."""
    found = only(devices.check_device(device(port(gids=gids, gid_types=types)), roots), "GIDs")
    assert found.verdict is verdict
    assert bool(found.remedy) is (verdict is not OK)


def test_an_iwarp_device_needs_no_gid(roots):
    """iWARP connections use TCP addresses."""
    found = devices.check_device(device(port(gids=(), gid_types=()), transport="iWARP"), roots)
    assert {diagnosis.verdict for diagnosis in found} == {OK}


def test_a_process_on_another_numa_node_is_a_warning(roots):
    """The cores of the process are compared with those of the device's NUMA node."""
    write(roots.sys / "devices/system/node/online", "0-1\n")
    write(roots.sys / "devices/system/node/node1/cpulist", "8-11,20\n")
    far = only(devices.check_device(device(port(), numa_node=1), roots, cores={0, 1}), "NUMA")
    assert (far.verdict, far.remedy) == (WARN, "numactl --cpunodebind=1 COMMAND")
    near = only(devices.check_device(device(port(), numa_node=1), roots, cores={20}), "NUMA")
    assert (near.verdict, near.finding) == (OK, "1; buffers on node 1")


@pytest.mark.parametrize(("windows", "verdict"), [("type 2B", OK), ("none: a registration replaces", WARN)])
def test_a_device_without_memory_windows_is_a_warning(roots, windows, verdict):
    """Without them, memory lent to one session is not protected from the others."""
    equipped = device(port(), capabilities={"memory_windows": windows})
    found = only(devices.check_device(equipped, roots), "memory windows")
    assert (found.verdict, found.finding) == (verdict, windows.partition(":")[0])


def test_a_device_that_does_not_open_is_an_error(roots):
    """The reason is the provider's."""
    (found,) = devices.check_device(device(reason="it does not open"), roots)
    assert (found.verdict, found.reason) == (ERROR, "it does not open")


# Limits


@pytest.mark.parametrize("memlock", ["unlimited unlimited", "1073741824 unlimited"])
def test_enough_locked_memory_is_ok(roots, memlock):
    """An unlimited or high limit is OK."""
    limit(roots, memlock=memlock)
    assert limits.check_memlock(roots).verdict is OK


def test_a_low_memlock_limit_is_a_warning_with_a_remedy(roots):
    """The remedy contains the ulimit command if the hard limit allows it."""
    limit(roots, memlock="65536 65536")
    found = limits.check_memlock(roots)
    assert found.verdict is WARN
    assert "64 KiB" in found.finding
    assert "* soft memlock unlimited\\n* hard memlock unlimited\\n' | sudo tee /etc/security/" in found.remedy
    assert "(this shell)" not in found.remedy
    assert EXPLANATIONS["memlock"].remedy in found.remedy
    limit(roots, memlock="65536 unlimited")
    assert limits.check_memlock(roots).remedy.startswith("ulimit -l unlimited     (this shell)\n")


def test_a_service_notes_a_low_memlock_limit_if_it_uses_devices(roots):
    """Wires without devices lock nothing."""
    limit(roots, memlock="65536 65536")
    assert "may lock 64 KiB" in limits.memlock_note(["shm", "ibv"], roots)
    assert limits.memlock_note(["shm", "iwarp"], roots) == ""
    limit(roots, memlock="unlimited unlimited")
    assert limits.memlock_note(["ibv"], roots) == ""


def test_a_capability_lifts_the_limit_of_locked_memory(roots):
    """CAP_IPC_LOCK is bit 14."""
    limit(roots, memlock="65536 65536", capabilities=f"{1 << 14:016x}")
    assert limits.check_memlock(roots).verdict is OK


@pytest.mark.parametrize(("total", "free", "verdict"), [(0, 0, OK), (8, 3, OK), (8, 0, WARN)])
def test_huge_pages_are_a_warning_only_if_all_are_in_use(roots, total, free, verdict):
    """No reserved huge page is OK."""
    write(
        roots.proc / "meminfo",
        f"MemTotal: 1 kB\nHugePages_Total: {total}\nHugePages_Free: {free}\nHugepagesize: 2048 kB\n",
    )
    found = limits.check_huge_pages(roots)
    assert found.verdict is verdict
    if verdict is WARN:
        assert found.remedy.startswith("sudo sysctl -w vm.nr_hugepages=16\n")


def test_a_kernel_without_huge_pages_is_ok(roots):
    """They are optional."""
    assert limits.check_huge_pages(roots).verdict is OK


@pytest.mark.parametrize(
    ("scope", "capabilities", "verdict"),
    [("", 0, OK), ("0", 0, OK), ("1", 0, WARN), ("2", 0, WARN), ("2", 1 << 19, OK), ("3", 1 << 19, WARN)],
)
def test_ptrace_restrictions_are_a_warning(roots, scope, capabilities, verdict):
    """CAP_SYS_PTRACE lifts them, except with scope 3."""
    limit(roots, capabilities=f"{capabilities:x}")
    if scope:
        write(roots.proc / "sys/kernel/yama/ptrace_scope", scope + "\n")
    found = limits.check_process_vm(roots)
    assert found.verdict is verdict
    if verdict is WARN:
        assert f"ptrace_scope is {scope}" in found.finding
        assert "kernel.yama.ptrace_scope=0" in found.remedy


@pytest.mark.parametrize(
    ("nofile", "verdict", "remedy"),
    [
        ("1024 4096", OK, ""),
        ("unlimited unlimited", OK, ""),
        ("64 4096", WARN, "ulimit -n 4096 "),
        ("64 unlimited", WARN, "ulimit -n 65536 "),
        ("64 64", WARN, "printf '* soft nofile 65536"),
    ],
)
def test_few_descriptors_are_a_warning(roots, nofile, verdict, remedy):
    """The remedy is the ulimit command if the hard limit allows it, else lines of limits.d."""
    limit(roots, nofile=nofile)
    found = limits.check_descriptors(roots)
    assert found.verdict is verdict
    assert found.remedy.startswith(remedy)


@pytest.mark.parametrize(("used", "verdict"), [(100, OK), (950, WARN)])
def test_a_system_that_runs_out_of_files_is_a_warning(roots, used, verdict):
    """The numbers come from fs.file-nr."""
    write(roots.proc / "sys/fs/file-nr", f"{used}\t0\t1000\n")
    assert limits.check_open_files(roots).verdict is verdict


def test_limits_that_cannot_be_read_are_warnings(roots):
    """An empty /proc raises no exception."""
    found = verdicts(limits.check_limits(roots))
    assert {check for check, verdict in found.items() if verdict is WARN} == {
        "locked memory",
        "file descriptors",
        "open files",
    }


# Transfers


@pytest.mark.parametrize("name", ["shm", "fake"])
def test_a_transfer_runs_every_operation(name):
    """Each operation has its time."""
    times, counts = loopback.transfer(name, timeout_s=10)
    assert counts == {}  # these wires count nothing of their own
    assert list(times) == ["WRITE", "READ", "SEND", "FETCH_ADD"]
    assert all(spent > 0 for spent in times.values())


@pytest.mark.parametrize("opcode", [verbs.Opcode.WRITE, verbs.Opcode.READ, verbs.Opcode.SEND])
def test_corrupted_bytes_are_detected(opcode):
    """The bytes are compared even if the completion has status SUCCESS."""
    plan = testing.FaultPlan()
    plan.add("corrupt", opcode=opcode)
    with testing.faulty("shm", plan) as context, pytest.raises(VerbenaError, match="1 of 16384 bytes differ"):
        loopback.exchange(context, timeout_s=10)


def test_a_failed_operation_has_its_status():
    """The error is the one that a program would get."""
    plan = testing.FaultPlan()
    plan.add("fail", opcode=verbs.Opcode.READ, status=WcStatus.RETRY_EXC_ERR)
    with testing.faulty("shm", plan) as context, pytest.raises(VerbenaError) as caught:
        loopback.exchange(context, timeout_s=10)
    assert caught.value.status is WcStatus.RETRY_EXC_ERR


def test_a_transfer_that_fails_is_an_error_with_its_explanation():
    """The explanation survives the transfer from the other process."""
    found = transfer.check_transfer("shm:nonsense", timeout_s=10)
    assert found.verdict is ERROR
    assert "nonsense" in found.finding
    assert "[no_device]" in found.finding
    assert found.remedy == EXPLANATIONS["no_device"].remedy


def python(program):
    return [sys.executable, "-c", program]


@pytest.mark.alone
def test_a_transfer_that_hangs_is_killed(monkeypatch, nothing_left_behind):
    """The diagnosis is an ERROR, and no process remains."""
    monkeypatch.setattr(transfer, "KILL_S", 0.3)
    start = time.monotonic()
    program = "import signal; signal.signal(15, signal.SIG_IGN); signal.pause()"
    found = transfer.check_transfer("shm:shm0", timeout_s=0.1, program=python(program))
    assert time.monotonic() - start < 5
    assert found.verdict is ERROR
    assert "no result after 0.1 s" in found.finding
    assert found.remedy == EXPLANATIONS["RESP_TIMEOUT_ERR"].remedy


@pytest.mark.parametrize(
    ("program", "words"),
    [
        ("import os; os.kill(os.getpid(), 9)", "SIGKILL"),
        ("raise SystemExit('no such thing')", "no such thing"),
    ],
)
def test_a_transfer_that_crashes_is_an_error(program, words):
    """The report continues after the crash."""
    found = transfer.check_transfer("shm:shm0", timeout_s=10, program=python(program))
    assert found.verdict is ERROR
    assert words in found.finding
    assert found.remedy


def test_a_transfer_that_cannot_be_started_is_an_error():
    """The interpreter cannot be executed."""
    found = transfer.check_transfer("shm:shm0", timeout_s=10, program=["/nonexistent/python"])
    assert found.verdict is ERROR
    assert "/nonexistent/python" in found.finding


def test_an_absent_provider_is_an_error_only_if_requested():
    """Otherwise it is a warning; the kernel's devices have a line of their own."""
    other = replace(ABSENT, name="quic")
    checks = transfer.check_transfers
    assert verdicts(checks([ABSENT, other], timeout_s=1)) == {"transfer quic": WARN}
    assert verdicts(checks([ABSENT, other], only="ibv", timeout_s=1)) == {"transfer ibv": ERROR}


# The command


def test_the_doctor_checks_this_machine(verbena, nothing_left_behind):
    """Every check has a line, every transfer works, and the output has no colours."""
    out = verbena("doctor").stdout
    for words in ("RDMA device", "locked memory", "huge pages", "process_vm_readv"):
        assert words in out
    assert "transfer shm:shm0" in out
    assert "transfer fake:fake0" in out
    assert "data verified" in out
    assert "0 ERROR" in out
    assert "\x1b" not in out


def test_the_doctor_says_once_that_there_is_no_device(verbena):
    """Modules, nodes and devices are one fact then, and no remedy in a container is a reboot."""
    if devices.has_device(Roots()):
        pytest.skip("this machine has an RDMA device")
    rows = json.loads(verbena("doctor", "--json", "--provider", "fake").stdout)
    about = [row for row in rows if "module" in row["check"] or "infiniband" in row["check"]]
    assert not about
    assert len([row for row in rows if "device" in row["check"] or row["check"].startswith("adapter")]) == 1
    if in_container(Roots()):
        assert not [row for row in rows if "reboot" in row["remedy"]]


def test_json_contains_every_diagnosis(verbena):
    """Each object has five fields; a diagnosis that is not OK has a remedy."""
    rows = json.loads(verbena("doctor", "--json").stdout)
    assert all(list(row) == ["check", "verdict", "finding", "reason", "remedy"] for row in rows)
    assert {row["verdict"] for row in rows} <= {"OK", "WARN", "ERROR"}
    assert all(row["finding"] for row in rows)
    assert all(row["remedy"] for row in rows if row["verdict"] != "OK")


@pytest.mark.parametrize("name", ["shm", "fake:fake0"])
def test_provider_restricts_the_transfers(verbena, name):
    """--provider accepts a provider or one device; the other checks still run."""
    rows = json.loads(verbena("doctor", "--json", "--provider", name).stdout)
    transfers = [row["check"] for row in rows if row["check"].startswith("transfer")]
    assert len(transfers) == 1
    assert name in transfers[0]
    assert len(rows) > 5


def test_an_error_is_exit_status_1(verbena):
    """A device that does not exist is an ERROR."""
    out = verbena("doctor", "--provider", "shm:nonsense", status=1).stdout
    assert "ERROR  transfer shm:nonsense" in out
    assert "remedy" in out


def test_an_unknown_provider_is_rejected(verbena):
    """The command exits before any check runs."""
    done = verbena("doctor", "--provider", "carrier-pigeon", status=1)
    assert "carrier-pigeon" in done.stderr
    assert not done.stdout


def test_a_terminal_gets_colours():
    """NO_COLOR disables colours."""
    assert b"\x1b[32mOK" in _on_a_terminal({})
    assert b"\x1b" not in _on_a_terminal({"NO_COLOR": "1"})


def _on_a_terminal(environment):
    return run_on_terminal(
        [*COMMAND, "doctor", "--provider", "fake"], environment={"NO_COLOR": "", **environment}
    )
