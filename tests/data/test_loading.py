import errno
import gzip
import hashlib
import io
import math
import struct
import tarfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from gossamer.data import Augmentation, Normalization, loading
from gossamer.data.catalog import CATALOG, CatalogEntry
from gossamer.data.loading import get, load, status, verify
from gossamer.errors import DiskError, GossamerError, InputError

Files = dict[str, bytes]


def mnist_like(seed: int, side: int = 28) -> Files:
    """Four IDX files with six training and three test images."""
    rng = np.random.default_rng(seed)
    files = {}
    for part, count in (("train", 6), ("t10k", 3)):
        header = bytes([0, 0, 8, 3]) + struct.pack(">III", count, side, side)
        files[f"{part}-images-idx3-ubyte"] = header + rng.bytes(count * side * side)
        labels = bytes(rng.integers(0, 10, count, dtype=np.uint8))
        files[f"{part}-labels-idx1-ubyte"] = bytes([0, 0, 8, 1]) + struct.pack(">I", count) + labels
    return files


def cifar_like(seed: int) -> Files:
    """Six batches of two samples; batch k begins with label k."""
    rng = np.random.default_rng(seed)
    names = [*(f"data_batch_{number}.bin" for number in range(1, 6)), "test_batch.bin"]
    return {name: b"".join(bytes([k + i]) + rng.bytes(3072) for i in (0, 1)) for k, name in enumerate(names)}


def plain(folder: Path, files: Files) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in files.items():
        (folder / name).write_bytes(data)
    return folder


def gzipped(folder: Path, files: Files) -> Path:
    return plain(folder, {f"{name}.gz": gzip.compress(data) for name, data in files.items()})


def archived(folder: Path, files: Files) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    with tarfile.open(folder / "cifar-10-binary.tar.gz", "w:gz") as archive:
        for name, data in {"readme.html": b"hello", **files}.items():
            member = tarfile.TarInfo(f"cifar-10-batches-bin/{name}")
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return folder


def make_official(monkeypatch: pytest.MonkeyPatch, name: str, files: Files, **changes: object) -> CatalogEntry:
    """Let the catalog expect these hand-made files as the official ones."""
    contents = {file: f"md5:{hashlib.md5(data).hexdigest()}" for file, data in files.items()}
    entry = replace(CATALOG[name], contents=contents, **changes)
    monkeypatch.setitem(CATALOG, name, entry)
    return entry


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine without any data: an empty cache, no variable, no system packages."""
    for variable in ("GOSSAMER_DATA", "GOSSAMER_VERIFY"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setitem(CATALOG, "fashion-mnist", replace(CATALOG["fashion-mnist"], system_folder=tmp_path / "system"))
    return tmp_path


@pytest.fixture
def fashion(monkeypatch: pytest.MonkeyPatch) -> Files:
    files = mnist_like(0)
    make_official(monkeypatch, "fashion-mnist", files)
    return files


def test_idx_files_become_a_dataset(home: Path, fashion: Files) -> None:
    data = load("fashion-mnist", gzipped(home / "data", fashion))
    assert data.name == "fashion-mnist"
    assert data.train_inputs.shape == (6, 1, 28, 28)
    assert data.test_inputs.shape == (3, 1, 28, 28)
    assert data.train_inputs.numpy().tobytes() == fashion["train-images-idx3-ubyte"][16:]
    assert bytes(data.test_targets.tolist()) == fashion["t10k-labels-idx1-ubyte"][8:]
    assert data.train_targets.dtype == torch.int64
    assert data.classes[9] == "Ankle boot"
    assert data.normalization == Normalization()
    assert data.augmentation == Augmentation(padding=4)


@pytest.mark.parametrize("write", [plain, gzipped])
@pytest.mark.parametrize("folder", [".", "fashion-mnist", "FashionMNIST/raw"])
def test_files_are_found_directly_or_in_a_folder(
    home: Path, fashion: Files, write: Callable[[Path, Files], Path], folder: str
) -> None:
    write(home / "data" / folder, fashion)
    assert len(load("Fashion_MNIST", home / "data").train_targets) == 6


def test_places_are_searched_in_order(home: Path, fashion: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    places = [
        gzipped(home / "system", fashion),
        gzipped(home / "cache" / "gossamer" / "fashion-mnist", fashion),
        gzipped(home / "variable" / "fashion-mnist", fashion),
        gzipped(home / "argument", fashion),
    ]
    monkeypatch.setenv("GOSSAMER_DATA", str(home / "variable"))
    assert verify("fashion-mnist", home / "argument").folder == places[3]
    assert verify("fashion-mnist").folder == places[2]
    assert verify("fashion-mnist", home / "empty").folder == places[2]
    monkeypatch.delenv("GOSSAMER_DATA")
    assert verify("fashion-mnist").folder == places[1]
    for path in places[1].iterdir():
        path.unlink()
    assert verify("fashion-mnist").folder == places[0]


def test_the_cache_is_in_the_home_directory_by_default(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(home))
    assert loading.cache_dir() == home / ".cache" / "gossamer"


def test_a_missing_dataset_says_what_to_do(home: Path) -> None:
    with pytest.raises(GossamerError) as error:
        load("mnist")
    message = str(error.value)
    assert "run `gossamer data get mnist`" in message
    assert "put train-images-idx3-ubyte.gz, train-labels-idx1-ubyte.gz" in message
    assert f"into {home}/cache/gossamer/mnist" in message
    assert "set GOSSAMER_DATA" in message
    with pytest.raises(GossamerError, match=r"gossamer data get cifar-10 --data-dir 'my data'`"):
        verify("cifar-10", "my data")


def test_a_part_of_a_dataset_is_named(home: Path, fashion: Files) -> None:
    folder = gzipped(home / "data" / "fashion-mnist", fashion)
    (folder / "t10k-labels-idx1-ubyte.gz").unlink()
    with pytest.raises(GossamerError, match=rf"{folder} has only a part of it and lacks t10k-labels-idx1-ubyte\."):
        load("fashion-mnist", home / "data")


def test_an_unknown_dataset_gets_a_suggestion() -> None:
    for use in (load, get, verify):
        with pytest.raises(GossamerError, match="no dataset 'cifar10'; did you mean 'cifar-10'"):
            use("cifar10")


@pytest.mark.parametrize("name", [None, 5, ["digits"], (torch.zeros(2, 2), torch.zeros(2))])
def test_what_is_no_name_gets_a_sentence(name: object) -> None:
    for use in (load, get, verify):
        with pytest.raises(GossamerError, match=rf"not by an object of type {type(name).__name__}; .*from_tensors"):
            use(name)


@pytest.mark.parametrize("name", ["digits", "mnist"])
def test_what_is_no_directory_gets_a_sentence(name: str) -> None:
    for use in (load, get, verify, lambda name, data_dir: status(data_dir)):
        with pytest.raises(GossamerError, match=r"data_dir is the path of a directory, or None .*, not 5"):
            use(name, 5)


def test_a_wrong_checksum_is_refused_and_can_be_accepted(home: Path, fashion: Files) -> None:
    changed = mnist_like(1)
    gzipped(home / "data", fashion | {"t10k-images-idx3-ubyte": changed["t10k-images-idx3-ubyte"]})
    with pytest.raises(GossamerError) as error:
        load("fashion-mnist", home / "data")
    message = str(error.value)
    assert message.startswith(f"{home}/data/t10k-images-idx3-ubyte.gz does not have the checksum of the official")
    assert f"`gossamer data get fashion-mnist --data-dir {home}/data`" in message
    assert "verify=False" in message
    accepted = load("fashion-mnist", home / "data", verify=False)
    assert accepted.test_inputs.numpy().tobytes() == changed["t10k-images-idx3-ubyte"][16:]


def test_the_environment_accepts_a_wrong_checksum_where_the_program_does_not_say(
    home: Path, fashion: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = gzipped(home / "data", mnist_like(1))
    for value in ("1", ""):
        monkeypatch.setenv("GOSSAMER_VERIFY", value)
        with pytest.raises(
            GossamerError, match="accept this one with GOSSAMER_VERIFY=0 in the environment or gossamer"
        ):
            load("fashion-mnist", folder)
    monkeypatch.setenv("GOSSAMER_VERIFY", "0")
    assert len(load("fashion-mnist", folder).train_targets) == 6
    for check in (lambda: load("fashion-mnist", folder, verify=True), lambda: verify("fashion-mnist", folder)):
        with pytest.raises(GossamerError, match="does not have the checksum"):
            check()
    monkeypatch.setenv("GOSSAMER_VERIFY", "no")
    with pytest.raises(GossamerError, match=r"GOSSAMER_VERIFY is 0 .* or 1 .*, not 'no'"):
        load("fashion-mnist", folder)


def test_a_damaged_copy_is_not_silently_replaced_by_another(home: Path, fashion: Files) -> None:
    gzipped(home / "data", mnist_like(1))
    gzipped(home / "cache" / "gossamer", fashion)
    with pytest.raises(GossamerError, match="does not have the checksum"):
        load("fashion-mnist", home / "data")


def test_the_files_of_another_dataset_are_recognised(home: Path, fashion: Files) -> None:
    with pytest.raises(GossamerError, match=r"train-images-idx3-ubyte.gz belongs to fashion-mnist, not to mnist"):
        load("mnist", gzipped(home / "data", fashion))


def test_images_of_another_size_are_refused_even_unverified(home: Path) -> None:
    with pytest.raises(GossamerError, match=r"samples of shape \[1, 8, 8\] where mnist has \[1, 28, 28\]"):
        load("mnist", gzipped(home / "data", mnist_like(0, side=8)), verify=False)


@pytest.mark.parametrize(
    "damage", [lambda data: data[:-12], lambda data: b"junk", lambda data: data[:40] + b"x" + data[41:]]
)
def test_a_damaged_gzip_file_is_named(home: Path, fashion: Files, damage: Callable[[bytes], bytes]) -> None:
    path = gzipped(home / "data", fashion) / "train-images-idx3-ubyte.gz"
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(InputError, match=r"train-images-idx3-ubyte.gz cannot be read"):
        load("fashion-mnist", home / "data", verify=False)


def test_nothing_is_unpacked_beyond_the_size_of_the_dataset(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(CATALOG, "mnist", replace(CATALOG["mnist"], largest=10_000))
    monkeypatch.setitem(CATALOG, "cifar-10", replace(CATALOG["cifar-10"], largest=10_000))
    files = mnist_like(0)
    files["t10k-images-idx3-ubyte"] += bytes(10_000)
    with pytest.raises(
        InputError, match=r"t10k-images-idx3-ubyte\.gz cannot be read: it unpacks to more than the 10,000"
    ):
        load("mnist", gzipped(home / "data", files), verify=False)
    batches = cifar_like(0)
    batches["test_batch.bin"] = bytes(3 << 20)
    with pytest.raises(
        InputError, match=r"binary\.tar\.gz cannot be read: it unpacks to more than the 1,108,576 bytes"
    ):
        load("cifar-10", archived(home / "archive", batches), verify=False)
    # A header of an archive may be as large as any file: this one is a name of 3 MB.
    long = {f"{'x' * (3 << 20)}/{name}": data for name, data in cifar_like(0).items()}
    with pytest.raises(InputError, match="it unpacks to more than"):
        load("cifar-10", archived(home / "names", long), verify=False)


@pytest.mark.parametrize("name", CATALOG)
def test_the_official_files_fit(name: str) -> None:
    entry = CATALOG[name]
    pixels = math.prod(entry.sample_shape)
    most = {"fashion-mnist": 60_000, "mnist": 60_000, "cifar-10": 10_000, "svhn": 73_257, "digits": 1_797}[name]
    assert most * pixels < entry.largest < 1.01 * most * pixels + 100


def test_a_file_that_the_disk_refuses_is_no_damaged_file(
    home: Path, fashion: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = plain(home / "data", fashion)

    def refuse(path: Path) -> bytes:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(Path, "read_bytes", refuse)
    with pytest.raises(DiskError, match=r"train-images-idx3-ubyte cannot be read: Permission denied"):
        load("fashion-mnist", folder)


@pytest.mark.parametrize(
    ("write", "folder"),
    [
        (plain, "."),
        (plain, "cifar-10-batches-bin"),
        (plain, "cifar-10/cifar-10-batches-bin"),
        (archived, "."),
        (archived, "cifar-10"),
    ],
)
def test_cifar10_is_read_from_its_batches_or_its_archive(
    home: Path, monkeypatch: pytest.MonkeyPatch, write: Callable[[Path, Files], Path], folder: str
) -> None:
    files = cifar_like(0)
    make_official(monkeypatch, "cifar-10", files)
    write(home / "data" / folder, files)
    data = load("cifar-10", home / "data")
    assert data.train_targets.tolist() == [0, 1, 1, 2, 2, 3, 3, 4, 4, 5]
    assert data.test_targets.tolist() == [5, 6]
    assert data.train_inputs[9].numpy().tobytes() == files["data_batch_5.bin"][3074:]
    assert data.classes[5] == "dog"
    assert data.normalization == Normalization(0.5, 0.5)
    assert data.augmentation == Augmentation(padding=4, flip=True)


def test_a_batch_inside_the_archive_is_checked(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = cifar_like(0)
    make_official(monkeypatch, "cifar-10", files)
    archived(home / "data", files | {"data_batch_3.bin": cifar_like(1)["data_batch_3.bin"]})
    with pytest.raises(GossamerError, match=r"cifar-10-binary.tar.gz \(data_batch_3.bin\) does not have the checksum"):
        load("cifar-10", home / "data")


def test_an_archive_without_all_batches_is_refused(home: Path) -> None:
    files = cifar_like(0)
    del files["test_batch.bin"]
    with pytest.raises(GossamerError, match=r"the archive lacks test_batch.bin"):
        load("cifar-10", archived(home / "data", files), verify=False)


def test_status_lists_every_dataset(home: Path, fashion: Files) -> None:
    folder = gzipped(home / "data" / "fashion-mnist", fashion)
    lines = {line.name: line for line in status(home / "data")}
    assert list(lines) == ["fashion-mnist", "cifar-10", "svhn", "mnist", "digits"]
    assert lines["fashion-mnist"].folder == folder
    assert lines["cifar-10"].folder is None
    assert lines["cifar-10"].download_size == 170_052_171
    assert lines["digits"].folder is not None
    assert lines["svhn"].title == "SVHN (cropped digits)"


def test_verify_returns_the_files(home: Path, fashion: Files) -> None:
    folder = gzipped(home / "data", fashion)
    found = verify("fashion-mnist", home / "data")
    assert found.name == "fashion-mnist"
    assert dict(found.files) == {name: folder / f"{name}.gz" for name in fashion}


class Web:
    """Stands in for the network: hands out files by address and counts what it was asked for."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, entry: CatalogEntry, files: Files) -> None:
        self.files = {f"{name}.gz": gzip.compress(data) for name, data in files.items()}
        self.asked: list[str] = []
        published = {name: (f"md5:{hashlib.md5(data).hexdigest()}", len(data)) for name, data in self.files.items()}
        monkeypatch.setitem(CATALOG, entry.name, replace(entry, published=published))
        monkeypatch.setattr(loading, "fetch", self.fetch)

    def fetch(self, addresses: list[str], target: Path, checksum: str, on_progress: object) -> Path:
        assert all(address.endswith(f"/{target.name}") for address in addresses)
        assert on_progress is not None
        self.asked.append(target.name)
        target.write_bytes(self.files[target.name])
        return target


@pytest.fixture
def web(fashion: Files, monkeypatch: pytest.MonkeyPatch) -> Web:
    return Web(monkeypatch, CATALOG["fashion-mnist"], fashion)


def test_get_downloads_into_the_cache_and_then_not_again(home: Path, web: Web) -> None:
    assert get("fashion-mnist").folder == home / "cache" / "gossamer" / "fashion-mnist"
    assert len(web.asked) == 4
    get("fashion-mnist", on_progress=lambda name, done, total: None)
    assert len(web.asked) == 4


def test_get_downloads_into_the_directory_that_was_named(home: Path, web: Web, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GOSSAMER_DATA", str(home / "variable"))
    assert get("fashion-mnist").folder == home / "variable" / "fashion-mnist"
    monkeypatch.setenv("GOSSAMER_DATA", str(home / "nothing"))
    assert get("fashion-mnist", home / "argument").folder == home / "argument" / "fashion-mnist"


def test_get_continues_with_the_files_that_are_missing(home: Path, web: Web) -> None:
    folder = home / "data" / "fashion-mnist"
    plain(folder, {"t10k-labels-idx1-ubyte.gz": web.files["t10k-labels-idx1-ubyte.gz"]})
    get("fashion-mnist", home / "data", lambda name, done, total: None)
    assert web.asked == ["train-images-idx3-ubyte.gz", "train-labels-idx1-ubyte.gz", "t10k-images-idx3-ubyte.gz"]


@pytest.mark.parametrize("write", [plain, gzipped])
@pytest.mark.parametrize("folder", [".", "fashion-mnist"])
def test_get_replaces_a_damaged_dataset(
    home: Path, web: Web, write: Callable[[Path, Files], Path], folder: str
) -> None:
    write(home / "data" / folder, mnist_like(9))
    get("fashion-mnist", home / "data")
    assert verify("fashion-mnist", home / "data").folder == home / "data" / "fashion-mnist"


def test_get_replaces_a_damaged_copy_of_the_systems(home: Path, web: Web) -> None:
    plain(home / "system", mnist_like(9))
    with pytest.raises(GossamerError, match="run `gossamer data get fashion-mnist`"):
        load("fashion-mnist")
    assert get("fashion-mnist").folder == home / "cache" / "gossamer" / "fashion-mnist"
    assert len(load("fashion-mnist").test_targets) == 3


def test_load_downloads_when_asked_to(home: Path, web: Web) -> None:
    assert len(load("fashion-mnist", home / "data", download=True).test_targets) == 3
    assert len(load("fashion-mnist", home / "data", download=True).test_targets) == 3
    assert len(web.asked) == 4


def test_a_place_that_cannot_be_written_is_named(home: Path) -> None:
    (home / "file").write_text("in the way")
    with pytest.raises(DiskError, match=f"Cannot write mnist into {home}/file/mnist"):
        get("mnist", home / "file")


def test_digits_need_no_download(home: Path) -> None:
    assert set(get("digits", home / "anywhere").files) == {"images-idx3-ubyte", "labels-idx1-ubyte"}
    assert not (home / "anywhere").exists()


def test_broken_digits_ask_for_a_new_installation(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(CATALOG, "digits", replace(CATALOG["digits"], packaged=home / "package"))
    with pytest.raises(GossamerError, match="digits is not on this machine; install gossamer again"):
        load("digits")
    plain(home / "package", {"images-idx3-ubyte": b"", "labels-idx1-ubyte": b""})
    for use in (load, get, verify):
        with pytest.raises(GossamerError, match="install gossamer again to get the official one"):
            use("digits")


@pytest.mark.parametrize("entry", CATALOG.values(), ids=lambda entry: entry.name)
def test_the_catalog_is_consistent(entry: CatalogEntry) -> None:
    assert CATALOG[entry.name].title == entry.title
    digits = {"md5": 32, "sha256": 64}
    for checksum in [*entry.contents.values(), *(checksum for checksum, _ in entry.published.values())]:
        algorithm, _, value = checksum.partition(":")
        assert len(value) == digits[algorithm]
        assert int(value, 16) >= 0
    assert len(entry.classes) == len(set(entry.classes)) == 10
    if entry.packaged is None:
        assert entry.folders[0] == entry.name
        names = {file.removesuffix(".gz") for file in entry.published}
        assert names == set(entry.contents) or list(entry.published) == [entry.archive]
        assert all(address.startswith("http") and address.endswith("/") for address in entry.addresses)
