"""Models on disk, in the Hugging Face exchange format; nothing of how they run."""
