"""AMP112: the threads of DataParallel get the state of autocast and not its dtype."""

from __future__ import annotations

import inspect
import threading
from typing import Any

from .helpers import region, torch


def test_parallel_apply_passes_no_dtype() -> None:
    from torch.nn.parallel import parallel_apply

    source = inspect.getsource(inspect.getmodule(parallel_apply) or parallel_apply)
    assert "is_autocast_enabled()" in source
    assert "dtype" not in source


def test_a_thread_that_switches_autocast_on_has_the_default_dtype() -> None:
    found: list[Any] = []

    def replica() -> None:
        with torch.autocast("cpu"):
            found.append((torch.ones(2, 2) @ torch.ones(2, 2)).dtype)

    with region():
        replica()
        thread = threading.Thread(target=replica)
        thread.start()
        thread.join()
    assert found == [torch.float16, torch.bfloat16]
