import errno
import os
import re
import shutil
import threading
from pathlib import Path

import pytest

from gossamer import GossamerError
from gossamer._common.files import check_writable, replacing, write_text
from gossamer.errors import DiskError


def test_threads_that_write_one_file_do_not_meet(tmp_path):
    path, both = tmp_path / "file.txt", threading.Barrier(2, timeout=10)
    failed: list[BaseException] = []

    def write(text: str) -> None:
        try:
            with replacing(path) as temporary:
                temporary.write_text(text)
                both.wait()
                assert temporary.read_text() == text
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=write, args=(text,)) for text in ("one", "two")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed
    assert path.read_text() in ("one", "two")
    assert list(tmp_path.iterdir()) == [path]


def test_a_device_is_refused_and_stays_what_it_is(tmp_path):
    """A pipe stands for it: whoever may write to /dev would lose /dev/null here."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for write in (check_writable, lambda path: write_text(path, "x")):
        with pytest.raises(DiskError, match="pipe: it is a device or a pipe, not a file; choose another place"):
            write(pipe)
    assert pipe.is_fifo()
    assert list(tmp_path.iterdir()) == [pipe]


def test_text_is_written_in_one_piece(tmp_path):
    path = tmp_path / "a" / "b.txt"
    write_text(path, "zeta² = 0\n")
    assert path.read_text(encoding="utf-8") == "zeta² = 0\n"
    assert list(path.parent.iterdir()) == [path]


def test_a_failure_leaves_the_old_file_and_nothing_else(tmp_path):
    path = tmp_path / "kept.txt"
    path.write_text("old")

    def fail_half_way() -> None:
        with replacing(path) as temporary:
            temporary.write_text("new, but")
            assert temporary.parent == path.parent
            assert path.read_text() == "old"
            raise RuntimeError("half-way")

    with pytest.raises(RuntimeError, match="half-way"):
        fail_half_way()
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_full_disk_gets_a_sentence(tmp_path, monkeypatch):
    def full(self, *args, **kwargs):
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr(Path, "write_text", full)
    with pytest.raises(GossamerError, match=r"Cannot write .*x\.txt: No space left on device; choose another place or"):
        write_text(tmp_path / "x.txt", "x")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("write", [check_writable, lambda path: write_text(path, "x")], ids=["check", "write"])
def test_a_file_in_the_place_of_a_directory(write, tmp_path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(GossamerError, match=r"Cannot write .*file is a file, not a directory; choose another place"):
        write(tmp_path / "file" / "report.html")
    assert (tmp_path / "file").read_text() == "x"


@pytest.mark.parametrize("write", [check_writable, lambda path: write_text(path, "x")], ids=["check", "write"])
@pytest.mark.parametrize("name", ["directory", "."])
def test_a_directory_in_the_place_of_a_file(write, name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "directory").mkdir()
    with pytest.raises(GossamerError, match=rf"Cannot write {re.escape(name)}: .*; choose another place or make room"):
        write(Path(name))
    assert [p.name for p in tmp_path.iterdir()] == ["directory"]


@pytest.mark.parametrize("write", [check_writable, lambda path: write_text(path, "x")], ids=["check", "write"])
def test_a_place_where_nobody_can_write(write, tmp_path, monkeypatch):
    def refuse(*args, **kwargs):
        raise PermissionError(13, os.strerror(13))

    monkeypatch.setattr(Path, "mkdir", refuse)
    with pytest.raises(GossamerError, match=r"Cannot write .*: Permission denied; choose another place or make room"):
        write(tmp_path / "new" / "x.json")


def test_check_writable_makes_the_directory_and_leaves_no_file(tmp_path):
    check_writable(tmp_path / "new" / "x.json")
    assert list(tmp_path.iterdir()) == [tmp_path / "new"]
    assert list((tmp_path / "new").iterdir()) == []


def test_a_directory_that_was_removed_is_not_made_again(tmp_path):
    path = tmp_path / "run" / "metrics.jsonl"
    write_text(path, "one")
    write_text(path, "two", make_directory=False)
    shutil.rmtree(path.parent)
    with pytest.raises(DiskError, match="run has been removed while the run was using it; put it back") as raised:
        write_text(path, "three", make_directory=False)
    assert raised.value.errno == errno.ENOENT
    path.parent.mkdir()

    def write_and_lose() -> None:
        with replacing(path, make_directory=False) as temporary:
            temporary.write_text("four")
            shutil.rmtree(path.parent)

    with pytest.raises(DiskError, match="has been removed"):
        write_and_lose()
    assert not path.parent.exists()
