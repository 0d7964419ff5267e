"""Signatures of native/bindings.cc. Arguments are addresses and sizes; native/kernels.h has the shapes."""

PAGE_TOKENS: int

def rms_norm(x: int, weight: int, eps: float, rows: int, width: int, out: int, /) -> None: ...
def add_rms_norm(delta: int, residual: int, weight: int, eps: float, rows: int, width: int, out: int, /) -> None: ...
def silu_mul(gate_up: int, rows: int, width: int, out: int, /) -> None: ...
def rope_store(
    qkv: int,
    cos_sin: int,
    positions: int,
    slots: int,
    rows: int,
    query_heads: int,
    kv_heads: int,
    head_size: int,
    key_pages: int,
    value_pages: int,
    /,
) -> None: ...
def paged_attention(
    qkv: int,
    key_pages: int,
    value_pages: int,
    block_tables: int,
    blocks_per_sequence: int,
    sequences: int,
    positions: int,
    branch_offsets: int,
    branch_cells: int,
    rows: int,
    query_heads: int,
    kv_heads: int,
    head_size: int,
    out: int,
    /,
) -> None: ...
def move_tokens(
    source: int,
    target: int,
    count: int,
    query_heads: int,
    kv_heads: int,
    head_size: int,
    key_pages: int,
    value_pages: int,
    /,
) -> None: ...
def sample(
    logits: int, temperatures: int, keys: int, positions: int, rows: int, vocab: int, tokens: int, logprobs: int, /
) -> None: ...
