"""How a batch goes from a worker to the main process: small ones as bytes, large ones as memory.

The pickle of a batch names the bytes of its tensors (and of NumPy arrays) by numbers. Together they
lie in one *arena*, a piece of nameless shared memory; its descriptor goes down the same pipe, once.
When the last tensor over an arena is gone the worker is told and fills it again: after the first
few batches neither side asks the system for memory, which would cost more than the copy.
"""

from __future__ import annotations

import io
import os
import pickle
import weakref
from multiprocessing.connection import Connection
from multiprocessing.reduction import ForkingPickler, recv_handle, sendfds
from socket import AF_UNIX, SOCK_STREAM, socket
from typing import Any, NamedTuple

import flambeau as torch
from flambeau import Tensor, UntypedStorage
from flambeau._storage_memory import Mapping, SharedMemory

#: Batches up to this size go as bytes: two copies cost less than a system call or two.
_INLINE_BYTES = 1 << 16
#: NumPy arrays and other buffers from this size on are taken out of the pickle.
_BUFFER_BYTES = 1 << 12
_ALIGNMENT = 64
#: Free arenas that a worker keeps.
_MOST_FREE = 16


class Placed(NamedTuple):
    """Where the bytes of a batch are.

    Attributes:
        spans: (offset, size) of each storage and buffer.
        arena: the number of the arena, None where the bytes are `inline`.
        inline: the bytes themselves.
        arena_size: of the arena, where it is new and its descriptor follows in the pipe; else 0.
        forgotten: numbers of arenas that will not be used again.
        buffers: how many of the spans, the last ones, are buffers of the pickle.
    """

    spans: list[tuple[int, int]]
    arena: int | None
    inline: bytes
    arena_size: int
    forgotten: list[int]
    buffers: int


# The worker's side.


class _Pickler(ForkingPickler):
    """Pickles everything but the bytes of tensors and large buffers, which it gathers."""

    def __init__(self, file: Any) -> None:
        super().__init__(file, pickle.HIGHEST_PROTOCOL, True, self._gather)
        self.storages: list[memoryview] = []
        self.kept: list[Any] = []
        self.buffers: list[memoryview] = []
        self._index: dict[int, int] = {}

    def _gather(self, buffer: pickle.PickleBuffer) -> bool:
        view = buffer.raw()
        if view.nbytes < _BUFFER_BYTES:
            return True
        self.buffers.append(view)
        return False

    def reducer_override(self, obj: Any) -> Any:
        """Tensors by their own bytes only, not all of what they are views of."""
        if not isinstance(obj, Tensor):
            return NotImplemented
        if obj.requires_grad and not obj.is_leaf:
            raise RuntimeError(
                "Cowardly refusing to serialize non-leaf tensor which requires_grad, since "
                "autograd does not support crossing process boundaries.  If you just want to "
                "transfer the data, call detach() on the tensor before serializing (e.g., putting "
                "it on the queue)."
            )
        if type(obj) is Tensor and obj.layout is torch.strided and obj.device.type == "cpu":
            held = obj.numel() * obj.element_size()
            if obj.untyped_storage().nbytes() > 2 * held and not obj.requires_grad:
                return torch._utils._reduce_tensor(obj.clone(), 2)
        return obj.__reduce_ex__(2)

    def persistent_id(self, obj: Any) -> Any:
        """The number of a storage; None for everything else."""
        dtype = None
        if isinstance(obj, torch.storage.TypedStorage):
            obj, dtype = obj._untyped_storage, obj.dtype
        elif not isinstance(obj, UntypedStorage):
            return None
        if obj.device.type != "cpu":
            return None
        index = self._index.get(id(obj))
        if index is None:
            index = self._index[id(obj)] = len(self.storages)
            self.storages.append(memoryview(obj))
            self.kept.append(obj)
        return index, dtype


class Sender:
    """Makes messages of batches, in the worker."""

    def __init__(self) -> None:
        self._arenas: dict[int, SharedMemory] = {}
        self._free: list[int] = []
        self._made = 0

    def release(self, arenas: list[int]) -> None:
        """Take back arenas of which the other side says that nothing uses them."""
        self._free += [number for number in arenas if number in self._arenas]

    def message(self, value: Any) -> tuple[list[Any], int | None]:
        """What to send for a value: two byte strings, and perhaps a descriptor after them."""
        file = io.BytesIO()
        pickler = _Pickler(file)
        pickler.dump(value)
        views = pickler.storages + pickler.buffers
        spans, size = [], 0
        for view in views:
            spans.append((size, view.nbytes))
            size += -(-view.nbytes // _ALIGNMENT) * _ALIGNMENT
        number, descriptor, inline, new_size = None, None, b"", 0
        forgotten: list[int] = []
        if size <= _INLINE_BYTES:
            target = memoryview(bytearray(size))
            _fill(target, views, spans)
            inline = bytes(target)
        else:
            number, fresh = self._arena(size, forgotten)
            arena = self._arenas[number]
            if fresh:
                descriptor, new_size = arena.descriptor, arena.size
            _fill(_bytes_of(arena), views, spans)
        placed = Placed(spans, number, inline, new_size, forgotten, len(pickler.buffers))
        return [pickle.dumps(placed, pickle.HIGHEST_PROTOCOL), file.getbuffer()], descriptor

    def _arena(self, size: int, forgotten: list[int]) -> tuple[int, bool]:
        """The number of an arena of at least `size` bytes, and whether it is new."""
        fitting = [n for n in self._free if size <= self._arenas[n].size <= 4 * size]
        if fitting:
            number = min(fitting, key=lambda n: self._arenas[n].size)
            self._free.remove(number)
            return number, False
        while len(self._free) >= _MOST_FREE:
            oldest = self._free.pop(0)
            del self._arenas[oldest]
            forgotten.append(oldest)
        self._made += 1
        page = 1 << 16
        self._arenas[self._made] = SharedMemory.create(-(-size // page) * page)
        return self._made, True


def _bytes_of(memory: Mapping) -> memoryview:
    return memoryview(UntypedStorage.from_pointer(memory.address, memory.size, memory))


def _fill(target: memoryview, views: list[memoryview], spans: list[tuple[int, int]]) -> None:
    for view, (start, size) in zip(views, spans, strict=True):
        if size:
            target[start : start + size] = view.cast("B")


def send(connection: Connection, parts: list[Any], descriptor: int | None) -> None:
    """Send a message of `Sender` down a pipe."""
    for part in parts:
        connection.send_bytes(part)
    if descriptor is not None:
        # A pipe of two ways is a socket.
        with socket(AF_UNIX, SOCK_STREAM, fileno=os.dup(connection.fileno())) as sock:
            sendfds(sock, [descriptor])


# The main process's side.


class _Lease:
    """Held by all that lies in one arena, for one batch."""

    def __init__(self, memory: Mapping) -> None:
        self.memory = memory


class _Forks:
    """Counts the forks of this process: a child may go on reading what lies in an arena."""

    count = 0

    @classmethod
    def happened(cls) -> None:
        cls.count += 1


os.register_at_fork(after_in_parent=_Forks.happened)


class Receiver:
    """Takes the messages of one worker.

    Attributes:
        released: numbers of arenas that nothing uses any more; to be told to the worker.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._arenas: dict[int, Mapping] = {}
        self.released: list[int] = []

    def receive(self) -> Any:
        """The next value. EOFError or ConnectionResetError where the worker is gone."""
        placed: Placed = pickle.loads(self._connection.recv_bytes())
        data = self._connection.recv_bytes()
        if placed.arena_size:
            fd = recv_handle(self._connection)
            try:
                self._arenas[placed.arena or 0] = Mapping(fd, placed.arena_size, shared=True)
            finally:
                os.close(fd)
        for number in placed.forgotten:
            self._arenas.pop(number, None)
        storages = self._storages(placed)
        split = len(storages) - placed.buffers
        loader = _Unpickler(io.BytesIO(data), buffers=[memoryview(s) for s in storages[split:]])
        loader.storages = storages
        return loader.load()

    def _storages(self, placed: Placed) -> list[Any]:
        if placed.arena is None:
            inline = memoryview(placed.inline)
            return [
                UntypedStorage.from_buffer(inline[start : start + size])
                for start, size in placed.spans
            ]
        memory = self._arenas[placed.arena]
        lease = _Lease(memory)
        finalizer = weakref.finalize(lease, self._release, placed.arena, _Forks.count)
        finalizer.atexit = False
        return [
            UntypedStorage.from_pointer(memory.address + start, size, lease)
            for start, size in placed.spans
        ]

    def _release(self, number: int, forks: int) -> None:
        # A child forked meanwhile may still read the arena: it is left to that child.
        if forks == _Forks.count:
            self.released.append(number)

    def take_released(self) -> list[int]:
        """The numbers to tell the worker now."""
        taken, self.released[:] = list(self.released), []
        return taken


class _Unpickler(pickle.Unpickler):
    storages: list[Any]

    def persistent_load(self, pid: Any) -> Any:
        """The storage of a number."""
        index, dtype = pid
        storage = self.storages[index]
        if dtype is None:
            return storage
        return torch.storage.TypedStorage(wrap_storage=storage, dtype=dtype, _internal=True)
