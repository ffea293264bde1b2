"""From plain-text docstrings to Markdown, for the API reference.

A docstring is a few paragraphs: prose, a formula in plain letters, an example that doctest runs, or a list of
arguments with their explanations indented. Each kind is recognised by how it begins and keeps its shape on the page.
"""

import re
from typing import Any

import griffe

from gossamer import methods

FORMULA = re.compile(r"<-|^\S{1,12}( \S{1,4})? += |^round \d|^.{0,20}[|(].*\^2 <=")
SPECIAL = re.compile(r"([*_<>\[\]|\\])")


class PlainDocstrings(griffe.Extension):
    """Rewrites every docstring that griffe has read."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Called once for every module, class, function and attribute."""
        if obj.docstring is None and (explanation := _explanation(obj)):
            obj.docstring = griffe.Docstring(explanation, parent=obj)
        if obj.docstring is not None:
            obj.docstring.value = markdown(obj.docstring.value)


def _explanation(obj: griffe.Object) -> str:
    """What the metadata of a dataclass field of `gossamer.methods` say about it."""
    owner = getattr(methods, obj.parent.name, None) if obj.parent else None
    fields = getattr(owner, "__dataclass_fields__", {})
    return fields[obj.name].metadata.get("explanation", "") if obj.name in fields else ""


def markdown(text: str) -> str:
    """A plain-text docstring as Markdown."""
    return "\n\n".join(_paragraph(paragraph) for paragraph in paragraphs(text))


def paragraphs(text: str) -> list[str]:
    """Split at blank lines; what an example prints stays with the example."""
    parts: list[str] = []
    for part in re.split(r"\n\s*\n", text.strip("\n")):
        if ">>>" in part and not part.lstrip().startswith(">>>"):
            before, example = part.split(">>>", 1)
            parts += [before.rstrip(), f">>>{example}"]
        else:
            parts.append(part)
    return [part for part in parts if part.strip()]


def is_example(paragraph: str) -> bool:
    """Whether doctest runs it."""
    return paragraph.lstrip().startswith(">>>")


def is_formula(paragraph: str) -> bool:
    """Whether its line breaks and signs mean something."""
    return bool(FORMULA.search(paragraph.strip().splitlines()[0]))


def _paragraph(paragraph: str) -> str:
    lines = paragraph.splitlines()
    if is_example(paragraph):
        return f"```pycon\n{paragraph}\n```"
    if is_formula(paragraph):
        return f"```text\n{paragraph}\n```"
    if len(lines) > 1 and not lines[0].startswith(" ") and lines[1].startswith("    "):
        return _arguments(lines)
    return escape(" ".join(line.strip() for line in lines))


def _arguments(lines: list[str]) -> str:
    """name, then its explanation indented: one list item each."""
    items: list[str] = []
    for line in lines:
        if line.startswith("    "):
            items[-1] += f" {escape(line.strip())}"
        else:
            items.append(f"- **{escape(line.strip())}**:")
    return "\n".join(items)


def escape(text: str) -> str:
    """Markdown's signs as plain signs, except inside backticks."""
    parts = text.split("`")
    if len(parts) % 2 == 0:
        return SPECIAL.sub(r"\\\1", text)
    return "`".join(part if k % 2 else SPECIAL.sub(r"\\\1", part) for k, part in enumerate(parts))
