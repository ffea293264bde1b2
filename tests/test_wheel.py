"""The wheel: all that is needed to work without the source tree."""

import os
import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def call(*command, cwd, timeout=500):
    # What the tests themselves import from must not help.
    environment = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")}
    environment["NUMBA_DISABLE_JIT"] = "1"  # kernels in another place would be compiled again
    words = list(map(str, command))
    done = subprocess.run(words, cwd=cwd, env=environment, capture_output=True, text=True, timeout=timeout, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """Built from the source distribution, as for a release."""
    here = tmp_path_factory.mktemp("build")
    source = shutil.copytree(ROOT, here / "source", ignore=shutil.ignore_patterns(".*", "runs", "out", "site"))
    call(sys.executable, "-m", "build", "--no-isolation", "--outdir", here / "dist", source, cwd=here)
    (found,) = (here / "dist").glob("*.whl")
    return found


def works_alone(python: Path, here: Path) -> None:
    """A small comparison with its report, from another directory."""
    where = call(python, "-c", "import gossamer; print(gossamer.__file__)", cwd=here)
    assert Path(where.strip()).is_relative_to(here)
    words = ["compare", "--rounds", "3", "--batch-size", "32", "--methods", "dsgdm,momentum-tracking"]
    out = call(python.parent / "gossamer", *words, cwd=here)
    assert "Momentum Tracking" in out
    assert list(here.rglob("report.html"))


def test_holds_every_file_of_the_package(wheel):
    with zipfile.ZipFile(wheel) as file:
        inside = {name for name in file.namelist() if name.startswith("gossamer/")}
    package = [path for path in (ROOT / "gossamer").rglob("*") if path.is_file() and path.suffix != ".pyc"]
    assert inside == {path.relative_to(ROOT).as_posix() for path in package}


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_runs_without_the_source_tree(wheel, tmp_path):
    # The dependencies are lent by this environment as a plain path, so that no .pth of it is read: gossamer itself
    # comes from the wheel or not at all.
    venv.create(tmp_path / "env", with_pip=False, symlinks=True)
    show = "import site; print(site.getsitepackages()[0])"
    site = call(tmp_path / "env/bin/python", "-c", show, cwd=tmp_path).strip()
    Path(site, "lent.pth").write_text(sysconfig.get_path("purelib") + "\n")
    call(sys.executable, "-m", "pip", "--python", tmp_path / "env/bin/python", "install", "--quiet", "--no-deps",
         "--no-index", "--no-compile", "--disable-pip-version-check", wheel, cwd=tmp_path)  # fmt: skip
    works_alone(tmp_path / "env/bin/python", tmp_path)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_installs_into_a_clean_environment(wheel, tmp_path):
    venv.create(tmp_path / "env", with_pip=True)
    call(tmp_path / "env/bin/python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check",
         "-c", ROOT / "constraints.txt", f"{wheel}[report]", cwd=tmp_path, timeout=1500)  # fmt: skip
    works_alone(tmp_path / "env/bin/python", tmp_path)
    assert "momentum-tracking" in call(tmp_path / "env/bin/gossamer", "doctor", cwd=tmp_path)
