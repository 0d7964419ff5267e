"""The Megatron-Core trainer ranks."""
