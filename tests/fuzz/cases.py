"""Seeded mutations of what users and strangers hand in, and the frame in which each case runs.

A case is a number: the same number makes the same case, on every machine, so a failure names the case that failed.
"""

import copy
import io
import json
import random
import resource
import signal
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from typing import Any

import pytest

from gossamer.cli import main

SECONDS = 60
"""Processor time after which a case counts as a hang. Waiting does not count: the machine may be busy."""
ROOM = 8 << 30
"""Bytes of memory that a case may take on top of what is in use: a bomb then fails here, not the machine.

Where /proc does not say what is in use, there is no limit.
"""

SPECIAL = (
    b"\xef\xbb\xbf", b"\xff\xfe", b"\0", b"\xff", b"[" * 3000, b"{" * 3000, b"9" * 5000, b"1e999", b"-1", b"NaN",
    b"nan", b"inf", b"null", b"true", b'"', b"'", b"\n", b"\r", b"\t", b"=", b"#", b"[[", b"]]", b"\xed\xa0\x80",
    b"\x1b[2J", b"18446744073709551616", b"1979-05-27", b"..", b"/" * 300, b"a" * 5000, b"\\u0000", b"0",
    b"1_000_000_000",
)  # fmt: skip
VALUES: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 2, 3, 7, 10**6, 10**9, 2**31, 2**53, 2**63, 2**64, 10**30, 10**400, 0.5, -0.0,
    1e-300, 1e300, -1e300, 1.5, "", "a", "7", "nan", "../..", "a" * 5000, "\0", "\x1b[31m", "=1+1", "\u202e", [], {},
    [[]], [1], [0, 0], [[0, 1]], [None], ["a"], {"a": 1}, [[0, 1, 2]], [-1, 0], [0.5] * 9,
)  # fmt: skip


def chunks(quick: int, slow: int, size: int = 500) -> list[Any]:
    """The numbers of the cases of a test: `quick` of them always, `slow` more in `make test-slow`."""
    more = (range(at, min(at + size, quick + slow)) for at in range(quick, quick + slow, size))
    marks = [pytest.mark.slow, pytest.mark.timeout(1800)]
    return [range(quick), *(pytest.param(numbers, marks=marks, id=f"from-{numbers[0]}") for numbers in more)]


class Hang(BaseException):
    """A case took too long; no `except Exception` keeps it."""


@contextmanager
def case(number: int) -> Iterator[random.Random]:
    """One case: its random numbers, within limits of time and memory; an error names it."""

    def stop(*_: object) -> None:
        raise Hang

    before = signal.signal(signal.SIGPROF, stop)
    limits = resource.getrlimit(resource.RLIMIT_AS)
    if (in_use := _in_use()) is not None:
        resource.setrlimit(resource.RLIMIT_AS, (in_use + ROOM, limits[1]))
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the user sees a line, not a traceback
            yield random.Random(number)
    except (Exception, Hang) as error:
        raise AssertionError(f"case {number}: {type(error).__name__}: {error}") from error
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
        if in_use is not None:
            resource.setrlimit(resource.RLIMIT_AS, limits)


def _in_use() -> int | None:
    try:
        with open("/proc/self/statm", encoding="ascii") as file:  # noqa: PTH123
            return int(file.read().split()[0]) * resource.getpagesize()
    except FileNotFoundError:
        return None


def command(*arguments: object) -> tuple[int, str, str]:
    """The exit code of a command in this process, and what it prints; anything but an exit goes on."""
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True) for _ in range(2))
    with pytest.raises(SystemExit) as ended, redirect_stdout(out), redirect_stderr(err):
        main([str(argument) for argument in arguments])
    code = ended.value.code
    printed, told = (stream.buffer.getvalue().decode() for stream in (out, err))
    assert code in (0, 1, 2), (code, told)
    assert "Traceback" not in told, told
    assert code != 2 or told.startswith("gossamer: "), (arguments, told)
    return code, printed, told


def mutated(rng: random.Random, data: bytes) -> bytes:
    """A few changes: bytes flipped, removed, repeated, moved, or replaced by something special."""
    for _ in range(rng.choice((1, 1, 1, 2, 3, 8))):
        at, length = rng.randrange(len(data) + 1), rng.choice((0, 1, 1, 2, 4, 8, 40))
        end = min(len(data), at + length)
        what = rng.randrange(6)
        if what == 0:
            data = data[:at] + bytes(byte ^ 1 << rng.randrange(8) for byte in data[at:end]) + data[end:]
        elif what == 1:
            data = data[:at] + rng.choice(SPECIAL) + data[end:]
        elif what == 2:
            data = data[:at] + data[end:]
        elif what == 3:
            data = data[:at] + data[at:end] * rng.choice((2, 3, 50)) + data[end:]
        elif what == 4:
            data = data[:at] + rng.randbytes(length) + data[end:]
        else:
            data = data[:at] if rng.random() < 0.3 else data[end:at] + data[at:] if rng.random() < 0.1 else data[:end]
    return data


def changed(rng: random.Random, value: Any, values: tuple[Any, ...] = VALUES) -> Any:
    """A copy in which something inside is another value, is gone, or is there twice."""
    value = copy.deepcopy(value)
    places: list[tuple[Any, Any]] = []
    _collect(value, places)
    for _ in range(rng.choice((1, 1, 2))):
        if not places:
            return rng.choice(values)
        parent, key = rng.choice(places)
        what = rng.randrange(4)
        try:
            if what == 0:
                del parent[key]
            elif what == 1 and isinstance(parent, list):
                parent.insert(key, copy.deepcopy(parent[key]))
            elif what == 2 and isinstance(parent[key], int | float) and not isinstance(parent[key], bool):
                parent[key] = parent[key] + rng.choice((-1, 1, 0.5, 10**6))
            else:
                parent[key] = copy.deepcopy(rng.choice(values))
        except (KeyError, IndexError, TypeError):
            continue  # an earlier change has removed it
    return value


def _collect(value: Any, places: list[tuple[Any, Any]]) -> None:
    items: Any = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        places.append((value, key))
        _collect(inner, places)


def mutated_json(rng: random.Random, data: bytes) -> bytes:
    """JSON whose values are changed, or bytes that are hardly JSON any more."""
    if rng.random() < 0.35:
        return mutated(rng, data)
    text = json.dumps(changed(rng, json.loads(data)))
    return (b"\xef\xbb\xbf" if rng.random() < 0.05 else b"") + text.encode()
