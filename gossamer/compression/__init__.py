"""What a vector becomes on a slow link: compressors, one small contract for all of them."""

from gossamer.compression.contract import Compressed, Compressor, Identity, get, names
from gossamer.compression.quantize import Quantize
from gossamer.compression.sparse import RandomK, TopK

__all__ = ["Compressed", "Compressor", "Identity", "Quantize", "RandomK", "TopK", "get", "names"]
