"""The training script of one site: ordinary PyTorch with a graph and the name of the site.

SITE=berlin torchrun --nnodes 2 --node-rank 0 --master-addr 10.77.0.1 --master-port 29500 train.py sites.txt out
"""

import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional

import gossamer as gs

graph = gs.topology.from_file(sys.argv[1])
site, out = os.environ["SITE"], Path(sys.argv[2])

dist.init_process_group("gloo")
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 1))
optimizer = gs.optim.MomentumTracking(model.parameters(), lr=0.05, momentum=0.9, topology=graph, node=site)

generator = torch.Generator().manual_seed(optimizer.node)
inputs = torch.randn(64, 8, generator=generator) + optimizer.node  # every site has different data
targets = inputs.sum(1, keepdim=True).sin()

for _ in range(50):
    optimizer.zero_grad()
    loss = functional.mse_loss(model(inputs), targets)
    loss.backward()
    optimizer.step()

torch.save(model.state_dict(), out / f"{site}.pt")
waited = optimizer.stats()["wait_seconds"]
print(f"{site}: loss {loss.item():.4f} after {optimizer.round} rounds; seconds waited for {waited}")
optimizer.close()
dist.destroy_process_group()
