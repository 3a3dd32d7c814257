"""Passes as functions from a module to a result, and their managers."""
