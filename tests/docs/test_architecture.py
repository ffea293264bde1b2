"""docs/architecture.md leads a reader through the package: its map is complete, its tours are real and short.

The map names every package as `x/` and every module as `x/y.py`, relative to gossamer/. A step of a tour is written
`gossamer/x/y.py`: `function`, or `Class.method`; several names of one file are separated by commas.
"""

import ast
import hashlib
import multiprocessing
import os
import re
import struct
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist

import gossamer

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "architecture.md"
PACKAGE = Path(gossamer.__file__).parent
# What a reader may have to open: from a data file to a table of the report, and from step() to the neighbour and back.
FILES_OF_A_RUN = 40
FILES_OF_A_STEP = 10

_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(["tests.forked"])


def named() -> set[str]:
    """Every package and module that the page names, relative to gossamer/."""
    text = PAGE.read_text(encoding="utf-8")
    return {name.removeprefix("gossamer/") for name in re.findall(r"`([\w/]+(?:\.py|/))`", text)} - {""}


def test_the_map_names_every_package_and_every_module():
    modules = {path.relative_to(PACKAGE) for path in PACKAGE.rglob("*.py")}
    packages = {f"{path.parent.as_posix()}/" for path in modules if path.name == "__init__.py" and path.parent.name}
    assert (packages | {path.as_posix() for path in modules if path.name != "__init__.py"}) - named() == set()


def test_what_the_map_names_exists():
    assert {name for name in named() if not (PACKAGE / name).exists() and not (ROOT / name).exists()} == set()


def steps() -> list[tuple[str, str]]:
    """The steps of the tours: a file of the package and a name in it."""
    text = PAGE.read_text(encoding="utf-8")
    found = re.findall(r"`gossamer/([\w/]+\.py)`: ((?:`[\w.]+`(?:, )?)+)", text)
    return [(file, name) for file, names in found for name in re.findall(r"`([\w.]+)`", names)]


def definitions(file: Path) -> set[str]:
    """Functions, classes and methods, the last as Class.method."""
    body = ast.parse(file.read_text(encoding="utf-8")).body
    kinds = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
    top = [node for node in body if isinstance(node, kinds)]
    inner = [(node, part) for node in top for part in getattr(node, "body", ()) if isinstance(node, ast.ClassDef)]
    return {node.name for node in top} | {f"{n.name}.{part.name}" for n, part in inner if isinstance(part, kinds)}


def test_every_step_of_the_tours_exists():
    assert len(steps()) >= 15
    assert [(file, name) for file, name in steps() if name not in definitions(PACKAGE / file)] == []


class Trace:
    """The files of the package in which a Python function is entered; what runs during an import does not count.

    Compiled kernels are machine code, which no trace sees.
    """

    def __init__(self) -> None:
        self.files: set[str] = set()
        self.on = False
        threading.setprofile(self._look)
        sys.setprofile(self._look)

    def _look(self, frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if self.on and event == "call" and code.co_filename.startswith(f"{PACKAGE}{os.sep}") and _is_function(code):
            file = Path(code.co_filename).relative_to(PACKAGE).as_posix()
            if file not in self.files and not _while_importing(frame):
                self.files.add(file)


def _is_function(code: CodeType) -> bool:
    """The bodies of modules and classes have no fast local variables."""
    return bool(code.co_flags & 0x1)


def _while_importing(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code.co_filename == "<frozen importlib._bootstrap>":
            return True
        frame = frame.f_back
    return False


def in_processes(n: int, work: Callable[..., set[str]], *args: Any) -> list[list[str]]:
    """What `work(rank, *args)` returns in n processes that have run nothing of the package before."""
    queue = _context.Queue()
    processes = [_context.Process(target=_main, args=(queue, work, rank, *args)) for rank in range(n)]
    for process in processes:
        process.start()
    try:
        return [sorted(queue.get(timeout=100)) for _ in processes]
    finally:
        for process in processes:
            process.join(10)
            process.kill()


def _main(queue: Any, work: Callable[..., set[str]], *args: Any) -> None:
    torch.set_num_threads(1)
    queue.put(work(*args))


def write_fashion_mnist(folder: Path) -> dict[str, str]:
    """Four files of Fashion-MNIST's format with few images; their checksums."""
    folder.mkdir()
    draws = np.random.default_rng(0)
    checksums = {}
    for part, count in (("train", 200), ("t10k", 50)):
        images = bytes([0, 0, 8, 3]) + struct.pack(">III", count, 28, 28) + draws.bytes(count * 28 * 28)
        labels = bytes([0, 0, 8, 1]) + struct.pack(">I", count) + bytes(k % 10 for k in range(count))
        for name, content in ((f"{part}-images-idx3-ubyte", images), (f"{part}-labels-idx1-ubyte", labels)):
            (folder / name).write_bytes(content)
            checksums[name] = f"md5:{hashlib.md5(content).hexdigest()}"
    return checksums


def compile_kernels() -> None:
    """Compile them, or load them from disk: part of the first run on a machine only, and very slow under a trace."""
    from gossamer.data import Pipeline
    from gossamer.engine.gradients.compiled import Chain
    from gossamer.engine.gradients.recognition import read
    from gossamer.engine.node_models import Layout

    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(4, 3))
    chain, index = Chain(read(model, Layout(model)), (1, 2, 2), Pipeline()), torch.zeros(1, dtype=torch.int64)
    x, pixels = torch.zeros(1, 15), torch.zeros(1, 1, 2, 2, dtype=torch.uint8)
    chain.gradients(x, x.clone(), (pixels, index, index[None], None), torch.ones(1, dtype=torch.float64))


def train_and_tabulate(_: int, place: Path) -> set[str]:
    """A small run on files of Fashion-MNIST's format, and the tables of the report."""
    from gossamer.data.catalog import CATALOG
    from gossamer.experiments.experiment import Experiment
    from gossamer.experiments.training import Execution, train
    from gossamer.report import write_tables

    os.chdir(place)
    checksums = write_fashion_mnist(place / "fashion-mnist")
    CATALOG["fashion-mnist"] = replace(CATALOG["fashion-mnist"], contents=checksums)
    settings = {"dataset": "fashion-mnist", "model": "lenet", "method": "momentum-tracking", "topology": "ring",
                "nodes": 4, "partition": "k-class:k=4", "batch_size": 10, "rounds": 3, "evaluations": 1}  # fmt: skip
    compile_kernels()
    trace = Trace()
    trace.on = True
    run = train(Experiment(**settings), place / "run", Execution(data_dir=place, progress=False))
    tables = write_tables([run], place / "tables")
    trace.on = False
    assert tables
    assert "engine/gradients/compiled/__init__.py" in trace.files
    return trace.files


def take_a_later_step(rank: int, place: Path) -> set[str]:
    """The fourth step of one of two nodes."""
    dist.init_process_group("gloo", init_method=f"file://{place}/store", rank=rank, world_size=2)
    torch.manual_seed(rank)
    model = torch.nn.Linear(4, 3)
    optimizer = gossamer.optim.MomentumTracking(model.parameters(), lr=0.1, momentum=0.9, topology="ring")
    trace = Trace()
    for step in range(4):
        optimizer.zero_grad()
        model(torch.randn(5, 4)).square().mean().backward()
        trace.on = step == 3
        optimizer.step()
        trace.on = False
    optimizer.close()
    dist.destroy_process_group()
    return trace.files


@pytest.mark.parametrize(
    ("nodes", "work", "most"), [(1, train_and_tabulate, FILES_OF_A_RUN), (2, take_a_later_step, FILES_OF_A_STEP)]
)
def test_few_files_are_entered(nodes, work, most, tmp_path):
    for files in in_processes(nodes, work, tmp_path):
        assert 3 < len(files) <= most, "\n".join(files)
