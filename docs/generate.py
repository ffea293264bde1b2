"""Write docs/methods.md from what the methods declare.

python docs/generate.py            write the page
python docs/generate.py --check    exit with 1 if the page is not what the code declares
"""

import inspect
import sys
from pathlib import Path

from gossamer import methods

PAGE = Path(__file__).parent / "methods.md"
PROMISES = {
    "exact": "exact",
    "exact_on_schedules": "exact on schedules",
    "preserves_mean": "mean follows SGD",
    "equals_sgd_alone": "equals SGD alone",
    "tracks": "tracks",
    "overlaps": "overlaps",
}


def page() -> str:
    """The whole page."""
    found = [methods.find(name) for name in methods.BUILT_IN]
    head = ["method", "sends per round and edge", "needs", *PROMISES.values()]
    rows = [
        [
            f"[{cls.facts.title}](#{cls.name})",
            cls.facts.cost,
            str(cls.facts.needs),
            *("yes" if getattr(cls.facts, key) else "–" for key in PROMISES),
        ]
        for cls in found
    ]
    lines = [
        "# Methods",
        "",
        "Made by `make docs` from what the methods declare; `gossamer.testing.check_method` checks every declaration.",
        "",
        f"| {' | '.join(head)} |",
        f"|{'---|' * len(head)}",
        *(f"| {' | '.join(row)} |" for row in rows),
        "",
        *_legend(),
    ]
    for cls in found:
        lines += [
            f'<a id="{cls.name}"></a>',
            "",
            f"## {cls.facts.title}",
            "",
            f"`gossamer.methods.get({cls.name!r})`",
            "",
        ]
        lines += ["```text", inspect.getdoc(cls) or "", "```", ""]
    return "\n".join(lines)


def _legend() -> list[str]:
    docs = inspect.getsource(methods.Facts).split("\n")
    told = {}
    for k, line in enumerate(docs):
        name = line.strip().split(":")[0]
        if name in PROMISES:
            told[name] = docs[k + 1].strip().strip('"')
    return [f"- **{title}**: {told[key]}" for key, title in PROMISES.items()] + [""]


def main() -> int:
    """Write or check."""
    text = page()
    if "--check" in sys.argv:
        return int(PAGE.read_text(encoding="utf-8") != text)
    PAGE.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
