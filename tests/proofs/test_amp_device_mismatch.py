"""AMP407: scaler, autocast and tensors on different devices."""

from __future__ import annotations

import warnings

import pytest

from .helpers import torch

without_cuda = pytest.mark.skipif(torch.cuda.is_available(), reason="shows what happens without CUDA")


@without_cuda
def test_the_default_scaler_switches_itself_off() -> None:
    with pytest.warns(UserWarning, match="CUDA is not available"):
        assert not torch.amp.GradScaler().is_enabled()
    assert torch.amp.GradScaler("cpu").is_enabled()


@without_cuda
def test_an_unused_device_stays_float32() -> None:
    ones = torch.ones(2, 2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        with torch.autocast("cuda", dtype=torch.float16):
            assert (ones @ ones).dtype == torch.float32
    with torch.autocast("cpu", dtype=torch.float16):
        assert (ones @ ones).dtype == torch.float16
