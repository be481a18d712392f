"""The rates of the convolutions."""

import pytest

from benchmarks import convolution
from rcrl_jax import native


@pytest.mark.skipif(native.get("convolution") is None, reason="convolution.cc is not compiled")
def test_every_layer_is_measured_for_both(monkeypatch):
    monkeypatch.setattr(convolution, "_PRODUCT", 64)
    monkeypatch.setattr(convolution, "LAYERS", {"first": (9, 9, 2), "last": (7, 32, 1)})
    rates = convolution.measure(images=2, rounds=2)
    assert list(rates) == [
        "first layer, forward", "first layer, kernel gradient", "last layer, forward",
        "last layer, kernel gradient", "last layer, image gradient", "matrix product",
    ]  # fmt: skip
    for label, by in rates.items():
        assert all(rate > 0 for rate in by.values())
        assert set(by) == ({"xla"} if label == "matrix product" else {"ours", "xla"})
    table = convolution.report(rates).splitlines()
    assert len(table) == 1 + len(rates)
    assert table[-1].startswith("matrix product") and len(table[-1].split()) == 3
