"""`iwarp.crc` in the environment means the same to the native wire as to the configuration."""

from __future__ import annotations

import os
import socket
import threading

import pytest

from verbena import config, verbs
from verbena.errors import VerbenaError

CRC_FLAG = 0x40  # of an MPA request's seventeenth byte, RFC 5044


@pytest.mark.parametrize("word", [None, "1", "true", "ON", "yes", "0", "false", "Off", "no"])
def test_the_wire_asks_for_crc_as_the_configuration_says(monkeypatch, word):
    """The first packet that the wire sends has the flag, or has it not."""
    monkeypatch.delenv("VERBENA_IWARP_CRC", raising=False)
    if word is not None:
        monkeypatch.setenv("VERBENA_IWARP_CRC", word)
    wanted = config.load(os.devnull).iwarp.crc
    request = b""

    def take_request(listener: socket.socket) -> None:
        nonlocal request
        peer, _ = listener.accept()
        with peer:
            while len(request) < 20 and (received := peer.recv(20 - len(request))):
                request += received

    with socket.create_server(("127.0.0.1", 0)) as listener:
        taker = threading.Thread(target=take_request, args=(listener,))
        taker.start()
        host, port = listener.getsockname()
        with (
            verbs.open_device("iwarp") as context,
            context.alloc_pd() as pd,
            context.create_cq(depth=4) as cq,
            pytest.raises(VerbenaError),
        ):
            context.connect_blocking(pd.create_qp(send_cq=cq), f"{host}:{port}", timeout_s=10)
        taker.join()
    assert request.startswith(b"MPA ID Req Frame")
    assert bool(request[16] & CRC_FLAG) is wanted
