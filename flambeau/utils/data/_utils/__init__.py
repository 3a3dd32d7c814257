"""The parts of the DataLoader: collation, fetching, worker processes, pinned memory."""

from . import collate, fetch, pin_memory, worker

#: Seconds between two looks at whether the other side still lives.
MP_STATUS_CHECK_INTERVAL = worker.CHECK_SECONDS

__all__ = ["MP_STATUS_CHECK_INTERVAL", "collate", "fetch", "pin_memory", "worker"]
