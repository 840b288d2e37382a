"""Each proof begins with the state that a fresh thread has."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

torch = pytest.importorskip("torch")


@pytest.fixture(autouse=True)
def fresh_autocast() -> Iterator[None]:
    """Put autocast on the CPU back to its defaults: some misuse leaves it on, in another dtype."""
    yield
    torch.set_autocast_enabled("cpu", False)
    torch.set_autocast_dtype("cpu", torch.bfloat16)
    torch.clear_autocast_cache()
