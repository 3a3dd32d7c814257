"""Real PyTorch as the judge: samples recorded from its operator database, replayed elsewhere."""
