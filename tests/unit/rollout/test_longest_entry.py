"""What the longest text's keys and values take, which a Mooncake client has to have room for."""

from pathlib import Path

import pytest

from sestina.config.load import load
from sestina.controller.instance import instance_config
from sestina.kvpool.entry import offset_of
from sestina.rollout.build import longest_entry_bytes
from sestina.rollout.pages import PAGE_TOKENS, pages_for
from tests.unit.config.helpers import changed

ASSETS = Path(__file__).parents[3] / "assets/sums"


@pytest.mark.parametrize("tokens", [1, 400, 100_000])
def test_an_entry_of_the_longest_text_fits(tokens):
    config = load(changed(f"rollout.max_new_tokens={tokens}", "rollout.engine.kv_capacity_tokens=200000",
                          f"trainer.max_micro_batch_tokens={tokens + 400}", f"model.path={ASSETS}"))  # fmt: skip
    instance = instance_config(config, 0)
    shape, pages = instance.shape, pages_for(instance.max_context_tokens)
    page_bytes = PAGE_TOKENS * shape.num_layers * shape.num_kv_heads * shape.head_size * 2 * 4
    least = offset_of(pages) + pages * page_bytes
    assert least <= longest_entry_bytes(instance) <= 1.1 * least + 256
