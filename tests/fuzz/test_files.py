"""Files that are damaged, forged or meant for something else: an answer or a sentence, never a traceback."""

import gzip
import hashlib
import json
from pathlib import Path

import pytest

from gossamer import topology
from gossamer.data.loading import load
from gossamer.errors import GossamerError
from gossamer.experiments.experiment import Experiment
from gossamer.experiments.training import train
from tests.data.test_loading import archived, cifar_like, mnist_like, plain
from tests.data.test_svhn import svhn
from tests.fuzz.cases import case, changed, chunks, command, mutated, mutated_json

GRID = b"""\
name = "fuzz"
dataset = "digits"
method = ["dsgdm", "momentum-tracking:beta=0.5"]
nodes = 4
partition = "dirichlet:alpha=0.3"
topology = "ring"
weights = "lazy"
lr = [0.05, 1e-2]
schedule = "step:at_epochs=1/2,factor=0.1"
epochs = 2
batch_size = 16
seed = [0, 1]
slurm = {time = 30}

[[override]]
when = {method = "dsgdm"}
set = {topology = "chain", lr = [0.1]}
"""
WORDS = (
    b"erdos-renyi:probability=1e-9", b"random-regular:degree=3", b"grid:rows=0", b"file:/dev/null", b"matrix:nowhere",
    b"torus", b"hypercube", b"fastest", b"random-matchings:period=0", b"small-world:degree=2,rewire=nan",
    b"k-class:k=11", b"shards:per_node=1000000", b"cosine", b"relaysum", b"gtadam:epsilon=0",
    b"step:at_epochs=,factor=", b"lenet", b"svhn", b"iid", b"k-class:k=-1", b"dirichlet:alpha=inf",
    b"balanced-tree:branching=99999999999999999999", b"complete:", b":::",
)  # fmt: skip


@pytest.mark.parametrize("numbers", chunks(25, 3500))
def test_toml(numbers, tmp_path):
    path = tmp_path / "grid.toml"
    for number in numbers:
        with case(number) as rng:
            text = GRID
            if rng.random() < 0.6:
                lines = text.splitlines(keepends=True)
                at = rng.randrange(len(lines))
                key = lines[at].partition(b"=")[0]
                new = rng.choice((b'"' + rng.choice(WORDS) + b'"', json.dumps(changed(rng, None)).encode()))
                text = b"".join([*lines[:at], key, b" = ", new, b"\n", *lines[at + 1 :]])
            if rng.random() < 0.6:
                text = mutated(rng, text)
            path.write_bytes(text)
            command("sweep", path, "--dry-run", "--out", tmp_path / "runs", *rng.choice(((), ("--json",))))


EDGES = b"berlin lima\nlima tokyo  # a comment\n\ntokyo berlin\ntokyo oslo\n"
NUMBERED = b"0 1\n1 2\n2 3\n3 0\n"
MATRIX = b"0.5, 0.25, 0.25\n0.25, 0.5, 0.25\n0.25, 0.25, 0.5\n"


@pytest.mark.parametrize("numbers", chunks(100, 3000))
def test_edge_lists_and_matrices(numbers, tmp_path):
    path = tmp_path / "graph.txt"
    for number in numbers:
        with case(number) as rng:
            kind, read = rng.choice(
                ((EDGES, topology.from_file), (NUMBERED, topology.from_file), (MATRIX, topology.from_matrix_file))
            )
            text = mutated(rng, kind)
            path.write_bytes(text)
            try:
                graph = read(path)
            except GossamerError:
                continue
            assert graph.graph.is_connected
            path.write_bytes(b"\xef\xbb\xbf" + text.removeprefix(b"\xef\xbb\xbf"))
            assert read(path).fingerprint == graph.fingerprint, "a byte order mark changes nothing"


@pytest.fixture(scope="module")
def datasets():
    """Small files in the forms in which datasets come, by dataset."""
    train_mat, test_mat = svhn([3, 10, 4, 4], pack=True)[0], svhn([5, 10], pack=False)[0]
    return {
        "mnist": mnist_like(0),
        "cifar-10": cifar_like(0),
        "svhn": {"train_32x32.mat": train_mat, "test_32x32.mat": test_mat},
    }


@pytest.mark.parametrize("numbers", chunks(100, 4000))
def test_data_files(numbers, tmp_path, datasets, monkeypatch):
    monkeypatch.delenv("GOSSAMER_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    archived(tmp_path / "archive", datasets["cifar-10"])
    tar = gzip.decompress((tmp_path / "archive" / "cifar-10-binary.tar.gz").read_bytes())
    for number in numbers:
        with case(number) as rng:
            name = rng.choice(list(datasets))
            folder = tmp_path / name
            if name == "cifar-10" and rng.random() < 0.5:
                packed = rng.random() < 0.5
                damage = mutated(rng, gzip.compress(tar)) if packed else gzip.compress(mutated(rng, tar), 1)
                files = {"cifar-10-binary.tar.gz": damage}
            else:
                files = dict(datasets[name])
                victim = rng.choice(list(files))
                # Most damage is done to headers: behind them any bytes will do.
                at = rng.choice((16, 16, 200, len(files[victim])))
                files[victim] = mutated(rng, files[victim][:at]) + files[victim][at:]
                if rng.random() < 0.3:
                    packed = gzip.compress(files.pop(victim), 1)
                    files[f"{victim}.gz"] = mutated(rng, packed) if rng.random() < 0.5 else packed
            plain(folder, files)
            try:
                load(name, folder, verify=False)
            except GossamerError:
                pass
            finally:
                for path in folder.iterdir():
                    path.unlink()


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    """The files of a finished run, by their names, and of one that diverged."""
    place = tmp_path_factory.mktemp("stored")
    runs = [train(Experiment(nodes=3, rounds=2, batch_size=8, seed=seed), place / str(seed)) for seed in (0, 1)]
    return [{path.name: path.read_bytes() for path in run.directory.iterdir()} for run in runs]


def contents(directory: Path) -> dict[str, str]:
    files = (path for path in directory.rglob("*") if path.is_file())
    return {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


@pytest.mark.parametrize("numbers", chunks(12, 3000))
def test_run_directories(numbers, tmp_path, stored):
    runs, out = tmp_path / "runs", tmp_path / "out"
    good = json.loads(stored[0]["run.json"])["id"]
    for number in numbers:
        with case(number) as rng:
            plain(runs / "good", stored[0])
            files = dict(stored[1])
            for name in rng.choice((["run.json"], ["metrics.jsonl"], ["done.json"], ["run.json", "metrics.jsonl"])):
                if name != "metrics.jsonl":
                    files[name] = mutated_json(rng, files[name])
                else:
                    lines = files[name].splitlines()
                    at = rng.randrange(len(lines))
                    lines[at] = mutated_json(rng, lines[at])
                    files[name] = b"\n".join(lines) + b"\n"
            if rng.random() < 0.05:
                files.pop(rng.choice(list(files)))
            plain(runs / "bad", files)
            before = contents(runs)
            kind = rng.randrange(20)
            if kind < 5:
                code, printed, _ = command("show", "run", runs / "bad", *rng.choice(((), ("--json",))))
                assert code == 2 or "bad" in printed
            elif kind == 5:
                command("show", "run", runs / "bad", "--plot", tmp_path / "curve.svg")
            elif kind < 15:
                code, _, told = command("export", runs, "-o", out / "runs.csv", *rng.choice(((), ("--curves",))))
                assert code == 0, told
                assert good in (out / "runs.csv").read_text()
            else:
                drawn = ("--figures", out / "figures") if kind == 19 and number % 5 == 0 else ()
                code, _, told = command("report", runs, "-o", out / "report.html", "--tables", out / "tables", *drawn)
                assert code == 0, told
                assert "Momentum Tracking" in (out / "tables" / "results.csv").read_text()
            assert contents(runs) == before, "a run is only read"
            for path in (runs / "bad").iterdir():
                path.unlink()
