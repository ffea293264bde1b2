"""The code blocks of the README and the documentation do what they show.

Python blocks run, page by page, in one namespace; shell lines are checked against the command line, the Makefile and
the examples; TOML describes experiments that exist, or sites. A block is left out only if its title says so, with the
reason, where the reader sees it too: ```python title="not run: needs two hosts". Of a block that needs other processes,
because it starts a process group or begins with the name of a script ("# train.py"), only the imports run.
"""

import ast
import doctest
import re
import shlex
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import pytest

from gossamer.experiments.grid import Grid
from gossamer.links.link_plan import plan_of
from gossamer.methods import Method

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
FENCE = re.compile(r"^```(\w+)([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
ANY_FENCE = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LANGUAGES = {"python", "pycon", "sh", "toml", "text", "ini", ""}
CODE = re.compile(r"^(import |from |def |>>> |\$? ?gossamer |torchrun )", re.MULTILINE)
REASON = re.compile(r'title="not run: .{5,}"')
NEEDS_PROCESSES = re.compile(r"^# \w+\.py\n|^(?:\w+\.)*init_process_group\(", re.MULTILINE)
OWN_SCRIPTS = ("examples/", "docs/", "benchmarks/")


@dataclass(frozen=True)
class Block:
    page: str
    line: int
    language: str
    code: str
    skipped: bool


def blocks(page: Path) -> list[Block]:
    text = page.read_text(encoding="utf-8")
    return [
        Block(
            page=page.relative_to(ROOT).as_posix(),
            line=text[: match.start()].count("\n") + 2,
            language=match[1],
            code=match[3],
            skipped=bool(REASON.search(match[2])),
        )
        for match in FENCE.finditer(text)
    ]


BLOCKS = [block for page in PAGES for block in blocks(page)]


def having(language: str) -> list[Block]:
    return [b for b in BLOCKS if b.language == language and not b.skipped]


PYTHON_PAGES = sorted({b.page for b in having("python")})


@pytest.mark.timeout(400)
@pytest.mark.parametrize("page", PYTHON_PAGES)
def test_python_blocks_run(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(Method, "_registry", dict(Method._registry))
    module = ModuleType("documentation")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    for name in ("pandas", "datasets", "opacus", "torchft"):
        shown = rf"import {name}|\.{name} import" if name != "torchft" else r"gs\.Sites\("
        if any(b.page == page and re.search(shown, b.code) for b in having("python")):
            pytest.importorskip(name, reason=f"the page shows {name}: pip install 'gossamer[all]'")
    for block in having("python"):
        if block.page == page:
            # Empty lines in front let a traceback name the line of the page.
            tree = ast.parse("\n" * (block.line - 1) + block.code, str(ROOT / page))
            if NEEDS_PROCESSES.search(block.code):
                tree.body = [line for line in tree.body if isinstance(line, ast.Import | ast.ImportFrom)]
            exec(compile(tree, str(ROOT / page), "exec"), module.__dict__)


def test_sessions_show_what_happens():
    for block in having("pycon"):
        test = doctest.DocTestParser().get_doctest(block.code, {}, block.page, block.page, block.line)
        assert doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(test).failed == 0


def shell_lines() -> list[tuple[str, str]]:
    found = []
    for block in having("sh"):
        text = block.code.replace("\\\n", " ")
        found += [(f"{block.page}:{block.line}", line) for line in text.splitlines() if line.split("#")[0].strip()]
    return found


@pytest.mark.parametrize(("where", "line"), shell_lines())
def test_shell_lines_can_be_given(where, line):
    words = shlex.split(line, comments=True)
    while words and re.fullmatch(r"[A-Z_]+=\S*", words[0]):
        words = words[1:]
    program = Path(words[0]).name
    if program == "gossamer":
        understood(words[1:])
    elif program == "make":
        targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
        assert words[1] in targets
    elif program in ("torchrun", "python") and words[1:3] == ["-m", "gossamer"]:
        understood(words[3:])
    elif program in ("torchrun", "python"):
        if "gossamer" in words:
            understood(words[words.index("gossamer") + 1 :])
            words = []  # a file after --load is not the program
        for script in (w for w in words if w.startswith(OWN_SCRIPTS)):
            known(script, words[words.index(script) + 1 :])


def understood(arguments: list[str]) -> None:
    """The command line knows the command and each of its options."""
    from gossamer.cli.app import app

    if arguments and arguments[-1] not in ("--help", "--version"):
        app.parse_args(arguments, exit_on_error=False, print_error=False)


def known(script: str, arguments: list[str]) -> None:
    """The script exists and takes these options."""
    text = (ROOT / script).read_text(encoding="utf-8")
    for option in (a for a in arguments if a.startswith("--")):
        assert f'"{option}"' in text, f"{script} has no option {option}"


@pytest.mark.parametrize("block", having("toml"), ids=lambda b: f"{b.page}:{b.line}")
def test_toml_describes_experiments_or_sites(block):
    values = tomllib.loads(block.code)
    assert plan_of(values).tunnels if "site" in values else Grid.from_dict(values, block.page).experiments


def test_what_can_be_checked_says_what_it_is():
    """A block in a language that nothing checks, or code in none, would go unchecked, and nobody would notice."""
    for page in PAGES:
        found = ANY_FENCE.findall(page.read_text(encoding="utf-8"))
        assert all(language in LANGUAGES for language, _ in found), page
        assert not [code for language, code in found if not language and CODE.search(code)], page


def test_a_block_is_left_out_only_with_a_reason():
    for page in PAGES:
        for info in re.findall(r"^```\w+( [^\n]+)$", page.read_text(encoding="utf-8"), re.MULTILINE):
            assert REASON.search(info) or (info.startswith(" title=") and "not run" not in info), (page, info)


def test_there_are_blocks():
    """A finder that found nothing would pass everything."""
    assert len(having("python")) > 30
    assert len(shell_lines()) > 15
    assert having("toml")
