"""Parts of fx whose interfaces may change."""
