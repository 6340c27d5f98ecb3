"""Checks of the kernel's RDMA modules, and of the software devices (rxe, siw) that need some of them."""

from __future__ import annotations

import enum
import re
import shutil
from collections.abc import Callable, Mapping

from verbena.cli.checks.container import in_container, on_host
from verbena.cli.checks.diagnosis import Diagnosis, Roots, error, names_in, ok, text_of, warn

# The command that installs RDMA modules, by the ID in os-release. Debian's cloud kernels have no RDMA
# modules; its regular kernels do.
KERNELS = {
    "debian": 'sudo apt install "linux-image-$(dpkg --print-architecture)" && sudo reboot',
    "ubuntu": 'sudo apt install "linux-modules-extra-$(uname -r)"',
    "fedora": "sudo dnf install kernel-modules kernel-modules-extra && sudo reboot",
}
ANY_KERNEL = "install the distribution's full kernel package (not a cloud or minimal one) and reboot"
HOST_KERNEL = "on the host: install a kernel with RDMA modules; a container uses the kernel of its host"
RDMA_TOOLS = {"debian": "sudo apt install iproute2", "fedora": "sudo dnf install iproute"}
RDMA_TOOLS["ubuntu"] = RDMA_TOOLS["debian"]
ANY_RDMA_TOOL = "install the package iproute2, which contains the tool"

# The purpose of each module; hardware wires need all of them.
NEEDED = {
    "ib_core": "the kernel's RDMA core",
    "ib_uverbs": "the device nodes /dev/infiniband/uverbs*",
    "rdma_ucm": "/dev/infiniband/rdma_cm to connect by address",
}
SOFTWARE = {"rdma_rxe": ("rxe", "RoCE"), "siw": ("siw", "iWARP")}


class Module(enum.Enum):
    """Whether a kernel module is loaded, built in, on disk or absent."""

    LOADED = "loaded"
    BUILT_IN = "built into the kernel"
    ON_DISK = "on disk, not loaded"
    ABSENT = "not in this kernel"

    @property
    def usable(self) -> bool:
        return self in (Module.LOADED, Module.BUILT_IN)


def module_state(name: str, roots: Roots) -> Module:
    """Returns a module's state; the kernel's own list takes precedence over files on disk."""
    listed = {line.partition(" ")[0] for line in text_of(roots.proc / "modules").splitlines()}
    if name in listed:
        return Module.LOADED
    folder = roots.modules / text_of(roots.proc / "sys/kernel/osrelease")
    if name in _file_names(text_of(folder / "modules.builtin")):
        return Module.BUILT_IN
    if (roots.sys / "module" / name).is_dir():  # also correct for kernels without loadable modules
        return Module.BUILT_IN
    return Module.ON_DISK if name in _file_names(text_of(folder / "modules.dep")) else Module.ABSENT


def check_modules(roots: Roots) -> list[Diagnosis]:
    """Returns one diagnosis per module. ERROR only if ib_uverbs is not loaded although an RDMA device
    exists."""
    has_device = bool(names_in(roots.sys / "class/infiniband"))
    found = [_needed(name, use, roots, has_device) for name, use in NEEDED.items()]
    for name, (_, wire) in SOFTWARE.items():
        use = f"optional, for {wire} on any network interface"
        found.append(ok(f"module {name}", f"{module_state(name, roots).value} ({use})"))
    return found


def check_software_device(roots: Roots, *, which: Callable[[str], str | None] = shutil.which) -> Diagnosis:
    """Lists the software devices, or names the command that creates one, or why none can be created."""
    check = "software device"
    devices = roots.sys / "class/infiniband"
    kinds = tuple(kind for kind, _ in SOFTWARE.values())
    made = [name for name in names_in(devices) if name.startswith(kinds)]
    if made:
        on = [f"{name} on {text_of(devices / name / 'parent') or 'an interface'}" for name in made]
        return ok(check, ", ".join(on))
    interface, words = software_device(roots, which=which)
    return ok(check, f"none; to create one on {interface}: {words}" if interface else f"none: {words}")


def software_device(roots: Roots, *, which: Callable[[str], str | None] = shutil.which) -> tuple[str, str]:
    """Returns the interface for a software device and the command that creates it; ("", why) if none can be
    created."""
    states = {module: module_state(module, roots) for module in SOFTWARE}
    near = [module for module, state in states.items() if state is not Module.ABSENT]
    interface = _interface(roots)
    if not near:
        return "", f"{' and '.join(SOFTWARE)} are not in this kernel"
    if not which("rdma"):
        return "", f"the tool `rdma` is not installed ({rdma_tool_remedy(roots)})"
    if not interface:
        return "", "there is no network interface (sudo ip link add dummy0 type dummy)"
    return interface, " or ".join(_create_command(module, states[module], interface) for module in near)


def rdma_tool_remedy(roots: Roots) -> str:
    """Returns the command that installs the tool `rdma`."""
    return _for_distribution(RDMA_TOOLS, ANY_RDMA_TOOL, roots)


def _create_command(module: str, state: Module, interface: str) -> str:
    kind, _ = SOFTWARE[module]
    load = "" if state.usable else f"sudo modprobe {module} && "
    return f"{load}sudo rdma link add {kind}0 type {kind} netdev {interface}"


def _needed(name: str, use: str, roots: Roots, has_device: bool) -> Diagnosis:
    check, state = f"module {name}", module_state(name, roots)
    if state.usable:
        return ok(check, state.value)
    remedy = on_host(f"sudo modprobe {name}", roots) if state is Module.ON_DISK else kernel_remedy(roots)
    if has_device and name == "ib_uverbs":
        return error(check, state.value, reason=f"an RDMA device exists and needs {use}", remedy=remedy)
    return warn(check, state.value, reason=f"hardware wires need {use}", remedy=remedy)


def kernel_remedy(roots: Roots) -> str:
    """Returns the command that installs a kernel with RDMA modules. A container uses the host's kernel."""
    if in_container(roots):
        return HOST_KERNEL
    return _for_distribution(KERNELS, ANY_KERNEL, roots)


def _for_distribution(commands: Mapping[str, str], otherwise: str, roots: Roots) -> str:
    """Returns the command for this distribution or, failing that, for one in its ID_LIKE."""
    release = text_of(roots.etc / "os-release")
    lines = re.findall(r'^ID(?:_LIKE)?="?([^"\n]*)', release, flags=re.MULTILINE)
    own_first = re.findall(r'^ID="?([^"\n]*)', release, flags=re.MULTILINE) + " ".join(lines).split()
    return next((commands[name] for name in own_first if name in commands), otherwise)


def _interface(roots: Roots) -> str:
    """Returns the best interface for RDMA: preferably one that is up and has a device."""
    net = roots.sys / "class/net"
    names = [name for name in names_in(net) if name != "lo" and (net / name).is_dir()]

    def unlikely(name: str) -> tuple[bool, bool]:
        return text_of(net / name / "operstate") != "up", not (net / name / "device").exists()

    return min(names, key=unlikely, default="")


def _file_names(listing: str) -> set[str]:
    """Returns the module names in modules.dep or modules.builtin, with "-" replaced by "_"."""
    found = re.findall(r"^(?:[^\s:]*/)?([^/\s:]+)\.ko", listing, flags=re.MULTILINE)
    return {name.replace("-", "_") for name in found}
