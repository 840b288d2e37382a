"""Masks of releases and the ranges that hold them."""

from __future__ import annotations

from amplint.versions.releases import ALL, FUTURE, NONE, RELEASES, TorchRange, at_least, module_since, range_of, since


def test_releases_are_in_order_and_end_beyond_the_newest() -> None:
    assert list(RELEASES) == sorted(RELEASES)
    assert RELEASES[0] == (1, 0, 0)
    assert RELEASES[-1] == (2, 16, 1)
    assert (1, 13, 1) in RELEASES
    assert (1, 14, 0) not in RELEASES


def test_ranges() -> None:
    assert range_of(ALL) == TorchRange(None, None)
    assert range_of(at_least((2, 4))) == TorchRange((2, 4), None)
    assert range_of(ALL ^ at_least((2, 0))) == TorchRange(None, (2, 0))
    assert range_of(at_least((1, 13)) ^ at_least((2, 1))) == TorchRange((1, 13), (2, 1))
    assert range_of(FUTURE) == TorchRange((2, 16), None)
    assert range_of(NONE) == TorchRange((2, 16), (2, 16))


def test_since() -> None:
    names = ("torch.autocast", "torch.amp", "torch.amp.GradScaler", "torch.get_autocast_dtype", "torch.compile")
    assert [since(name) for name in names] == [(1, 10), (1, 12), (2, 3), (2, 4), None]
    assert since("torch.is_autocast_enabled") is None
    assert module_since("torch.amp.grad_scaler") == (2, 3)
    assert module_since("torch.amp.GradScaler") is None
