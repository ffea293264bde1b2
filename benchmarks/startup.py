"""Startup time: `import gossamer` beyond importing torch, and `gossamer --help`.

    python benchmarks/startup.py [--repeats 9] [--json FILE]

Every measurement uses a fresh interpreter; they alternate, and medians are shown. Limits: 100 ms and 350 ms.
"""

import argparse
import subprocess
import sys
import time
from statistics import median

from _measurements import Measurement, finish, options_of

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
    options = options_of(parser)
    times = [{name: seconds(arguments) for name, arguments in COMMANDS.items()} for _ in range(options.repeats)]
    beyond = median(t["torch and gossamer"] - t["torch"] for t in times)
    shown = median(t["gossamer --help"] for t in times)
    measurements = [
        Measurement("import gossamer beyond torch", 1e3 * beyond, "ms", 100),
        Measurement("gossamer --help", 1e3 * shown, "ms", 350),
    ]
    for m in measurements:
        print(f"{m.what}: {m.value:.0f} ms (limit {m.limit:.0f})")
    return finish(measurements, options)


if __name__ == "__main__":
    sys.exit(main())
