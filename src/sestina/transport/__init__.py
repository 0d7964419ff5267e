"""How messages move between ranks: their types, their bytes, and MPI as the control plane."""
