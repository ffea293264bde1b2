"""What it costs to start: `import gossamer` beyond importing torch, and `gossamer --help`.

    python benchmarks/startup.py [--repeats 9]

Every measurement is a fresh interpreter; they take turns, and medians are shown. Limits: 100 ms and 350 ms.
"""

import argparse
import subprocess
import sys
import time
from statistics import median

COMMANDS = {
    "torch": ["-c", "import torch"],
    "torch and gossamer": ["-c", "import torch, gossamer"],
    "gossamer --help": ["-m", "gossamer", "--help"],
}


def seconds(arguments: list[str]) -> float:
    began = time.perf_counter()
    subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - began


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=9, help="interleaved repetitions; medians are shown")
    repeats = parser.parse_args().repeats
    times = [{name: seconds(arguments) for name, arguments in COMMANDS.items()} for _ in range(repeats)]
    middle = {name: median(t[name] for t in times) for name in COMMANDS}
    beyond = median(t["torch and gossamer"] - t["torch"] for t in times)
    print(f"import gossamer beyond torch: {1e3 * beyond:.0f} ms (limit 100)")
    print(f"gossamer --help: {1e3 * middle['gossamer --help']:.0f} ms (limit 350)")
    return int(beyond > 0.1 or middle["gossamer --help"] > 0.35)


if __name__ == "__main__":
    sys.exit(main())
