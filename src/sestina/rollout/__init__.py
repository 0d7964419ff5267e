"""Rollout: engines that decode chunks behind one Protocol, and the rank that runs one.

engine.py        the Protocol, what goes in (ChunkRequest) and what comes out (ChunkResult)
torch_engine.py  the embedded engine; its parts below
  batcher.py     which tokens the next forward pass holds: continuous batching, chunked prefill, preemption
  slots.py       the state of running requests as arrays
  pages.py       the paged KV cache: fixed capacity, prefixes shared through a radix tree
  qwen2.py       the forward pass; ops_native.py (CPU, float32) and ops_torch.py (any device) are its kernels
  kv_moves.py    keys and values between its pages and the node's pool: kv_near.py at once, kv_fetch.py by a thread
worker.py        the rollout rank
"""
