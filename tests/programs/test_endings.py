"""The ways in which a program can end while it has sessions: each ends soon, as that of any other object."""

from __future__ import annotations

import pytest
from support.programs import run_program

ORDERLY = {
    "closed in atexit": """
        import atexit, sys, verbena
        session = verbena.sync.connect(sys.argv[1])

        @atexit.register
        def finish():
            assert session.call("echo", b"bye") == b"bye"
            session.close()
            assert session.closed
            print("finished", flush=True)

        print("last line", flush=True)
        """,
    "used by a function that atexit knew before the first session": """
        import atexit, sys, verbena

        @atexit.register
        def finish():
            assert session.call("echo", b"bye") == b"bye"
            print("finished", flush=True)

        session = verbena.sync.connect(sys.argv[1])
        print("last line", flush=True)
        """,
    "opened in atexit": """
        import atexit, sys, verbena

        @atexit.register
        def finish():
            session = verbena.sync.connect(sys.argv[1])
            assert session.call("echo", b"bye") == b"bye"
            print("finished", flush=True)

        print("last line", flush=True)
        """,
    "closed in __del__ of a global": """
        import sys, verbena

        class Owner:
            def __init__(self):
                self.session = verbena.sync.connect(sys.argv[1])

            def __del__(self):
                self.session.close()
                print("finished", flush=True)

        owner = Owner()
        print("last line", flush=True)
        """,
    "closed in __del__ of a cycle that the collector finds": """
        import gc, sys, verbena

        class Owner:
            def __init__(self):
                self.me, self.session = self, verbena.sync.connect(sys.argv[1])

            def __del__(self):
                self.session.close()

        for _ in range(3):
            Owner()
        gc.collect()
        Owner()
        print("finished\\nlast line", flush=True)
        """,
    "used too late, by a function that atexit knew before verbena": """
        import atexit, sys

        @atexit.register
        def finish():
            from verbena.errors import ClosedError
            session.close()
            for use in (lambda: session.call("echo", b"bye"), lambda: verbena.sync.connect(sys.argv[1])):
                try:
                    use()
                except ClosedError as error:
                    assert "the process is ending" in str(error), error
                else:
                    raise AssertionError
            print("finished", flush=True)

        import verbena
        session = verbena.sync.connect(sys.argv[1])
        print("last line", flush=True)
        """,
    "used in a thread that outlives the main thread": """
        import sys, threading, verbena

        def work():
            threading.main_thread().join()
            for _ in range(2):
                with verbena.sync.connect(sys.argv[1]) as own:
                    assert own.call("echo", b"hi") == b"hi"
            assert session.call("echo", b"hi") == b"hi"
            session.close()
            left = verbena.sync.connect(sys.argv[1])
            print("finished\\nlast line", flush=True)

        session = verbena.sync.connect(sys.argv[1])
        threading.Thread(target=work).start()
        """,
    "an event loop in a thread that outlives the main thread": """
        import asyncio, sys, threading

        async def main():
            async with verbena.connect(sys.argv[1].replace("127.0.0.1", "localhost")) as session:
                assert await session.call("echo", b"hi") == b"hi"
            left = await verbena.connect(sys.argv[1])
            print("finished\\nlast line", flush=True)

        def work():
            threading.main_thread().join()
            asyncio.run(main())

        import verbena
        threading.Thread(target=work).start()
        """,
    "imported in a thread that outlives the main thread": """
        import sys, threading

        def work():
            threading.main_thread().join()
            import verbena
            session = verbena.sync.connect(sys.argv[1])
            print("finished\\nlast line", flush=True)

        threading.Thread(target=work).start()
        """,
}

CALLS = {
    "a blocking call": """
        import sys, verbena
        session = verbena.sync.connect(sys.argv[1])
        print("last line", flush=True)
        session.call("never")
        """,
    "an awaited call": """
        import asyncio, sys, verbena

        async def main():
            session = await verbena.connect(sys.argv[1])
            print("last line", flush=True)
            await session.call("never")

        asyncio.run(main())
        """,
    "calls in daemon threads": """
        import sys, threading, time, verbena
        session = verbena.sync.connect(sys.argv[1])
        for _ in range(4):
            threading.Thread(target=session.call, args=("never",), daemon=True).start()
        print("last line", flush=True)
        time.sleep(30)
        """,
    "a blocking listener": """
        import verbena
        with verbena.sync.listen("127.0.0.1:0") as listener:
            print("last line", flush=True)
            listener.serve_forever()
        """,
    "a listener": """
        import asyncio, verbena

        async def main():
            async with verbena.listen("127.0.0.1:0") as listener:
                print("last line", flush=True)
                await listener.serve_forever()

        asyncio.run(main())
        """,
    "a blocking connect": """
        import socket, verbena
        silent = socket.create_server(("127.0.0.1", 0))
        print("last line", flush=True)
        verbena.sync.connect("127.0.0.1:%d" % silent.getsockname()[1])
        """,
}

# The peer is killed after the end of the sessions, since atexit knows that function before verbena.
STOPPED_PEER = """
    import atexit, os, signal, subprocess, sys
    listen = "l = verbena.sync.listen('127.0.0.1:0'); print(l.address, flush=True); l.serve_forever()"
    peer = subprocess.Popen([sys.executable, "-c", "import verbena; " + listen], stdout=subprocess.PIPE)
    atexit.register(peer.kill)
    import verbena
    session = verbena.sync.connect(peer.stdout.readline().decode().strip())
    peer.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, peer.pid, os.WSTOPPED)
    print("last line", flush=True)
    """

DAEMONS = {
    "that waits in a call": """
        import sys, threading, verbena
        session = verbena.sync.connect(sys.argv[1])
        threading.Thread(target=session.call, args=("never",), daemon=True).start()
        print("last line", flush=True)
        """,
    "that calls all the time": """
        import sys, threading, verbena
        session = verbena.sync.connect(sys.argv[1])
        called = threading.Event()

        def work():
            while True:
                session.call("echo", b"hi")
                called.set()

        threading.Thread(target=work, daemon=True).start()
        called.wait()
        print("last line", flush=True)
        """,
    "with an event loop": """
        import asyncio, sys, threading, verbena
        called = threading.Event()

        async def work():
            session = await verbena.connect(sys.argv[1])
            while True:
                await session.call("echo", b"hi")
                called.set()

        threading.Thread(target=lambda: asyncio.run(work()), daemon=True).start()
        called.wait()
        print("last line", flush=True)
        """,
    "that opens and closes sessions": """
        import sys, threading, verbena
        called = threading.Event()

        def work():
            while True:
                with verbena.sync.connect(sys.argv[1]):
                    called.set()

        for _ in range(3):
            threading.Thread(target=work, daemon=True).start()
        called.wait()
        print("last line", flush=True)
        """,
}

UNCAUGHT = """
    import sys, verbena
    session = verbena.sync.connect(sys.argv[1])
    print("last line", flush=True)
    raise KeyError("of the program")
    """


@pytest.mark.parametrize("program", ORDERLY.values(), ids=ORDERLY)
def test_objects_are_closed_when_the_program_likes(peer: str, program: str) -> None:
    assert run_program(program, peer).output == ["finished"]


@pytest.mark.parametrize("program", CALLS.values(), ids=CALLS)
@pytest.mark.parametrize("times", [1, 2])
def test_ctrl_c_ends_a_program_that_waits(peer: str, program: str, times: int) -> None:
    """With the traceback and the status that Python gives it; also a second Ctrl-C during the end."""
    run_program(program, peer, interrupts=times, status=-2, says="KeyboardInterrupt")


@pytest.mark.parametrize("program", DAEMONS.values(), ids=DAEMONS)
def test_a_daemon_thread_does_not_delay_the_end(peer: str, program: str) -> None:
    """Nor does it report an error: it ends as with any other library."""
    run_program(program, peer)


def test_an_uncaught_exception_ends_a_program(peer: str) -> None:
    run_program(UNCAUGHT, peer, status=1, says="KeyError: 'of the program'")


def test_a_program_with_a_stopped_peer_ends() -> None:
    """The close message is not acknowledged, and the end does not wait for it."""
    assert run_program(STOPPED_PEER).seconds < 2


@pytest.mark.parametrize("times", [1, 2])
def test_ctrl_c_ends_the_close_of_a_session_with_a_stopped_peer(times: int) -> None:
    closing = STOPPED_PEER.rstrip() + "\n    session.close()\n    signal.pause()\n"
    run_program(closing, interrupts=times, status=-2, says="KeyboardInterrupt")


@pytest.mark.parametrize("options", [["-i"], ["-i", "-q"]])
def test_an_interactive_interpreter_ends(peer: str, options: list[str]) -> None:
    """python -i reads the end of its input after the last line."""
    run_program(
        """
        import sys, verbena
        session = verbena.sync.connect(sys.argv[1])
        print("last line", flush=True)
        """,
        peer,
        options=options,
        says=">>>",
    )


def test_a_console_within_a_program_ends(peer: str) -> None:
    ended = run_program(
        """
        import code, sys, verbena
        lines = iter(["session = verbena.sync.connect(sys.argv[1])", "session.call('echo', b'hi')"])

        def read(prompt):
            try:
                return next(lines)
            except StopIteration:
                raise EOFError

        code.interact(banner="", readfunc=read, local={"verbena": verbena, "sys": sys}, exitmsg="")
        print("last line", flush=True)
        """,
        peer,
    )
    assert ended.output == ["b'hi'"]


def test_ctrl_c_while_the_native_module_is_imported() -> None:
    """It is a KeyboardInterrupt once the module is complete, and never an abort."""
    run_program(
        """
        import enum, os, signal

        make = enum.EnumType.__call__ if hasattr(enum, "EnumType") else enum.EnumMeta.__call__

        def interrupt(*arguments, **options):  # as the module makes its first enumeration
            enum.EnumMeta.__call__ = make
            os.kill(os.getpid(), signal.SIGINT)
            return make(*arguments, **options)

        import verbena._ending
        enum.EnumMeta.__call__ = interrupt
        try:
            from verbena import _native
        except KeyboardInterrupt:
            from verbena import _native
            assert _native.crc32c(b"123456789") == 0xE3069283
            print("interrupted")
        print("last line", flush=True)
        """
    )
