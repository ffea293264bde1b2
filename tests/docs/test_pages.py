"""The pages say what the code does, and the site they make is whole and keeps to itself."""

import importlib.util
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from types import ModuleType

import pytest
import yaml

import gossamer

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
pytestmark = pytest.mark.timeout(400)


def script(name: str) -> ModuleType:
    """A script of docs/ as a module."""
    spec = importlib.util.spec_from_file_location(f"docs_{name}", DOCS / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def generate(monkeypatch):
    """docs/generate.py --check, with the methods that come with Gossamer and no others."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(sys, "argv", ["docs/generate.py", "--check"])
    built_in = {name: gossamer.methods.find(name) for name in gossamer.methods.BUILT_IN}
    monkeypatch.setattr(gossamer.Method, "_registry", built_in)
    return script("generate")


def test_what_comes_from_the_code_is_up_to_date(generate, capsys):
    assert (generate.main(), capsys.readouterr().err) == (0, "")


def test_an_outdated_part_is_named(generate, monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(generate, "HERE", tmp_path / "docs")
    shutil.copytree(DOCS / "topologies", tmp_path / "docs" / "topologies")
    page = Path(shutil.copy(DOCS / "methods.md", tmp_path / "docs"))
    page.write_text(page.read_text(encoding="utf-8").replace("2 vectors", "3 vectors"), encoding="utf-8")
    assert generate.main() == 1
    assert capsys.readouterr().err == "docs/methods.md is out of date; run: make docs\n"


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The site, built strictly: a warning or a broken link ends the build."""
    here = tmp_path_factory.mktemp("docs")
    shutil.copytree(DOCS, here / "docs")
    shutil.copy(ROOT / "zensical.toml", here)
    (here / "gossamer").symlink_to(ROOT / "gossamer")
    zensical = Path(sys.executable).parent / "zensical"
    done = subprocess.run(
        [zensical, "build", "--strict"], cwd=here, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return here / "site"


def test_the_site_is_whole_and_loads_nothing_from_elsewhere(built):
    assert script("check_site").problems(built.resolve()) == []


def test_every_page_is_in_the_navigation(built):
    config = tomllib.loads((ROOT / "zensical.toml").read_text(encoding="utf-8"))
    listed = set(re.findall(r"'([^']+\.md)'", repr(config["project"]["nav"])))
    assert listed == {path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md")}
    assert all((built / page).with_suffix(".html").exists() for page in listed)


def test_every_public_name_is_in_the_reference(built):
    for name in gossamer.__all__:
        assert f"gossamer.{name}" in (built / "api" / "gossamer.html").read_text(encoding="utf-8"), name
    for package in ("methods", "topology", "engine", "optim"):
        page = (built / "api" / f"{package}.html").read_text(encoding="utf-8")
        for name in getattr(gossamer, package).__all__:
            assert f'id="gossamer.{package}.{name}"' in page, name


def test_sources_are_not_published(built):
    assert not list(built.rglob("*.py"))


@pytest.mark.parametrize(
    ("page", "sentence"),
    [
        ('<script src="https://cdn.example/x.js"></script>', " loads https://cdn.example/x.js from another host"),
        ('<link rel="stylesheet" href="//fonts.example/a.css">', " loads //fonts.example/a.css from another host"),
        ('<pre class="mermaid">graph</pre>', " loads https://unpkg.com/mermaid from another host"),
        ('<a href="nowhere.html">x</a>', ": the link nowhere.html leads nowhere"),
        ('<a href="#there">x</a><p id="here">', ": the link #there names an anchor that its page does not have"),
    ],
)
def test_the_check_of_the_site_can_fail(page, sentence, tmp_path):
    (tmp_path / "index.html").write_text(page, encoding="utf-8")
    assert script("check_site").problems(tmp_path) == [f"index.html{sentence}"]


def test_a_style_that_loads_a_font_is_found(tmp_path, monkeypatch, capsys):
    (tmp_path / "index.html").write_text("<p>hello</p>", encoding="utf-8")
    (tmp_path / "a.css").write_text("@font-face{src:url(https://fonts.example/a.woff2)}", encoding="utf-8")
    monkeypatch.setattr(sys, "argv", ["docs/check_site.py", str(tmp_path)])
    assert script("check_site").main() == 1
    assert "a.css loads" in capsys.readouterr().err


def test_what_is_started_with_standalone_says_what_strangers_can_do():
    pages = [ROOT / "README.md", *DOCS.rglob("*.md"), *(ROOT / "examples").glob("*.py")]
    told = {page: page.read_text(encoding="utf-8") for page in pages}
    starting = {page: text for page, text in told.items() if "torchrun --standalone" in text}
    assert len(starting) > 10
    assert [str(page) for page, text in starting.items() if not re.search("[Ss]trangers who reach", text)] == []
    # With another rendezvous among hosts, strangers could run code there, too.
    started = "\n".join(told.values()).replace("\\\n", " ").splitlines()
    assert not [line for line in started if "torchrun --nnodes" in line and "--rdzv" in line]


def test_pictures_are_small():
    pictures = [*DOCS.rglob("*.svg"), *DOCS.rglob("*.png")]
    assert len(pictures) >= 16
    assert all(path.stat().st_size < 40_000 for path in pictures)


def test_every_figure_has_its_numbers():
    for figure in (DOCS / "figures").glob("*.png"):
        assert figure.with_suffix(".json").exists()


def test_the_citation_names_this_version():
    told = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert told["version"] == gossamer.__version__
    assert {"cff-version", "title", "message", "authors", "license"} <= set(told)


def test_contributing_has_a_checklist_for_each_kind_of_addition():
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    for kind in ("method", "graph", "dataset", "recipe"):
        section = text.split(f"## Add a {kind}\n")[1].split("\n## ")[0]
        assert "conformance kit" in section.split("\n1. ")[1]


def test_the_files_that_contributing_names_exist():
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    named = re.findall(r"`((?:gossamer|tests|docs|benchmarks|examples)/[\w/.]*)`", text)
    assert len(named) > 10
    assert [path for path in named if "NAME" not in path and not (ROOT / path).exists()] == []


def test_the_table_of_options_has_all_that_optimizers_take():
    page = (DOCS / "real_nodes.md").read_text()
    table = page[page.index("| option | meaning |") :].partition("\n\n")[0]
    assert set(re.findall(r"^\| `(\w+)", table, re.MULTILINE)) == set(gossamer.optim.Options.__annotations__)
