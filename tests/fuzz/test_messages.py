"""Checkpoints and messages from strangers: refused with a sentence, and no code in them runs."""

import hashlib
import io
import os
import pickle
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from gossamer import topology
from gossamer._common import checkpoint_file as files
from gossamer.errors import GossamerError
from gossamer.network.wire import HEADER_BYTES, Header, mismatch
from tests.engine.digits_nodes import run_digits
from tests.fuzz.cases import VALUES, case, changed, chunks, mutated
from tests.optim.sites import Site

TENSORS = (*VALUES, torch.zeros(0), torch.zeros(3), torch.full((2, 2), torch.nan), torch.zeros(5, dtype=torch.int64))


class Payload:
    """What a pickle must never get to do: this one would leave a file behind."""

    def __init__(self, mark: Path, call: object) -> None:
        self.mark, self.call = mark, call

    def __deepcopy__(self, memo):
        return self

    def __reduce__(self):
        return self.call, ((f"touch {self.mark}",) if self.call is os.system else (str(self.mark), "w"))


def sealed(data: bytes) -> bytes:
    """Bytes with the digest of a genuine checkpoint behind them."""
    return data + hashlib.blake2b(data, digest_size=32).digest()


def forged(rng, genuine: bytes, mark: Path) -> bytes:
    """A checkpoint that was cut, changed or made by somebody who knows the format."""
    kind = rng.randrange(6)
    if kind == 0:
        return mutated(rng, genuine)
    if kind == 1:
        return sealed(mutated(rng, genuine[:-32]))
    buffer = io.BytesIO()
    content = torch.load(io.BytesIO(genuine), weights_only=True)
    if kind < 5:
        made = changed(rng, content, TENSORS)
        if isinstance(made.get("content"), dict) and "extra" in content["content"]:
            made["content"]["extra"] = content["content"]["extra"]  # only the user's own objects can check theirs
        torch.save(made, buffer)
        return sealed(buffer.getvalue())
    payload = Payload(mark, rng.choice((os.system, open, os.mkdir)))
    if rng.random() < 0.3:
        return sealed(pickle.dumps(payload, protocol=rng.choice((0, 2, 4))))
    if rng.random() < 0.5:
        torch.save(changed(rng, content, (payload,)), buffer)
        return sealed(buffer.getvalue())
    with zipfile.ZipFile(io.BytesIO(genuine)) as old, zipfile.ZipFile(buffer, "w") as new:
        for name in old.namelist():
            new.writestr(name, pickle.dumps(payload) if name.endswith("data.pkl") else old.read(name))
    return sealed(buffer.getvalue())


def survive(numbers, genuine: Path, place: Path, resume: Callable[[], object]) -> None:
    """Let a run resume from forgeries of a genuine checkpoint, put into `place`."""
    content, mark = genuine.read_bytes(), place.with_name("executed")
    place.mkdir(parents=True)
    for number in numbers:
        with case(number) as rng:
            (place / genuine.name).write_bytes(forged(rng, content, mark))
            try:
                resume()
            except GossamerError:
                pass
            finally:
                for path in place.iterdir():
                    path.unlink()
            assert not mark.exists(), "code in a file was executed"


@pytest.mark.parametrize("numbers", chunks(30, 1500))
def test_checkpoints_of_the_simulator(numbers, tmp_path):
    run_digits(rounds=2, checkpoint=tmp_path / "genuine", checkpoint_every=1)
    genuine, place = files.path_of(tmp_path / "genuine", 2), tmp_path / "forged"
    survive(numbers, genuine, place, lambda: run_digits(rounds=3, checkpoint=place))


@pytest.mark.parametrize("numbers", chunks(30, 1500))
def test_checkpoints_of_real_nodes(numbers, tmp_path):
    alone = topology.complete(1)
    Site(tmp_path / "genuine", alone, every=1).train(2)
    genuine, place = files.path_of(tmp_path / "genuine" / "node-0", 2), tmp_path / "forged"
    survive(numbers, genuine, place / "node-0", lambda: Site(place, alone, every=1).train(3))


@pytest.mark.parametrize("numbers", chunks(200, 2000, size=2000))
def test_headers_of_messages(numbers):
    mine = Header(round=7, serial=9, node=1, lr=0.05, settings=12345)
    genuine = bytearray(HEADER_BYTES)
    mine.write(memoryview(genuine))
    for number in numbers:
        with case(number) as rng:
            sent = bytearray(rng.randbytes(HEADER_BYTES) if rng.random() < 0.1 else genuine)
            for _ in range(rng.randint(0, 3)):
                at = 8 * rng.randrange(HEADER_BYTES // 8)
                word = rng.choice((rng.randbytes(8), struct.pack("<q", rng.choice((-1, 0, 1, 2**63 - 1, -(2**63))))))
                sent[at : at + 8] = word
            theirs = Header.read(memoryview(sent))
            problem = mismatch(mine, theirs)
            same = theirs is not None and (theirs.round, theirs.serial, theirs.settings) == (7, 9, 12345)
            assert (problem is None) == same
            assert problem is None or problem.endswith(".")
