"""The transforms under the name that older programs use."""
