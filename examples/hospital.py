"""Hospitals that train one model together, each started by itself: one may fail, leave and come back at any time.

    gossamer coordinator                      # in a first terminal: it only knows who is there
    python examples/hospital.py oslo          # one terminal for each hospital
    python examples/hospital.py bergen
    python examples/hospital.py tromso
    python examples/hospital.py stavanger

Kill one of them (Ctrl-C twice, or kill -9): the others go on within seconds. Start it again: it joins them. The page
docs/sites.md explains what you see. Needs torchft: pip install 'gossamer[elastic]' (Linux on x86_64).
"""

import argparse
import logging
import time
import zlib

import torch
from torch import nn

import gossamer

parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("name", help="what this hospital is called")
parser.add_argument("--coordinator", default="127.0.0.1:29510", help="HOST:PORT of `gossamer coordinator`")
parser.add_argument("--at-least", type=int, default=3, help="wait while fewer hospitals are there")
parser.add_argument("--patience", type=float, default=5.0, help="seconds until a silent hospital is dropped")
parser.add_argument("--rounds", type=int, default=2000)
parser.add_argument("--pause", type=float, default=0.05, help="seconds between two rounds, to have time to look")
parser.add_argument("--checkpoints", default="checkpoints", help="directory in which this hospital keeps its state")
args = parser.parse_args()
logging.basicConfig(format="%(asctime)s  %(message)s", datefmt="%H:%M:%S")

# The data of this hospital, which never leave it: the even digits or the odd ones, by its name.
digits = gossamer.data.load("digits")
number = zlib.crc32(args.name.encode())
mine = digits.train_targets % 2 == number % 2
inputs, targets = digits.normalization(digits.train_inputs[mine]), digits.train_targets[mine]
batches = torch.Generator().manual_seed(number)

torch.manual_seed(0)
model = gossamer.models.SmallCNN(digits.sample_shape, digits.num_classes)
sites = gossamer.Sites(args.coordinator, name=args.name, at_least=args.at_least, patience=args.patience)
optimizer = gossamer.optim.MomentumTracking(model.parameters(), lr=0.02, momentum=0.9, topology="ring", sites=sites)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 500, gamma=0.5)
saver = gossamer.Checkpoints(
    args.checkpoints, model, optimizer, every=100, extra={"batches": batches, "scheduler": scheduler}
)

for _ in saver.rounds(args.rounds):
    chosen = torch.randint(len(inputs), (32,), generator=batches)
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(inputs[chosen]), targets[chosen])
    loss.backward()
    optimizer.step()
    scheduler.step()
    if optimizer.round % 50 == 0:
        with torch.no_grad():
            right = model(digits.normalization(digits.test_inputs)).argmax(1) == digits.test_targets
        there = len(optimizer.stats()["sites"])
        print(f"round {optimizer.round:5d}  {there} hospitals  all ten digits: {right.float().mean():.1%}", flush=True)
    time.sleep(args.pause)
optimizer.close()
