"""PCI adapters that support RDMA, and whether the kernel has an RDMA device for each."""

from __future__ import annotations

from pathlib import Path

from verbena.cli.checks.container import on_host
from verbena.cli.checks.diagnosis import Diagnosis, Roots, names_in, ok, text_of, warn
from verbena.cli.checks.kernel import Module, kernel_remedy, module_state

# The adapter's driver, and the module that adds RDMA to it.
RDMA_MODULES = {
    "mlx5_core": "mlx5_ib",
    "mlx4_core": "mlx4_ib",
    "cxgb4": "iw_cxgb4",
    "bnxt_en": "bnxt_re",
    "ice": "irdma",
    "i40e": "irdma",
    "qede": "qedr",
    "hns3": "hns_roce_hw_v2",
    "efa": "efa",
    "hfi1": "hfi1",
}
# Driver to load, by vendor, for an adapter without a driver.
VENDORS = {"0x15b3": "mlx5_core", "0x1425": "cxgb4"}
INFINIBAND_CLASS = "0x0207"


def check_adapters(roots: Roots) -> list[Diagnosis]:
    """Returns one diagnosis for each known adapter; an empty list if there is none."""
    folder = roots.sys / "bus/pci/devices"
    return [found for name in names_in(folder) if (found := _adapter(folder / name, roots)) is not None]


def _adapter(slot: Path, roots: Roots) -> Diagnosis | None:
    driver = (slot / "driver").resolve().name if (slot / "driver").is_symlink() else ""
    vendor = text_of(slot / "vendor")
    check = f"adapter {slot.name}"
    what = f"PCI {vendor.removeprefix('0x')}:{text_of(slot / 'device').removeprefix('0x')}"
    devices = names_in(slot / "infiniband")
    if devices:
        return ok(check, f"{what}, driver {driver or 'unknown'}: {', '.join(devices)}")
    if driver in RDMA_MODULES:
        module = RDMA_MODULES[driver]
        state = module_state(module, roots)
        if state.usable:
            why = "RDMA is disabled in the firmware or driver, or the driver failed"
            finding = f"{what}, drivers {driver} and {module}, but no RDMA device"
            return warn(check, finding, reason=why, remedy=f"sudo dmesg | grep -e {driver} -e {module}")
        remedy = (
            on_host(f"sudo modprobe {module}", roots) if state is Module.ON_DISK else kernel_remedy(roots)
        )
        finding = f"{what}, driver {driver}, but no RDMA device: {module} is {state.value}"
        return warn(check, finding, reason=f"{module} adds RDMA to {driver}", remedy=remedy)
    if driver or not (vendor in VENDORS or text_of(slot / "class").startswith(INFINIBAND_CLASS)):
        return None
    module = VENDORS.get(vendor, "")
    near = bool(module) and module_state(module, roots) is not Module.ABSENT
    remedy = on_host(f"sudo modprobe {module}", roots) if near else kernel_remedy(roots)
    return warn(check, f"{what}: no driver", reason="no loaded driver supports the adapter", remedy=remedy)
