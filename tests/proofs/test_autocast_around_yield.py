"""AMP109: a generator is suspended inside an autocast region."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from .helpers import region, torch


def _inside() -> Generator[int, None, None]:
    with region():
        yield from range(3)


def _outside() -> Generator[int, None, None]:
    for item in range(3):
        with region():
            pass
        yield item


def test_the_consumer_runs_under_autocast() -> None:
    for generator, want in ((_inside(), True), (_outside(), False)):
        next(generator)
        assert torch.is_autocast_enabled("cpu") is want
        generator.close()
    assert not torch.is_autocast_enabled("cpu")


def test_two_closed_in_order_leave_it_on() -> None:
    first, second = _inside(), _inside()
    next(first)
    next(second)
    first.close()
    second.close()
    assert torch.is_autocast_enabled("cpu")


def test_the_decorator_has_no_effect() -> None:
    def products() -> Generator[Any, None, None]:
        yield (torch.ones(2, 2) @ torch.ones(2, 2)).dtype

    decorated = torch.autocast("cpu", dtype=torch.float16)(products)
    assert next(decorated()) == torch.float32
