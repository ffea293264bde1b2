"""Which processes are the nodes."""

import gc
import os
import sys
from collections.abc import Iterable

import torch.distributed as dist

# Every torch optimizer imports this, and if the process group exists by then, default arguments in there hold on to it:
# its threads outlive destroy_process_group and now and then abort the process at exit. Imported here, it usually comes
# before init_process_group.
import torch.distributed.nn.functional  # noqa: F401
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor
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


def averaging_across(group: dist.ProcessGroup | None, parameters: Iterable[Tensor]) -> str:
    """In words, what averages the gradients of `parameters` over several nodes of `group`; empty if nothing does.

    Trainers wrap the model after the optimizer is made, so this looks at every module of the process.
    """
    if not isinstance(group, dist.ProcessGroup) or group.size() == 1:
        return ""
    nodes, own = set(dist.get_process_group_ranks(group)), list(parameters)
    mine, idle = {id(p) for p in own}, all(p.grad is None for p in own)
    for module in _wrappers():
        ranks = sorted(nodes & _ranks_of(module))
        sharded = not isinstance(module, DistributedDataParallel)
        # FSDP may replace parameters: those of an optimizer that was made before it never get a gradient.
        if len(ranks) > 1 and (any(id(p) in mine for p in module.parameters()) or (sharded and idle)):
            kind = "FSDP" if sharded else "DistributedDataParallel"
            return f"{kind} over the ranks {ranks}, which are different nodes"
    return ""


def _wrappers() -> list[nn.Module]:
    """Every living module that trains over several processes."""
    kinds: list[type] = [DistributedDataParallel]
    fsdp = sys.modules.get("torch.distributed.fsdp")  # a tenth of a second to import, and of no use if nobody has
    if fsdp is not None:
        kinds += [fsdp.FullyShardedDataParallel, fsdp.FSDPModule]
    for kind in kinds:
        kinds += type.__subclasses__(kind)
    # There may be a million objects, so the question is a quick one: isinstance would ask for their __class__, which a
    # proxy may compute, and issubclass would ask the abstract bases of these kinds.
    wanted = {id(kind) for kind in kinds}
    return [found for found in gc.get_objects() if id(type(found)) in wanted]


def _ranks_of(module: nn.Module) -> set[int]:
    """The ranks that a wrapper spans: those of its process group or, with fully_shard, of its parameters' meshes."""
    group = getattr(module, "process_group", None)
    if isinstance(group, dist.ProcessGroup):
        return set(dist.get_process_group_ranks(group))
    meshes = [p.device_mesh for p in module.parameters() if isinstance(p, DTensor)]
    return {rank for mesh in meshes for rank in mesh.mesh.flatten().tolist()}
