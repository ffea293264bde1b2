"""Four real processes that are watched: by scraping, by Prometheus, by `gossamer watch`, and while one is stopped."""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote
from urllib.request import urlopen

import pytest
import torch
import torch.distributed as dist
from prometheus_client.parser import text_string_to_metric_families

import gossamer
from gossamer.cli import main
from tests.processes import nodes

pytestmark = pytest.mark.timeout(200)

NAMES = ("berlin", "lisbon", "oslo", "rome")
RING = gossamer.topology.from_edges([(a, b) for a, b in zip(NAMES, NAMES[1:] + NAMES[:1], strict=True)])
DASHBOARD = Path(__file__).parents[1] / "examples" / "grafana_dashboard.json"


def train(out: Path) -> None:
    """Train without end, and tell where the figures are."""
    dist.init_process_group("gloo")
    torch.manual_seed(dist.get_rank())
    model = torch.nn.Linear(3, 2)
    optimizer = gossamer.optim.MomentumTracking(model.parameters(), lr=0.01, topology=RING)
    port = optimizer.metrics(port=0)
    while True:
        optimizer.zero_grad()
        loss = model(torch.randn(4, 3)).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.note(loss=loss, accuracy=0.5)
        if optimizer.round == 3:
            (out / f"{optimizer.node_name}.port").write_text(str(port))
        time.sleep(0.01)


def until(look: Callable[[], Any], seconds: float = 30.0) -> Any:
    """What `look` returns, once that is something."""
    deadline = time.monotonic() + seconds
    while not (found := look()) and time.monotonic() < deadline:
        time.sleep(0.1)
    return found


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, tuple[int, int]]]:
    """The port and the process of every node, by name."""
    out = tmp_path_factory.mktemp("nodes")
    with nodes(4, out, train, out) as processes:
        try:
            files = [out / f"{name}.port" for name in NAMES]
            assert until(lambda: all(f.exists() and f.read_text() for f in files), 90), [
                (out / f"{k}.out").read_text() for k in range(4)
            ]
            ports = [int(f.read_text()) for f in files]
            yield {name: (port, p.pid) for name, port, p in zip(NAMES, ports, processes, strict=True)}
        finally:
            for process in processes:
                process.kill()


def scrape(port: int) -> dict[str, dict[tuple[str, ...], float]]:
    """Figures by name, and by the values of their labels other than the node."""
    with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as answer:
        text = answer.read().decode()
    found: dict[str, dict[tuple[str, ...], float]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            others = tuple(value for key, value in sample.labels.items() if key != "node")
            found.setdefault(sample.name, {})[others] = sample.value
    return found


def test_every_node_tells_its_figures(running: dict[str, tuple[int, int]]) -> None:
    first = {name: scrape(port) for name, (port, _) in running.items()}
    round_ = max(f["gossamer_round"][()] for f in first.values())
    port = running["oslo"][0]
    assert until(lambda: "gossamer_consensus_distance" in scrape(port) and scrape(port)["gossamer_round"][()] > round_)
    for name, (port, _) in running.items():
        found = scrape(port)
        assert found["gossamer_bytes_sent_total"][()] > first[name]["gossamer_bytes_sent_total"][()] > 0
        place = NAMES.index(name)
        neighbours = {(NAMES[place - 1],), (NAMES[(place + 1) % 4],)}
        assert neighbours <= set(found["gossamer_wait_seconds_total"])
        assert all(seconds > 0 for seconds in found["gossamer_wait_seconds_total"].values())
        assert found["gossamer_figure"][("accuracy",)] == 0.5
        assert found["gossamer_figure"][("loss",)] > 0
        assert [found[f"gossamer_{key}_total"][()] for key in ("overflows", "skipped", "idle")] == [0, 0, 0]


def test_only_loopback_is_served(running: dict[str, tuple[int, int]]) -> None:
    addresses = {info[4][0] for info in socket.getaddrinfo(socket.gethostname(), None, socket.AF_INET)}
    for address in (a for a in addresses if not a.startswith("127.")):
        with socket.socket() as outside:
            outside.settimeout(2)
            assert outside.connect_ex((address, running["oslo"][0])) != 0


def test_the_dashboard_shows_what_is_served(running: dict[str, tuple[int, int]]) -> None:
    port = running["berlin"][0]
    assert until(lambda: "gossamer_consensus_distance" in scrape(port))
    served = set(scrape(port)) | {"gossamer_waiting_seconds"}  # only while it waits
    panels = json.loads(DASHBOARD.read_text())["panels"]
    named = {name for p in panels for t in p["targets"] for name in re.findall(r"\bgossamer_\w+", t["expr"])}
    assert named <= served
    places = {(p["gridPos"]["x"], p["gridPos"]["y"]) for p in panels}
    assert len(panels) == len({p["id"] for p in panels}) == len(places)


@pytest.mark.skipif(shutil.which("prometheus") is None, reason="apt-get install prometheus")
def test_prometheus_scrapes_all_nodes(running: dict[str, tuple[int, int]], tmp_path: Path) -> None:
    targets = [f"127.0.0.1:{port}" for port, _ in running.values()]
    config = {
        "global": {"scrape_interval": "500ms"},
        "scrape_configs": [{"job_name": "gossamer", "static_configs": [{"targets": targets}]}],
    }
    (tmp_path / "prometheus.yml").write_text(json.dumps(config))  # JSON is YAML
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [
        "prometheus", f"--config.file={tmp_path}/prometheus.yml", f"--storage.tsdb.path={tmp_path}/data",
        f"--web.listen-address=127.0.0.1:{port}",
    ]  # fmt: skip

    def ask(expression: str) -> list[dict[str, Any]]:
        try:
            with urlopen(f"http://127.0.0.1:{port}/api/v1/query?query={quote(expression)}", timeout=5) as answer:
                told = json.loads(answer.read())
        except OSError:
            return []
        assert told["status"] == "success"
        return told["data"]["result"]

    with (tmp_path / "log").open("wb") as log, subprocess.Popen(command, stdout=log, stderr=log) as server:
        try:
            assert until(lambda: len(ask("up == 1")) == 4), (tmp_path / "log").read_text()
            assert {r["metric"]["node"] for r in ask("gossamer_round")} == set(NAMES)
            for panel in json.loads(DASHBOARD.read_text())["panels"]:
                for target in panel["targets"]:
                    expression = target["expr"].replace("$__rate_interval", "1m")
                    if "gossamer_waiting" not in expression:
                        assert until(lambda e=expression: len(ask(e)) >= 4), expression
                    assert isinstance(ask(expression), list)
        finally:
            server.kill()


def test_watch_names_who_waits_for_whom(
    running: dict[str, tuple[int, int]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    addresses = [f"127.0.0.1:{port}" for port, _ in running.values()]
    page = tmp_path / "page.html"

    def look() -> str:
        with pytest.raises(SystemExit) as ended:
            main(["watch", *addresses, "--once", "--html", str(page)])
        assert ended.value.code == 0
        printed = capsys.readouterr().out
        assert max(map(len, printed.splitlines())) <= 80
        return printed

    before = look()
    assert re.search(r"^oslo +\d+ +– +[\d.e-]+ +0\.5 ", before, re.MULTILINE), before
    assert "wait for" not in before
    os.kill(running["oslo"][1], signal.SIGSTOP)
    try:
        time.sleep(3)
        stopped = look()
        said = " ".join(stopped.split())
        assert re.search(r"^berlin +\d+ +(lisbon|rome), \d+ s ", stopped, re.MULTILINE), stopped
        assert re.search(r"^lisbon +\d+ +oslo, \d+ s ", stopped, re.MULTILINE), stopped
        told = re.search(r"lisbon and rome wait for oslo since \d\d:\d\d:\d\d \((\d+) s\), which does not answer", said)
        assert told, stopped
        assert 2 <= int(told[1]) <= 20
        assert f"look at 127.0.0.1:{running['oslo'][0]}" in said
        text = page.read_text()
        assert '<meta http-equiv="refresh" content="2">' in text
        assert "lisbon and rome wait for oslo since" in text
        assert "no answer" in text
    finally:
        os.kill(running["oslo"][1], signal.SIGCONT)
    assert until(lambda: "wait for" not in look())
    again = scrape(running["oslo"][0])["gossamer_round"][()]
    assert until(lambda: scrape(running["oslo"][0])["gossamer_round"][()] > again)
