"""Train an image classifier on nodes that hold different classes: an ordinary PyTorch loop with one changed line.

    python examples/train_image.py                                             # 1 process: plain local training
    torchrun --standalone --nproc-per-node 8 examples/train_image.py           # 8 nodes on this machine
    torchrun --nnodes 2 --nproc-per-node 4 --node-rank 0 --master-addr HOST --master-port 29500 examples/train_image.py
                                                  # 8 nodes on two hosts: HOST is the first, the other has --node-rank 1

Strangers who reach the port of the second or third command can disturb the run, of the second even run code: see
docs/multi_host.md before you use several hosts.

Every node sees only a few of the ten classes, but the averaged model learns all of them. The default dataset, 1,797
handwritten digits, comes with Gossamer; download a larger one first: `gossamer data get fashion-mnist`.
"""

import argparse

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import gossamer

parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("--dataset", default="digits", help="digits, mnist, fashion-mnist, svhn or cifar-10")
parser.add_argument("--classes", type=int, default=2, help="classes per node; more if there are too few nodes for all")
parser.add_argument("--topology", default="ring", help="who talks to whom: ring, star, chain, hypercube, ...")
parser.add_argument("--steps", type=int, default=400)
parser.add_argument("--batch-size", type=int, default=32)
parser.add_argument("--lr", type=float, default=0.02)
args = parser.parse_args()

if dist.is_torchelastic_launched():  # without torchrun there is one node
    dist.init_process_group("gloo")
data = gossamer.data.load(args.dataset)
torch.manual_seed(0)
model = gossamer.models.SmallCNN(data.sample_shape, data.num_classes)

# The one changed line. It was: torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9, weight_decay=1e-3)
optimizer = gossamer.optim.MomentumTracking(
    model.parameters(), lr=args.lr, momentum=0.9, weight_decay=1e-3, topology=args.topology
)

# All nodes draw the same partition, and each takes its own part. The parts differ in classes and in size.
node, nodes = optimizer.node, optimizer.network.n
classes = max(args.classes, -(-data.num_classes // nodes))
parts = data.split(gossamer.partition.k_class(nodes=nodes, k=classes, seed=0, equal_sizes=False), holdout=0)
mine = parts.partition.indices[node]
own = TensorDataset(data.normalization(data.train_inputs[mine]), data.train_targets[mine])
loader = DataLoader(own, batch_size=args.batch_size, shuffle=True)
test_inputs, test_targets = data.normalization(data.test_inputs), data.test_targets

# Rounds are synchronous: with gossamer.rounds every node makes the same number of steps, however much data it has.
for step, (inputs, targets) in enumerate(gossamer.rounds(loader, args.steps), start=1):
    loss = nn.functional.cross_entropy(model(inputs), targets)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()

    if step % max(1, args.steps // 8) == 0:
        with gossamer.averaged(model), torch.no_grad():  # on all nodes; each gets its own model back afterwards
            if node == 0:
                outputs = model(test_inputs)
                accuracy = (outputs.argmax(1) == test_targets).float().mean()
                test_loss = nn.functional.cross_entropy(outputs, test_targets)
                print(f"step {step:4d}  averaged model: test loss {test_loss:.3f}, test accuracy {accuracy:.1%}")

if dist.is_initialized():
    dist.destroy_process_group()
