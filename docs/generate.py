"""Fill in the parts of the documentation that come from the code.

python docs/generate.py            write them
python docs/generate.py --check    exit with 1 and name the files that are not what the code says

Such a part is between two comments; the first names its content:

    <!-- made from the code: methods -->
    <!-- end -->

It also writes the drawings of the graphs. Figures and measurements, which take minutes, are made by figures.py.
"""

import re
import sys
from collections.abc import Callable
from pathlib import Path

HERE = Path(__file__).parent
RESULTS = HERE.parent / "results"
sys.path.insert(0, str(HERE / "making"))

import error_sentences  # noqa: E402
import graph_blocks  # noqa: E402
import measured_blocks  # noqa: E402
import method_blocks  # noqa: E402
import reference_blocks  # noqa: E402

from gossamer._common.files import write_text  # noqa: E402

BLOCKS: dict[str, Callable[..., str]] = {
    "methods": method_blocks.overview,
    "method": method_blocks.method,
    "compatibility": method_blocks.compatibility,
    "declarations": method_blocks.declarations,
    "optimizers": method_blocks.optimizers,
    "graphs": graph_blocks.families,
    "schedules": graph_blocks.schedules,
    "names": reference_blocks.names,
    "package": reference_blocks.package,
    "modules": reference_blocks.modules,
    "error": error_sentences.sentence,
    "measured": measured_blocks.measured,
    "result": measured_blocks.result,
    "overview": measured_blocks.overview,
    "beside-the-paper": measured_blocks.beside_the_paper,
    "endings": measured_blocks.endings,
    "comparison": measured_blocks.comparison,
    "synthetic": measured_blocks.synthetic,
    "privacy": measured_blocks.privacy,
    "peers": measured_blocks.peers,
    "wire": measured_blocks.wire,
    "benchmarks": measured_blocks.benchmarks,
}
BLOCK = re.compile(r"(<!-- made from the code: (\S+)((?: \S+)*) -->\n).*?(<!-- end -->)", re.DOTALL)


def filled(page: str) -> str:
    """A page with its blocks replaced."""

    def fill(match: re.Match[str]) -> str:
        opening, kind, arguments, closing = match.groups()
        return f"{opening}\n{BLOCKS[kind](*arguments.split())}\n\n{closing}"

    return BLOCK.sub(fill, page)


def files() -> dict[Path, str]:
    """Every file that comes from the code, and what it must hold."""
    pages = {path: path.read_text(encoding="utf-8") for path in sorted([*HERE.rglob("*.md"), *RESULTS.glob("*.md")])}
    made = {path: filled(text) for path, text in pages.items() if BLOCK.search(text)}
    return made | {HERE / "topologies" / name: svg for name, svg in graph_blocks.drawings().items()}


def main() -> int:
    """Write or check."""
    old = {
        path: text for path, text in files().items() if not path.exists() or path.read_text(encoding="utf-8") != text
    }
    if "--check" in sys.argv:
        for path in old:
            print(f"{path.relative_to(HERE.parent)} is out of date; run: make docs", file=sys.stderr)
        return int(bool(old))
    for path, text in old.items():
        write_text(path, text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
