"""What programs compute with, by kind: how each kind of outside object enters the capture."""
