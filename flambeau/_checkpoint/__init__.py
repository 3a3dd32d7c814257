"""How checkpoints are written and read; the public face is `flambeau.serialization`.

`archive` is the zip file, `names` the translation between torch's names and ours, `locations` where
storages go, `restricted` the unpickler that runs no code, `legacy` the formats before the zip file.
"""
