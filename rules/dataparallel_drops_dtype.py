"""AMP112: the replicas of DataParallel fall back to the default dtype."""

from __future__ import annotations

from collections.abc import Iterator

from amplint.facts.contexts import OFF
from amplint.facts.regions import Region
from amplint.model import Finding, Label, Level
from amplint.rule import rule
from amplint.source import SourceFile

_DATA_PARALLEL = frozenset(
    ("torch.nn.DataParallel", "torch.nn.parallel.DataParallel", "torch.nn.parallel.data_parallel.DataParallel")
)


@rule("AMP112", "dataparallel-drops-dtype", level=Level.WARNING, triggers=("DataParallel",))
def dataparallel_drops_dtype(file: SourceFile) -> Iterator[Finding]:
    """
    DataParallel switches autocast on again in the threads of its replicas, but does not pass the dtype: under
    `autocast("cuda", dtype=torch.bfloat16)` the replicas run in float16, the default of CUDA, without a scaler
    (torch 1.10 to 2.15). Autocast without a dtype around DataParallel is fine.

    ```python bad
    import torch


    def forward(net, x):
        model = torch.nn.DataParallel(net)
        with torch.autocast("cuda", dtype=torch.bfloat16):
            return model(x)
    ```

    ```python good
    import torch


    def forward(net, x):
        model = torch.nn.parallel.DistributedDataParallel(net)
        with torch.autocast("cuda", dtype=torch.bfloat16):
            return model(x)
    ```

    Entering autocast inside the module's `forward` works as well, since that runs in the replica's thread.
    """
    for call in file.names.calls:
        active = file.regions.active(call)
        if not active or not _DATA_PARALLEL.intersection(c for c in file.values.constructed(call.func) if c):
            continue
        for region, _ in active:
            if _is_bfloat16(region):
                yield Finding(
                    "AMP112",
                    file.span(call),
                    "the replicas of DataParallel don't get the dtype of the region: they run in float16",
                    (Label(file.span(region.expression), "asks for bfloat16"),),
                    help="use DistributedDataParallel, or enter autocast inside the module's forward",
                )
                break


def _is_bfloat16(region: Region) -> bool:
    explicit = all(entry.dtype is not None for entry in region.autocasts)
    return region.enabled != OFF and explicit and region.dtypes == {"bfloat16"} and region.devices == {"cuda"}
