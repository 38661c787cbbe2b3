"""Gradients of torch, averaged by Tributary.

For models in DistributedDataParallel, a hook in one line, after the model is wrapped::

    tributary.torch.dense(ddp)                    # averages
    hook = tributary.torch.weighted(ddp)          # hook.weight = len(batch), in each step
    hook = tributary.torch.sparse(ddp, density=0.01, algorithm="topka")

For plain loops, between ``backward`` and ``step``:

>>> import torch, tributary, tributary.torch
>>> def train(comm):
...     model = torch.nn.Linear(1, 1)
...     loss = (comm.rank + 1) * model(torch.ones(1, 1)).sum()
...     loss.backward()
...     tributary.torch.average_gradients(model, comm)
...     return model.weight.grad.item()
>>> tributary.Group(3, backend="host").run(train)
[2.0, 2.0, 2.0]

Tensors on CPU are reduced by the host backend, whose ranks are threads of one process; on GPUs a rank
is a GPU.
"""

from ._average import average_gradients
from ._hooks import Dense, Hook, Weighted, dense, weighted
from ._meeting import communicator, communicator_from_store
from ._sparse import Sparse, sparse

__all__ = [
    "Dense",
    "Hook",
    "Sparse",
    "Weighted",
    "average_gradients",
    "communicator",
    "communicator_from_store",
    "dense",
    "sparse",
    "weighted",
]
