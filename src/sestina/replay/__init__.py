"""What lies between rollout and trainer in asynchronous training: which groups wait, and which make the next batch."""
