"""A5: memory registration: buffers, access flags, keys, pinning."""

import array
import ctypes
import gc
import itertools
import json
import mmap
import resource
import subprocess
import sys
import weakref

import numpy as np
import pytest
from support.rdma.devices import refusal
from support.rdma.link import pattern, read, statuses, write

from verbena import errors
from verbena.errors import WcStatus
from verbena.verbs import Access, RemoteMemory

pytestmark = pytest.mark.rule("A5")

LENGTH = 64 * 1024


def writable_buffers():
    mapped = mmap.mmap(-1, LENGTH)
    return {
        "bytearray": bytearray(LENGTH),
        "memoryview": memoryview(bytearray(LENGTH + 7))[7:],
        "array": array.array("Q", bytes(LENGTH)),
        "numpy": np.zeros((LENGTH // 64, 16), dtype=np.float32),
        "ctypes": (ctypes.c_char * LENGTH)(),
        "mmap": mapped,
    }


@pytest.mark.parametrize("kind", ["bytearray", "memoryview", "array", "numpy", "ctypes", "mmap"])
def test_any_contiguous_buffer_can_be_registered(pair, kind):
    """What has the buffer protocol is registered where it lies: remote WRITE and READ meet its own bytes."""
    buffer = writable_buffers()[kind]
    with pair.b.pd.register(buffer, access=Access.ALL) as mr:
        assert (len(mr), mr.length) == (LENGTH, LENGTH)
        assert pair.a.do(write(pair.a.region(pattern(LENGTH)), mr.remote))[0].ok
        assert bytes(memoryview(buffer).cast("B")) == pattern(LENGTH)
        memoryview(buffer).cast("B")[:4] = b"edit"
        local = pair.a.region(LENGTH)
        assert pair.a.do(read(local, mr.remote))[0].ok
        assert bytes(memoryview(local)) == b"edit" + pattern(LENGTH)[4:]


@pytest.mark.parametrize("kind", ["bytearray", "numpy", "mmap"])
def test_a_plain_buffer_serves_as_local_memory(pair, kind):
    """A user's own buffer can be source and destination of one-sided operations."""
    buffer = writable_buffers()[kind]
    target = pair.b.region(pattern(LENGTH))
    with pair.a.pd.register(buffer, access=Access.LOCAL_WRITE) as mr:
        assert pair.a.do(read(mr, target.remote))[0].ok
        assert bytes(memoryview(buffer).cast("B")) == pattern(LENGTH)
        memoryview(target)[:] = bytes(LENGTH)
        assert pair.a.do(write(mr, target.remote))[0].ok
    assert bytes(memoryview(target)) == pattern(LENGTH)


def test_a_read_only_buffer_can_be_read_remotely(pair):
    """bytes may be registered for REMOTE_READ, and that is all a peer may do."""
    mr = pair.b.pd.register(pattern(64), access=Access.REMOTE_READ)
    local = pair.a.region(64)
    assert pair.a.do(read(local, mr.remote))[0].ok
    assert bytes(memoryview(local)) == pattern(64)
    request = write(local, mr.remote)
    assert statuses(pair.a.do(request)) == [refusal(pair.a.context, request, WcStatus.REM_ACCESS_ERR)]
    assert bytes(memoryview(mr)) == pattern(64)


@pytest.mark.parametrize(
    "access",
    [
        Access.LOCAL_WRITE,
        Access.LOCAL_WRITE | Access.REMOTE_WRITE,
        Access.LOCAL_WRITE | Access.REMOTE_ATOMIC,
    ],
)
def test_a_read_only_buffer_is_never_registered_for_writing(context, access):
    """Write access to a read-only buffer is refused with RegistrationError, code buffer_readonly."""
    frozen = np.zeros(64, dtype=np.uint8)
    frozen.flags.writeable = False
    for buffer in (b"constant", memoryview(b"constant"), frozen):
        with pytest.raises(errors.RegistrationError) as refusal:
            context.alloc_pd().register(buffer, access=access)
        assert refusal.value.code == "buffer_readonly"


def test_a_buffer_with_gaps_is_refused(context):
    """Memory that is not contiguous cannot be one region."""
    for buffer in (memoryview(bytearray(64))[::2], np.zeros((8, 8))[:, :3]):
        with pytest.raises(errors.RegistrationError) as refusal:
            context.alloc_pd().register(buffer, access=Access.REMOTE_READ)
        assert refusal.value.code == "buffer_not_contiguous"


@pytest.mark.parametrize("remote", [Access.REMOTE_WRITE, Access.REMOTE_ATOMIC])
def test_remote_writing_requires_local_writing(context, remote):
    """REMOTE_WRITE or REMOTE_ATOMIC without LOCAL_WRITE is refused, for buffers and for allocated memory."""
    pd = context.alloc_pd()
    with pytest.raises(errors.VerbenaError):
        pd.register(bytearray(64), access=remote)
    with pytest.raises(errors.VerbenaError):
        pd.allocate(64, access=remote | Access.REMOTE_READ)


def test_allocated_memory_is_zeroed_and_shared_by_views(context):
    """allocate() gives zeroes; memoryview and numpy see the same bytes without copies."""
    mr = context.alloc_pd().allocate(8192)
    assert bytes(memoryview(mr)) == bytes(8192)
    view = np.frombuffer(mr, dtype=np.uint64)
    view[3] = 77
    assert memoryview(mr).cast("B").cast("Q")[3] == 77
    assert view.ctypes.data == mr.addr


def test_a_region_keeps_its_buffer_alive_and_unmoved(context):
    """A registered bytearray cannot be resized, nor freed, until the region is closed."""
    buffer = bytearray(64)
    mr = context.alloc_pd().register(buffer, access=Access.ALL)
    with pytest.raises(BufferError):
        buffer.append(1)
    mr.close()
    buffer.append(1)
    matrix = np.zeros(64)
    alive = weakref.ref(matrix)
    mr = context.alloc_pd().register(matrix, access=Access.ALL)
    del matrix
    gc.collect()
    assert alive() is not None
    mr.close()
    gc.collect()
    assert alive() is None


def test_slices_stay_inside_the_region(context):
    """A slice covers exactly its part; one that leaves the region, or has a step, is refused."""
    mr = context.alloc_pd().allocate(100)
    part = mr[10:30]
    assert (part.offset, part.length) == (10, 20)
    assert (mr[:].length, mr[90:].offset, mr[:0].length) == (100, 90, 0)
    for start, stop, step in ((0, 101, None), (90, 200, None), (0, 100, 2), (30, 10, None)):
        with pytest.raises((IndexError, ValueError, errors.StateError)):
            mr[start:stop:step]
    remote = mr.remote[10:30]
    assert (remote.addr, remote.length, remote.rkey) == (mr.addr + 10, 20, mr.rkey)
    with pytest.raises((IndexError, ValueError, errors.StateError)):
        mr.remote[50:101]


def test_a_region_reports_address_length_and_access(context):
    """Address, length, access and domain can be read; the remote description matches."""
    buffer = bytearray(4096)
    pd = context.alloc_pd()
    mr = pd.register(buffer, access=Access.LOCAL_WRITE | Access.REMOTE_READ)
    assert mr.addr == ctypes.addressof((ctypes.c_char * 1).from_buffer(memoryview(buffer)))
    assert (mr.length, mr.access, mr.pd) == (4096, Access.LOCAL_WRITE | Access.REMOTE_READ, pd)
    assert mr.remote == RemoteMemory(mr.addr, mr.rkey, 4096)


def test_every_registration_has_keys_of_its_own(context):
    """The same bytes registered many times give as many different rkeys."""
    pd, buffer = context.alloc_pd(), bytearray(64)
    regions = [pd.register(buffer, access=Access.ALL) for _ in range(500)]
    assert len({mr.rkey for mr in regions}) == 500
    assert len({mr.lkey for mr in regions}) == 500


def test_keys_cannot_be_guessed(context):
    """Keys that Verbena chooses are spread over 32 bits and have no common stride."""
    if "keys" in context.attributes.capabilities:
        pytest.skip(f"keys are {context.attributes.capabilities['keys']}")
    pd, buffer = context.alloc_pd(), bytearray(64)
    keys = [pd.register(buffer, access=Access.ALL).rkey for _ in range(256)]
    strides = {(b - a) % 2**32 for a, b in itertools.pairwise(keys)}
    assert len(strides) > 250
    for bit in range(8, 32):
        ones = sum(key >> bit & 1 for key in keys)
        assert 64 < ones < 192, f"bit {bit} is set in {ones} of 256 keys"


def test_keys_are_invalid_after_the_region_closes(pair):
    """After close() the rkey is refused and the memory is not touched any more."""
    buffer = bytearray(pattern(64))
    mr = pair.b.pd.register(buffer, access=Access.ALL)
    remote = mr.remote
    assert pair.a.do(write(pair.a.region(8), remote[:8]))[0].ok
    mr.close()
    request = write(pair.a.region(64), remote)
    assert statuses(pair.a.do(request)) == [refusal(pair.a.context, request, WcStatus.REM_ACCESS_ERR)]
    assert bytes(buffer) == bytes(8) + pattern(64)[8:]


def test_a_new_registration_of_the_same_memory_does_not_revive_the_old_key(pair):
    """Register, close, register again: the first rkey stays dead."""
    buffer = bytearray(64)
    with pair.b.pd.register(buffer, access=Access.ALL) as mr:
        old = mr.remote
    pair.b.pd.register(buffer, access=Access.ALL)
    assert statuses(pair.a.do(read(pair.a.region(64), old))) == [WcStatus.REM_ACCESS_ERR]


def test_pinned_memory_is_locked(context):
    """pin=True locks the pages, as the kernel's count of locked memory shows; close() gives them back."""

    def locked_kib():
        with open("/proc/self/status") as status:
            fields = dict(line.split(":", 1) for line in status)
        return int(fields["VmLck"].split()[0]) + int(fields.get("VmPin", "0 kB").split()[0])

    if (
        resource.getrlimit(resource.RLIMIT_MEMLOCK)[0] != resource.RLIM_INFINITY
        and context.attributes.provider == "ibv"
    ):
        pytest.skip("the kernel accounts pinned memory of devices elsewhere")
    before = locked_kib()
    mr = context.alloc_pd().register(bytearray(256 * 1024), access=Access.ALL, pin=True)
    assert locked_kib() >= before + 256
    mr.close()
    assert locked_kib() == before


MEMLOCK_CHILD = """
import json, os, resource, sys
from verbena import errors, verbs
resource.setrlimit(resource.RLIMIT_MEMLOCK, (65536, 65536))
if os.getuid() == 0:
    os.setgroups([])
    os.setresgid(65534, 65534, 65534)
    os.setresuid(65534, 65534, 65534)
pd = verbs.open_device(sys.argv[1]).alloc_pd()
small = pd.register(bytearray(4096), access=verbs.Access.ALL)
try:
    pd.register(bytearray(8 << 20), access=verbs.Access.ALL, pin=True)
except errors.RegistrationError as error:
    print(json.dumps({"code": error.code, "text": str(error), "remedy": error.remedy}))
else:
    print(json.dumps({"code": "none"}))
"""


def test_a_memlock_failure_is_explained(provider):
    """Pinning more than RLIMIT_MEMLOCK fails with the limit, its value and how to raise it."""
    child = subprocess.run(
        [sys.executable, "-c", MEMLOCK_CHILD, provider],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert child.returncode == 0, child.stderr
    answer = json.loads(child.stdout)
    assert answer["code"] == "memlock"
    assert "RLIMIT_MEMLOCK" in answer["text"]
    assert "64" in answer["text"]
    assert "ulimit -l" in answer["remedy"] or "memlock" in answer["remedy"]
