"""The documentation says what the code does."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
BLOCKS = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)


def test_the_methods_page_is_what_the_methods_declare():
    done = subprocess.run([sys.executable, ROOT / "docs" / "generate.py", "--check"], check=False, timeout=60)
    assert done.returncode == 0, "docs/methods.md is out of date; run: make docs"


@pytest.mark.parametrize("block", BLOCKS, ids=lambda b: b.strip().splitlines()[-1][:30])
def test_the_readme_examples_run(block, tmp_path):
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", block],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout


def test_the_readme_has_its_two_examples_and_two_commands():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert len(BLOCKS) >= 2
    assert text.index("make demo") < text.index("make test") < 1200
