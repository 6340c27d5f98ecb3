"""Limits, devices, optional packages and the configuration of this machine."""

from __future__ import annotations

from verbena.errors.classes import BusyError, ConfigurationError, RegistrationError, UnavailableError
from verbena.errors.explanation import Explanation

ROWS = (
    Explanation(
        "memlock",
        RegistrationError,
        what="the memory could not be locked: RLIMIT_MEMLOCK is {memlock_soft} (hard limit {memlock_hard})",
        causes=(
            "the limit is too low for this region: the process already has {locked} locked and {pinned}"
            " pinned",
            "the container or cgroup has too little memory to pin this region",
        ),
        remedy="raise the limit: `ulimit -l unlimited` in a shell, `LimitMEMLOCK=infinity` in a systemd unit,"
        " `memlock` lines in /etc/security/limits.d for logins,"
        " `--ulimit memlock=-1 --cap-add IPC_LOCK` for docker; or register less memory",
        checks=(
            "`ulimit -l` prints a number: raise it; a service has the limit of its unit, which may differ"
            " from the limit of your shell",
            "`ulimit -l` prints `unlimited`: the limit is the cgroup's, see `cat /sys/fs/cgroup/memory.max`",
        ),
    ),
    Explanation(
        "huge_pages",
        RegistrationError,
        what="no huge page is free",
        causes=(
            "{huge_free} of {huge_total} huge pages of {huge_size} are free, and the arena needs more",
            "the cgroup's hugetlb limit is reached",
        ),
        remedy="reserve more with `sysctl -w vm.nr_hugepages=N`, at boot if possible, or set"
        " `network.rdma.huge_pages = false`",
    ),
    Explanation(
        "fd_limit",
        BusyError,
        what="no file descriptor is left: RLIMIT_NOFILE is {nofile_soft} (hard limit {nofile_hard})",
        causes=(
            "too many connections, arenas and armed completion queues are open: each holds descriptors",
            "the program drops objects without closing them",
        ),
        remedy="close idle objects, or raise the limit: `ulimit -n N` in a shell, `LimitNOFILE=N` in a"
        " systemd unit, `--ulimit nofile=N` for docker",
    ),
    Explanation(
        "no_device",
        UnavailableError,
        what="this machine has no such RDMA device",
        causes=(
            "this machine has no RDMA device",
            "the device's driver is not loaded (mlx5_ib, irdma, bnxt_re, rdma_rxe, siw …)",
            "the device's name is misspelt or has changed",
            "the container has no access to /dev/infiniband",
        ),
        remedy="list the usable devices with `verbena devices`; load the driver with `modprobe`, start the"
        " container with `--device /dev/infiniband`, or use a software wire: shm, iwarp or quic",
        checks=(
            "`ls /sys/class/infiniband` is empty and `lspci | grep -iE 'mellanox|infiniband|ethernet'` shows"
            " no RDMA adapter: the machine has none",
            "`lspci` shows the adapter and `lsmod | grep -E 'mlx5_ib|irdma|bnxt_re'` prints nothing: load its"
            " driver",
            "`rdma link` lists a device with another name: use that name, or `auto`",
            "`rdma link` lists the device on the host and not in the container: pass /dev/infiniband to the"
            " container",
        ),
    ),
    Explanation(
        "port_down",
        UnavailableError,
        what="the device's port is not ACTIVE",
        causes=(
            "the cable is unplugged, or the network interface of the device is down",
            "InfiniBand: no subnet manager runs, so the port stays in INIT",
            "the port number is wrong",
        ),
        remedy="read `rdma link` and `ip link`; bring the interface up with `ip link set DEV up`; on"
        " InfiniBand start a subnet manager (opensm)",
        checks=(
            "`ip link` shows NO-CARRIER: check the cable and the other end",
            "`ip link` shows DOWN: bring the interface up",
            "`rdma link` shows INIT on InfiniBand: start a subnet manager",
            "`rdma link` shows another port as ACTIVE: set `network.rdma_port` to its number",
        ),
    ),
    Explanation(
        "no_gid",
        UnavailableError,
        what="the port has no usable GID at that index",
        causes=(
            "the GID index is wrong for the address family or RoCE version",
            "RoCE: the network interface has no IP address, so the GID table has no entry for one",
        ),
        remedy="choose an index from `verbena devices -v` (a RoCE v2 entry for RoCE v2) and set"
        " `network.rdma_gid_index`, or set it to -1 to select one automatically; if the table is empty, give"
        " the interface an IP address",
        checks=(
            "`verbena devices -v` lists the GID entries with their types: check that the index exists and is"
            " RoCE v2",
            "`ip address` shows no address on the device's interface: add one, and the GID entry appears",
        ),
    ),
    Explanation(
        "provider_missing",
        UnavailableError,
        what="the provider cannot be used here",
        causes=(
            "a library that it loads at run time is not installed (libibverbs and librdmacm for ibv)",
            "this build of Verbena was compiled without the provider",
            "the operating system lacks a feature that the provider needs",
        ),
        remedy="run `verbena doctor`, which names the missing part; install it (Debian: libibverbs1 and"
        " librdmacm1 for ibv) or choose another provider",
    ),
    Explanation(
        "numpy_missing",
        UnavailableError,
        what="numpy is needed, and is not installed",
        causes=("Verbena was installed without the numpy extra",),
        remedy="run `pip install numpy`",
    ),
    Explanation(
        "package_missing",
        UnavailableError,
        what="an optional package is not installed",
        causes=("the program uses a codec or an array type that needs the package in the detail",),
        remedy="install the package that the detail names with pip",
    ),
    Explanation(
        "bad_configuration",
        ConfigurationError,
        what="the configuration is not valid",
        causes=(
            "a key or section is misspelt, or a key is in the wrong section",
            "a value has the wrong type, is outside its range, or contradicts another value",
            "the file is not valid TOML: a size such as 1GB must be in quotes, a switch is true or false",
        ),
        remedy="correct the listed problems; `verbena config check` prints all of them, `verbena config"
        " reference` explains every key",
    ),
    Explanation(
        "configuration_file",
        ConfigurationError,
        what="the configuration file cannot be read",
        causes=(
            "the path is wrong: the file that --config or VERBENA_CONFIG names must exist",
            "this user may not read the file or its folder: HOME may be another user's",
        ),
        remedy="check the path and its permissions (`namei -l PATH` shows each folder's), or pass another"
        " file with --config; `verbena config reference --sample > verbena.toml` writes a file to start from",
    ),
)
