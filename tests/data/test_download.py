import hashlib
import io
import os
import signal
import threading
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from gossamer.data.download import fetch, only_one_process, progress_bar
from gossamer.errors import PeerError
from tests.processes import start

CONTENT = bytes(i * i % 251 for i in range(300_000))
CHECKSUM = f"sha256:{hashlib.sha256(CONTENT).hexdigest()}"


@dataclass
class Server:
    """A web server on this machine that can be told to misbehave, and remembers the ranges it was asked for."""

    address: str = ""
    content: bytes = CONTENT
    break_after: list[int] = field(default_factory=list)  # bytes after which to hang up, one entry per request
    ignore_range: bool = False
    shift_range: int = 0
    announce_length: bool = True
    ranges: list[str | None] = field(default_factory=list)

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        asked = request.headers["Range"]
        self.ranges.append(asked)
        if request.path != "/file.bin":
            request.send_error(404)
            return
        start = 0 if asked is None or self.ignore_range else int(asked.removeprefix("bytes=").removesuffix("-"))
        if start >= len(self.content):
            request.send_error(416)
            return
        start += self.shift_range if start else 0
        request.send_response(206 if start else 200)
        if start:
            request.send_header("Content-Range", f"bytes {start}-{len(self.content) - 1}/{len(self.content)}")
        if self.announce_length:
            request.send_header("Content-Length", str(len(self.content) - start))
        request.end_headers()
        stop = start + self.break_after.pop(0) if self.break_after else len(self.content)
        request.wfile.write(self.content[start:stop])


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    state = Server()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            state.answer(self)

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as http:
        thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        state.address = f"http://127.0.0.1:{http.server_port}/file.bin"
        yield state
        http.shutdown()
        thread.join()


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return tmp_path / "file.bin"


def part_of(target: Path) -> Path:
    return target.with_name("file.bin.part")


def test_fetch_brings_the_file_and_reports_progress(server: Server, target: Path) -> None:
    seen: list[tuple[str, int, int | None]] = []
    assert fetch([server.address], target, CHECKSUM, lambda *report: seen.append(report)) == target
    assert target.read_bytes() == CONTENT
    assert list(target.parent.iterdir()) == [target]
    assert seen[0] == ("file.bin", 0, len(CONTENT))
    assert seen[-1] == ("file.bin", len(CONTENT), len(CONTENT))
    assert [done for _, done, _ in seen] == sorted(done for _, done, _ in seen)


def test_a_later_call_continues_an_abandoned_download(server: Server, target: Path) -> None:
    # The second try starts over and gets less far than the first, so the first call gives up.
    server.break_after = [100_000, 90_000]
    server.ignore_range = True
    with pytest.raises(PeerError, match=r"closed after 90,000 of 300,000 bytes.*90,000 bytes received so far are kept"):
        fetch([server.address], target, CHECKSUM, attempts=1, pause=0)
    assert not target.exists()
    assert part_of(target).read_bytes() == CONTENT[:90_000]

    server.ignore_range = False
    seen: list[int] = []
    fetch([server.address], target, CHECKSUM, lambda _name, done, _total: seen.append(done))
    assert server.ranges[-1] == "bytes=90000-"
    assert seen[0] == 90_000
    assert target.read_bytes() == CONTENT
    assert not part_of(target).exists()


@pytest.mark.parametrize(
    ("behaviour", "part", "ranges"),
    [
        ({"break_after": [100_000, 50_000]}, None, [None, "bytes=100000-", "bytes=150000-"]),
        ({"break_after": [100_000], "ignore_range": True}, None, [None, "bytes=100000-"]),
        ({"shift_range": 10}, CONTENT[:1000], ["bytes=1000-", None]),
        ({}, CONTENT, [f"bytes={len(CONTENT)}-"]),
        ({}, b"x" * 1000, ["bytes=1000-", None]),
        ({}, b"x" * len(CONTENT), [f"bytes={len(CONTENT)}-", None]),
    ],
    ids=["continued twice", "range ignored", "continued elsewhere", "a complete part", "a stale part", "all stale"],
)
def test_what_is_there_is_continued_or_thrown_away(
    server: Server, target: Path, behaviour: dict[str, Any], part: bytes | None, ranges: list[str | None]
) -> None:
    for name, value in behaviour.items():
        setattr(server, name, deepcopy(value))
    if part is not None:
        part_of(target).write_bytes(part)
    fetch([server.address], target, CHECKSUM, pause=0)
    assert server.ranges == ranges
    assert target.read_bytes() == CONTENT


def test_the_wrong_content_never_reaches_the_target(server: Server, target: Path) -> None:
    server.content = b"not what was promised"
    target.write_bytes(b"what was there before")
    with pytest.raises(PeerError, match=r"Cannot download file.bin .*another checksum than the official one"):
        fetch([server.address], target, CHECKSUM, attempts=2, pause=0)
    assert target.read_bytes() == b"what was there before"
    assert not part_of(target).exists()
    assert len(server.ranges) == 2


def test_a_damaged_target_is_replaced(server: Server, target: Path) -> None:
    target.write_bytes(b"damaged")
    fetch([server.address], target, CHECKSUM)
    assert target.read_bytes() == CONTENT


def test_a_server_may_leave_out_the_length(server: Server, target: Path) -> None:
    server.announce_length = False
    seen: list[int | None] = []
    fetch([server.address], target, CHECKSUM, lambda _name, _done, total: seen.append(total))
    assert target.read_bytes() == CONTENT
    assert set(seen) == {None}


def test_the_next_address_is_tried_when_one_fails(server: Server, target: Path) -> None:
    fetch([server.address.replace("file.bin", "gone"), server.address], target, CHECKSUM)
    assert target.read_bytes() == CONTENT


def test_a_missing_page_is_named(server: Server, target: Path) -> None:
    gone = server.address.replace("file.bin", "gone")
    with pytest.raises(PeerError, match="gone: the server answered 404 Not Found"):
        fetch([gone], target, CHECKSUM, attempts=2, pause=0)
    assert len(server.ranges) == 2


def test_a_failing_disk_is_no_matter_of_the_connection(server: Server, target: Path) -> None:
    part_of(target).mkdir()
    with pytest.raises(IsADirectoryError):
        fetch([server.address], target, CHECKSUM)
    assert len(server.ranges) == 1


def _fetch_and_die(address: str, target: Path) -> None:
    def die(name: str, done: int, total: int | None) -> None:
        if done > 200_000:
            os.kill(os.getpid(), signal.SIGKILL)

    fetch([address], target, CHECKSUM, die)


def test_a_download_survives_kill_9(server: Server, target: Path) -> None:
    """A process that dies in the middle leaves a part that the next one continues."""
    process = start(target.with_name("printed"), _fetch_and_die, server.address, target)
    process.join(100)
    assert process.exitcode == -signal.SIGKILL
    assert not target.exists()
    kept = part_of(target).stat().st_size
    assert 0 < kept < len(CONTENT)
    fetch([server.address], target, CHECKSUM)
    assert server.ranges == [None, f"bytes={kept}-"]
    assert target.read_bytes() == CONTENT


def test_only_one_process_at_a_time(tmp_path: Path) -> None:
    order: list[str] = []
    waiting = threading.Event()

    def second() -> None:
        waiting.set()
        with only_one_process(tmp_path):
            order.append("second")

    thread = threading.Thread(target=second)
    with only_one_process(tmp_path):
        thread.start()
        waiting.wait()
        thread.join(timeout=0.1)
        order.append("first")
    thread.join()
    assert order == ["first", "second"]


def test_the_bar_shows_on_a_terminal_and_is_silent_elsewhere() -> None:
    terminal, pipe = io.StringIO(), io.StringIO()
    for output, is_terminal in ((terminal, True), (pipe, False)):
        with progress_bar(Console(file=output, force_terminal=is_terminal, width=100)) as report:
            report("file.bin", 0, None)
            report("file.bin", 50, 100)
            report("file.bin", 100, 100)
    assert "file.bin" in terminal.getvalue()
    assert "100/100 bytes" in terminal.getvalue()
    assert pipe.getvalue() == ""
