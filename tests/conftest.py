"""What several test modules share."""

from __future__ import annotations

import os

import pytest

# Whether there is a device is asked in a way that does not initialize CUDA: the tests that need one fork.
os.environ.setdefault("PYTORCH_NVML_BASED_CUDA_CHECK", "1")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip GPU tests, saying so, where there is no CUDA device."""
    marked = [item for item in items if item.get_closest_marker("gpu")]
    if not marked:
        return
    import torch

    if not torch.cuda.is_available():
        for item in marked:
            item.add_marker(pytest.mark.skip(reason="needs a CUDA device, and there is none"))
