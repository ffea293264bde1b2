import os
import signal
import subprocess
import sys

import pytest

from gossamer._common.signals import Interrupts


def end_of(script: str) -> subprocess.CompletedProcess[str]:
    """How a process of its own ends that has deferred its signals."""
    start = "import hashlib, os, signal, threading, time\nfrom gossamer._common.signals import Interrupts\n"
    lines = f"{start}interrupts = Interrupts()\ninterrupts.defer()\n{script}"
    return subprocess.run([sys.executable, "-c", lines], capture_output=True, text=True, timeout=60, check=False)


def test_the_signals_of_a_forked_process_are_its_own() -> None:
    """As those of a data loader's workers, which get the same Ctrl-C."""
    ended = end_of("""
if os.fork() == 0:
    os.kill(os.getpid(), signal.SIGINT)
    os._exit(0 if interrupts.requested else 1)
code = os.wait()[1]
os.kill(os.getpid(), signal.SIGINT)
time.sleep(1.5)
print("goes on", interrupts.requested, code)
""")
    assert (ended.returncode, ended.stdout) == (0, "goes on True 0\n"), ended.stderr


def test_a_second_signal_ends_a_process_that_waits_inside_a_library_though_the_first_was_noted() -> None:
    ended = end_of("""
os.kill(os.getpid(), signal.SIGINT)
assert interrupts.requested
threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT)).start()
hashlib.pbkdf2_hmac("sha256", b"", b"", 2_000_000_000)
""")
    assert ended.returncode == 128 + signal.SIGINT, ended.stderr


def test_a_signal_that_nobody_asks_for_is_obeyed_within_two_seconds() -> None:
    ended = end_of("""
interrupts.obey()
from gossamer._common.signals import deferred_interrupts
began = time.monotonic()
try:
    with deferred_interrupts() as interrupts:
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(60)  # a round
except KeyboardInterrupt:
    print(time.monotonic() - began < 2)
with deferred_interrupts() as interrupts:
    os.kill(os.getpid(), signal.SIGINT)
    assert interrupts.requested
    time.sleep(2)  # a checkpoint is being written
print("written")
with deferred_interrupts() as interrupts:
    os.kill(os.getpid(), signal.SIGINT)
    hashlib.pbkdf2_hmac("sha256", b"", b"", 2_000_000_000)  # deep inside a library
""")
    assert (ended.returncode, ended.stdout) == (128 + signal.SIGINT, "True\nwritten\n"), ended.stderr


def test_a_process_that_runs_may_take_its_time_to_end_after_the_second() -> None:
    ended = end_of("""
os.kill(os.getpid(), signal.SIGINT)
try:
    os.kill(os.getpid(), signal.SIGINT)
except KeyboardInterrupt:
    time.sleep(1.5)
    print("all is stored")
""")
    assert (ended.returncode, ended.stdout) == (0, "all is stored\n"), ended.stderr


def test_a_second_signal_does_what_it_did_before_and_the_first_is_not_repeated() -> None:
    before = signal.getsignal(signal.SIGINT)
    interrupts = Interrupts()
    interrupts.defer()
    os.kill(os.getpid(), signal.SIGINT)
    assert interrupts.requested
    with pytest.raises(KeyboardInterrupt):
        os.kill(os.getpid(), signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is before
    interrupts.pass_on()


def test_signals_may_be_deferred_again() -> None:
    interrupts = Interrupts()
    for _ in range(2):
        interrupts.defer()
        interrupts.pass_on()
    interrupts.defer()
    os.kill(os.getpid(), signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        interrupts.pass_on()


def test_where_an_event_loop_listens_it_goes_on_doing_so() -> None:
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    signal.set_wakeup_fd(writing)
    try:
        interrupts = Interrupts()
        interrupts.defer()
        os.kill(os.getpid(), signal.SIGINT)
        assert interrupts.requested
        assert os.read(reading, 1) == bytes([signal.SIGINT])
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler, "a second one is obeyed at once"
        with pytest.raises(KeyboardInterrupt):
            interrupts.pass_on()
    finally:
        signal.set_wakeup_fd(-1)
        os.close(reading)
        os.close(writing)
