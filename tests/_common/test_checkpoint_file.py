import pickle
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch

from gossamer._common import checkpoint_file as checkpoint_files
from gossamer.errors import DiskError, GossamerError


@contextmanager
def full_disk(size: int) -> Iterator[None]:
    """No file may grow beyond so many bytes."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_full_disk_is_named(tmp_path: Path) -> None:
    with full_disk(200_000), pytest.raises(GossamerError, match=r"Cannot write .*ckpt: File too large; .* make room"):
        checkpoint_files.write(tmp_path, 3, {}, {"x": torch.ones(200_000)})
    assert not list(tmp_path.iterdir())


def test_other_errors_of_torch_are_not_taken_for_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("CUDA error")

    monkeypatch.setattr(torch, "save", fail)
    with pytest.raises(RuntimeError, match="CUDA error"):
        checkpoint_files.write(tmp_path, 3, {}, {})
    assert not list(tmp_path.iterdir())


def test_an_object_in_a_file_is_refused_with_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint_files, "plain", lambda value, where="": value)
    path = checkpoint_files.write(tmp_path, 3, {}, {"x": range(3)})
    with pytest.raises(GossamerError, match=r"holds an object that is more than tensors, .* move it away") as refused:
        checkpoint_files.read(path)
    assert isinstance(refused.value.__cause__, pickle.UnpicklingError)
    assert path.exists()


def test_the_versions_of_modules_are_kept(tmp_path: Path) -> None:
    state = torch.nn.BatchNorm1d(2).state_dict()
    state["seen"] = torch.ones(2).double().numpy()[0]
    saved = checkpoint_files.read(checkpoint_files.write(tmp_path, 3, {}, {"model": state}))["content"]["model"]
    assert type(saved["seen"]) is float
    assert saved._metadata == state._metadata  # type: ignore[attr-defined]


def test_the_settings_are_read_alone(tmp_path: Path) -> None:
    path = checkpoint_files.write(tmp_path, 3, {"lr": 0.1}, {"x": torch.ones(5)})
    assert checkpoint_files.settings_of(path) == {"lr": 0.1}
    for content in (b"", b"hello", path.read_bytes()[:200], path.read_bytes()[200:]):
        path.write_bytes(content)
        assert checkpoint_files.settings_of(path) is None
    torch.save({"settings": "none"}, path)
    assert checkpoint_files.settings_of(path) is None


@pytest.mark.parametrize(
    ("theirs", "ours", "words"),
    [
        ({"lr": 0.1}, {"lr": 0.1}, ""),
        ({"lr": 0.1, "seed": 1}, {"lr": 0.1, "seed": 0}, "its seed is 1, this run's is 0"),
        ({}, {"name": "a"}, "its name is not set, this run's is 'a'"),
        ({"name": "a"}, {"name": ""}, "its name is 'a', this run's is not set"),
    ],
)
def test_what_differs_is_said(tmp_path: Path, theirs: dict[str, Any], ours: dict[str, Any], words: str) -> None:
    if words:
        with pytest.raises(GossamerError, match=f"belongs to another run: {words}; choose another directory"):
            checkpoint_files.refuse_foreign(tmp_path, theirs, ours)
    else:
        checkpoint_files.refuse_foreign(tmp_path, theirs, ours)


def test_a_file_that_cannot_be_renamed_is_named(tmp_path: Path) -> None:
    with pytest.raises(DiskError, match=r"Cannot write .*round-000000003\.ckpt\.damaged: No such file"):
        checkpoint_files.set_aside(checkpoint_files.path_of(tmp_path, 3))
