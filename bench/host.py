"""What the host of a virtual machine takes away from it, so that it is not taken for what is measured."""


def stolen_ticks() -> int:
    """Ticks of 10 ms for which processors had work and were not there, as the kernel counts them."""
    with open("/proc/stat", encoding="ascii") as lines:
        return int(lines.readline().split()[8])
