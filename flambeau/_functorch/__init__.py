"""Faces of function transforms at torch's private path."""
