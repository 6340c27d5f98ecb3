"""The testbed's own instruments: what the other tests here do to the guest has the effect they count on."""

import subprocess

from support.rdma import rping
from support.rdma.link import wait_until

# Debian's interpreter: its pyverbs is independent of everything in this project.
PYVERBS = "/usr/bin/python3"
REGISTER = """
from pyverbs import device, enums, mr, pd
with device.Context(name="rxe0") as context, pd.PD(context) as domain:
    with mr.MR(domain, {length}, enums.IBV_ACCESS_LOCAL_WRITE): pass
"""


def test_programs_of_others_reach_each_other_through_the_cable(serve):
    """A client that binds rxe1's address reaches a server on rxe2."""
    server = serve(7174, "rping", "-s", "-a", "10.9.0.2", "-C", "1", "-v")
    call = ["rping", "-c", "-I", "10.9.0.1", "-a", "10.9.0.2", "-C", "1", "-v", "-V"]
    client = subprocess.run(call, capture_output=True, text=True, timeout=30, check=False)
    assert rping.has_finished(client), client
    assert "rdma-ping-0" in client.stdout
    assert "rdma-ping-0" in server.communicate(timeout=30)[0]


def test_a_cable_taken_down_is_down_at_both_ends(cable):
    """One end down takes the carrier of the other; both ports come back with it."""
    assert (cable.state("rxe1"), cable.state("rxe2")) == ("ACTIVE", "ACTIVE")
    cable.down("rxe1")
    wait_until(lambda: cable.state("rxe1") == cable.state("rxe2") == "DOWN", "both ports to go down")
    cable.up("rxe1")
    wait_until(lambda: cable.state("rxe1") == cable.state("rxe2") == "ACTIVE", "both ports to come back")


def test_a_cable_that_drops_everything_seems_sound(cable):
    """A lossy cable leaves both ports active: only an answer that never comes tells."""
    cable.drop("rxe2", 100)
    assert (cable.state("rxe1"), cable.state("rxe2")) == ("ACTIVE", "ACTIVE")


def test_a_memlock_limit_binds_even_root(with_memlock):
    """Registering more than the limit fails in the kernel with ENOMEM; less than it succeeds."""
    refused = with_memlock(64, "-c", REGISTER.format(length=1 << 20), program=PYVERBS)
    assert refused.returncode != 0
    assert "Errno: 12" in refused.stderr
    granted = with_memlock(4096, "-c", REGISTER.format(length=1 << 20), program=PYVERBS)
    assert granted.returncode == 0, granted.stderr
