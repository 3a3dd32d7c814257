"""Sparse tensors are not in this build: making one is an AttributeError, like any name that is
missing.

The layouts (`torch.sparse_coo`, …) exist, and tensors answer questions about them.
"""
