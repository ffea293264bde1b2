"""Which processes are the nodes."""

import os

import torch.distributed as dist

# Every torch optimizer imports this, and if the process group exists by then, default arguments in there hold on to it:
# its threads outlive destroy_process_group and now and then abort the process at exit. Imported here, it usually comes
# before init_process_group.
import torch.distributed.nn.functional  # noqa: F401
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.nn.parallel import DistributedDataParallel

from gossamer.errors import InputError


def find_group(group: dist.ProcessGroup | DeviceMesh | None) -> dist.ProcessGroup | None:
    """The process group of the nodes; None for one process on its own, which trains as without Gossamer."""
    if isinstance(group, DeviceMesh):
        if group.ndim != 1:
            names = ", ".join(f"mesh['{name}']" for name in group.mesh_dim_names or ())
            raise InputError(
                f"The device mesh has {group.ndim} dimensions, but nodes lie along one; give that one: "
                f"{names or 'name the dimensions of the mesh (mesh_dim_names) and give mesh[name]'}."
            )
        return group.get_group()
    if group is not None:
        return group
    if dist.is_available() and dist.is_initialized():
        return dist.group.WORLD
    size = os.environ.get("WORLD_SIZE", "1")
    if size not in ("", "1"):
        raise InputError(
            f"{size} processes were started (WORLD_SIZE={size}), but torch.distributed is not initialized; call "
            f"torch.distributed.init_process_group('gloo') (on GPUs: 'nccl') before making the optimizer."
        )
    return None


def refuse_averaging_across(model: nn.Module, group: dist.ProcessGroup | None) -> None:
    """Raise if a DistributedDataParallel inside `model` spans several nodes of `group`."""
    if group is None or group.size() == 1:
        return
    nodes = set(dist.get_process_group_ranks(group))
    for module in model.modules():
        if isinstance(module, DistributedDataParallel):
            shared = nodes & set(dist.get_process_group_ranks(module.process_group))
            if len(shared) > 1:
                raise InputError(
                    f"The model is wrapped in DistributedDataParallel over the ranks {sorted(shared)}, which are "
                    f"different nodes: it would average their gradients and overwrite their weights; leave the wrapper "
                    f"out, or give it a process group inside one node."
                )
