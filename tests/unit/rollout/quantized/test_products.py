"""Products by rounded weights: packed and written-out ones agree, and follow the weights that they are made of."""

import pytest
import torch

from sestina.rollout.products import Dense
from sestina.rollout.quantized.choice import choose
from sestina.rollout.quantized.products import Packed4, Packed8, WrittenOut
from sestina.rollout.quantized.rounding import round_to_nearest


def dense(inputs=256, outputs=64, *, bias=True, seed=0):
    generator = torch.Generator().manual_seed(seed)
    weight = 0.1 * torch.randn(outputs, inputs, generator=generator).t()
    return Dense(weight, torch.randn(outputs, generator=generator) if bias else None)


def multiplied(product, rows):
    out = torch.full((len(rows), 64), 7.0)
    product(rows, out)
    return out


def ready(product):
    product.renew()
    return product


KINDS = {
    "packed-4": (4, lambda source: Packed4(source, 64)),
    "packed-8": (8, lambda source: Packed8(source, 64)),
    "written-out-4": (4, lambda source: ready(WrittenOut(source, 4, 64))),
    "written-out-8": (8, lambda source: ready(WrittenOut(source, 8, 64))),
}


@pytest.mark.parametrize(("bits", "build"), KINDS.values(), ids=KINDS.keys())
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("num_rows", [1, 5])
def test_products_are_those_of_the_rounded_weights(bits, build, bias, num_rows):
    source = dense(bias=bias)
    rows = torch.randn(num_rows, 256, generator=torch.Generator().manual_seed(1))
    expected = rows @ round_to_nearest(source.weight.t(), bits, 64).weights().t()
    expected = expected if source.bias is None else expected + source.bias
    assert (multiplied(build(source), rows) - expected).abs().max() < 0.02 * expected.abs().max()


@pytest.mark.parametrize(("bits", "build"), KINDS.values(), ids=KINDS.keys())
def test_renewed_in_place_they_are_those_of_the_new_weights(bits, build):
    source, rows = dense(), torch.eye(256)[:9]
    product = build(source)
    before = multiplied(product, rows)
    kept = [value.data_ptr() for value in vars(product).values() if isinstance(value, torch.Tensor)]
    source.weight.copy_(dense(seed=3).weight)
    assert torch.equal(multiplied(product, rows), before)
    product.renew()
    assert torch.equal(multiplied(product, rows), multiplied(build(source), rows))
    assert not torch.equal(multiplied(product, rows), before)
    assert kept == [value.data_ptr() for value in vars(product).values() if isinstance(value, torch.Tensor)]


@pytest.mark.parametrize("bits", [4, 8])
def test_the_choice_is_one_of_both_and_says_why(bits):
    choice = choose([dense(), dense(bias=False)], bits, 64)
    built = choice.build(dense())
    expected = {True: {4: Packed4, 8: Packed8}[bits], False: WrittenOut}
    assert type(built) is expected["bits, packed" in choice.name]
    assert "times as fast" in choice.name


def test_sizes_that_no_packed_kernel_takes_are_written_out():
    odd = dense(outputs=63)
    choice = choose([odd], 4, 64)
    assert "written out: no packed kernel" in choice.name
    assert isinstance(choice.build(odd), WrittenOut)


def test_a_kernel_that_is_wrong_is_not_taken(monkeypatch):
    monkeypatch.setattr(Packed4, "__call__", lambda self, rows, out: out.zero_())
    assert "products are wrong" in choose([dense()], 4, 64).name
