"""Chaos: 200 faults on rings of real processes. Survivors name the right node in time, or go on to the same bits."""

import ctypes
import hashlib
import json
import os
import random
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist

from gossamer import topology
from gossamer.errors import GossamerError
from tests.optim.cases import Node
from tests.optim.nodes import _context
from tests.optim.tasks import flat

NODES, ROUNDS, TIMEOUT = 5, 40, 2.0
PROMISE = TIMEOUT + 5
FAULTS = ("kill", "stop", "stop and continue", "NaN", "early end", "extra step", "settings", "link down", "garbage")
HARMLESS = ("stop and continue", "garbage")
DRAWS, PARTS = 200, 8


def site(rank: int, plan: dict[str, Any], place: Path, port: int) -> None:
    """One node: trains, is at fault if the plan says so, and leaves a file that tells how it ended."""
    torch.set_num_threads(1)
    store = dist.TCPStore("127.0.0.1", port, is_master=False)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=NODES)
    node = Node(rank, topology=topology.ring(NODES), timeout=TIMEOUT)
    guilty, fault, when = rank == plan["node"], plan["fault"], plan["round"]
    sentence = ""
    try:
        node.step()
        (place / f"{rank}.sockets").write_text(json.dumps([names for _, names in connections()]))
        for r in range(1, ROUNDS + (guilty and {"early end": -1, "extra step": 1}.get(fault, 0))):
            time.sleep(0.01)
            node.backward()
            if r == when and guilty and fault in ("kill", "stop", "stop and continue"):
                number = signal.SIGKILL if fault == "kill" else signal.SIGSTOP
                threading.Timer(plan["delay"], strike, (place, number)).start()
            if r == when and guilty and fault in ("NaN", "settings"):
                begun(place)
                if fault == "NaN":
                    next(node.model.parameters()).grad.fill_(float("nan"))  # type: ignore[union-attr]
                else:
                    node.optimizer.param_groups[0]["lr"] *= 0.5
            if r == when and fault == "link down" and rank in plan["link"]:
                begun(place)
                cut(rank, plan["link"], place)
            node.optimizer.step()
            (place / f"{rank}.round").write_text(str(r))
        if guilty:
            begun(place)
        node.optimizer.close()
    except GossamerError as error:
        sentence = str(error)
    bits = hashlib.sha256(flat(node.model).numpy().tobytes()).hexdigest()
    (place / f"{rank}.json").write_text(json.dumps([sentence, time.time(), bits]))
    os._exit(1 if sentence else 0)


def begun(place: Path) -> None:
    (place / "begun").write_text(repr(time.time()))


def strike(place: Path, number: int) -> None:
    begun(place)
    os.kill(os.getpid(), number)


def connections() -> Iterator[tuple[int, list[list[Any]]]]:
    """The TCP connections of this process: descriptor, own and other address."""
    for path in Path("/proc/self/fd").iterdir():
        with suppress(OSError), socket.socket(fileno=os.dup(int(path.name))) as duplicate:
            if duplicate.family in (socket.AF_INET, socket.AF_INET6):
                yield int(path.name), [list(duplicate.getsockname()[:2]), list(duplicate.getpeername()[:2])]


def cut(rank: int, link: list[int], place: Path) -> None:
    """From now on the kernel drops what arrives from the other node of the link."""
    other = link[1] if rank == link[0] else link[0]
    theirs = json.loads((place / f"{other}.sockets").read_text())
    nothing = ctypes.create_string_buffer(bytes([0x06, 0, 0, 0, 0, 0, 0, 0]))  # BPF: return 0
    program = ctypes.create_string_buffer(16)
    ctypes.c_uint16.from_buffer(program).value = 1
    ctypes.c_uint64.from_buffer(program, 8).value = ctypes.addressof(nothing)
    for descriptor, (own, peer) in connections():
        if [peer, own] in theirs:
            with socket.socket(fileno=os.dup(descriptor)) as duplicate:
                duplicate.setsockopt(socket.SOL_SOCKET, 26, program.raw)  # SO_ATTACH_FILTER


def throw_garbage(pids: list[int], draw: random.Random) -> None:
    """Random bytes to every port on which the processes listen."""
    inodes = set()
    for pid in pids:
        for path in Path(f"/proc/{pid}/fd").iterdir():
            with suppress(OSError):
                inodes.add(str(path.readlink()).removeprefix("socket:[").rstrip("]"))
    lines = [line.split() for table in ("tcp", "tcp6") for line in Path(f"/proc/net/{table}").read_text().splitlines()]
    for line in lines:
        if line[3] == "0A" and line[9] in inodes:
            with (
                suppress(OSError),
                socket.create_connection(("127.0.0.1", int(line[1].split(":")[1], 16)), 1) as stranger,
            ):
                stranger.sendall(draw.randbytes(draw.choice([1, 16, 300, 5000])))


def endure(plan: dict[str, Any], place: Path, draw: random.Random) -> dict[int, list[Any]]:
    """Carry out a plan; how every process ended that told so: sentence, seconds since the fault, bits."""
    place.mkdir()
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    processes = [_context.Process(target=site, args=(k, plan, place, store.port)) for k in range(NODES)]
    for process in processes:
        process.start()
    guilty = processes[plan["node"]]
    done = False
    deadline = time.monotonic() + 60
    others = [p for p in processes if p is not guilty or plan["fault"] not in ("kill", "stop")]
    while any(p.is_alive() for p in others) and time.monotonic() < deadline:
        time.sleep(0.05)
        if not done and plan["fault"] == "stop and continue" and (place / "begun").exists():
            time.sleep(plan["pause"])
            os.kill(guilty.pid, signal.SIGCONT)
            done = True
        reached = place / f"{plan['node']}.round"
        if (
            not done
            and plan["fault"] == "garbage"
            and reached.exists()
            and int(reached.read_text() or 0) >= plan["round"]
        ):
            throw_garbage([p.pid for p in processes if p.pid and p.is_alive()], draw)
            done = True
    hanging = [k for k, p in enumerate(processes) if p.is_alive() and p in others]
    for process in processes:
        process.kill()
        process.join()
    assert not hanging, f"{hanging} hang in {plan}"
    start = float((place / "begun").read_text()) if (place / "begun").exists() else time.time()
    told = {k: json.loads((place / f"{k}.json").read_text()) for k in range(NODES) if (place / f"{k}.json").exists()}
    return {k: [sentence, end - start, bits] for k, (sentence, end, bits) in told.items()}


def plan_of(draw: random.Random, fault: str) -> dict[str, Any]:
    node = draw.randrange(NODES)
    return {
        "fault": fault, "node": node, "round": draw.randrange(3, ROUNDS - 5), "delay": draw.uniform(0, 0.05),
        "pause": draw.uniform(0.1, 0.8), "link": [node, (node + 1) % NODES],
    }  # fmt: skip


def complaint(plan: dict[str, Any], ended: dict[int, list[Any]], whole: dict[int, list[Any]]) -> str:
    """What is wrong with how the processes ended; empty if nothing is."""
    node, fault = plan["node"], plan["fault"]
    if fault in HARMLESS:
        same = all(k in ended and ended[k][0] == "" and ended[k][2] == whole[k][2] for k in range(NODES))
        return "" if same else f"other bits: {ended}"
    for k in set(range(NODES)) - {node}:
        if k not in ended or not ended[k][0]:
            return f"node {k} reports success or nothing"
        sentence, seconds, _ = ended[k]
        wanted = plan["link"] if fault == "link down" else [node]
        if not any(f"node {j} " in sentence.lower() for j in wanted):
            return f"node {k} names another: {sentence}"
        if seconds > PROMISE:
            return f"node {k} took {seconds:.1f} s: {sentence}"
    return ""


@pytest.mark.slow
@pytest.mark.timeout(1500)
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks into /proc")
@pytest.mark.parametrize("part", range(PARTS))
def test_chaos(part: int, tmp_path: Path) -> None:
    draw = random.Random(part)
    whole = endure({**plan_of(draw, "none"), "node": -1}, tmp_path / "whole", draw)
    assert [whole[k][0] for k in range(NODES)] == [""] * NODES
    wrong, seconds = [], dict[str, list[float]]()
    for k in range(part, DRAWS, PARTS):
        plan = plan_of(draw, FAULTS[k % len(FAULTS)])
        ended = endure(plan, tmp_path / str(k), draw)
        slowest = max((e[1] for j, e in ended.items() if j != plan["node"]), default=0.0)
        seconds.setdefault(plan["fault"], []).append(slowest)
        if problem := complaint(plan, ended, whole):
            wrong.append(f"{plan}: {problem}")
    for fault, times in seconds.items():
        print(f"chaos | {fault} | {len(times)} | {max(times):.1f} s")
    assert not wrong, "\n".join(wrong)
