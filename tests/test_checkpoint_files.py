import pickle
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch

from gossamer import checkpoint_files
from gossamer.errors import GossamerError


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
