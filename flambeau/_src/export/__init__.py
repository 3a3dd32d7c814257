"""Programs taken out of Python: traced, described, saved and loaded."""
