"""Search the traffic captured inside and outside the tunnel for the models: python compare.py DIRECTORY

The parameters after the last step are part of the last message, so pieces of the saved models must be found inside. A
piece found outside was sent unencrypted: exit code 1.
"""

import sys
from pathlib import Path

import torch

PIECE = 8  # numbers: long enough not to match by chance, short enough to fit into one packet

directory = Path(sys.argv[1])
pieces = {
    piece.numpy().tobytes()
    for file in directory.glob("*.pt")
    for tensor in torch.load(file, weights_only=True).values()
    for piece in tensor.reshape(-1).split(PIECE)
    if len(piece) == PIECE
}
found = {}
for where in ("inside", "outside"):
    captured = (directory / f"{where}.bytes").read_bytes()
    found[where] = sum(piece in captured for piece in pieces)
    print(f"{where} the tunnel: {len(captured):,} bytes, {found[where]} of {len(pieces)} pieces of the models")
if not found["inside"]:
    sys.exit("The capture inside the tunnel contains no model, so this test proves nothing.")
sys.exit(1 if found["outside"] else 0)
