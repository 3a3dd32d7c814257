"""`save` and `load`: checkpoints in torch's format, readable by torch and written by it.

A checkpoint is a zip file (see `_checkpoint.archive`) with a pickle, ``data.pkl``, in which the
storages of tensors are persistent ids, and one entry ``data/<key>`` with the bytes of each storage.
Tensors that share a storage still share it after loading.
"""

from __future__ import annotations

import copyreg
import difflib  # noqa: F401  (a name that programs find here)
import io
import os
import pickle
import sys
import threading
import warnings
from collections.abc import Callable
from contextlib import ExitStack
from enum import Enum
from mmap import MAP_PRIVATE, MAP_SHARED
from typing import Any

import flambeau as torch
from flambeau._src.util.config import live, parse_bool

from ._checkpoint import legacy, names, restricted
from ._checkpoint.archive import MAGIC, ZipReader, ZipWriter
from ._checkpoint.legacy import MAGIC_NUMBER, PROTOCOL_VERSION, new_unpickler  # noqa: F401
from ._checkpoint.locations import (
    default_restore_location,
    is_meta,
    location_tag,
    package_registry,
    register_package,
    restorer,
    validate_device,
)
from ._checkpoint.storages import Saved, StorageType, bytes_of
from .utils.serialization import config

__all__ = [
    "SourceChangeWarning",
    "mkdtemp",
    "register_package",
    "check_module_version_greater_or_equal",
    "validate_cuda_device",
    "validate_hpu_device",
    "location_tag",
    "default_restore_location",
    "normalize_storage_type",
    "storage_to_tensor_type",
    "save",
    "load",
    "StorageType",
    "LoadEndianness",
    "get_crc32_options",
    "set_crc32_options",
    "get_default_load_endianness",
    "set_default_load_endianness",
    "get_default_mmap_options",
    "set_default_mmap_options",
    "clear_safe_globals",
    "get_safe_globals",
    "add_safe_globals",
    "safe_globals",
    "get_unsafe_globals_in_checkpoint",
    "skip_data",
]

DEFAULT_PROTOCOL = 2
UNSAFE_MESSAGE = restricted.UNSAFE_MESSAGE
_package_registry = package_registry

_DOCS_MESSAGE = (
    "\n\nCheck the documentation of torch.load to learn more about types accepted by default with "
    "weights_only https://pytorch.org/docs/stable/generated/torch.load.html."
)


class SourceChangeWarning(Warning):
    """The source of a module's class is not the one that it was saved with."""


# Options.


class LoadEndianness(Enum):
    """The byte order of checkpoints that do not say theirs."""

    NATIVE = 1
    LITTLE = 2
    BIG = 3


def get_default_load_endianness() -> LoadEndianness | None:
    """The byte order assumed where a checkpoint does not say; None: little."""
    return config.load.endianness


def set_default_load_endianness(endianness: LoadEndianness) -> None:
    """Choose the byte order assumed where a checkpoint does not say."""
    if not isinstance(endianness, LoadEndianness) and endianness is not None:
        raise TypeError("Invalid argument type in function set_default_load_endianness")
    config.load.endianness = endianness


def get_crc32_options() -> bool:
    """Whether `save` computes checksums."""
    return config.save.compute_crc32


def set_crc32_options(compute_crc32: bool) -> None:
    """Choose whether `save` computes checksums, by which `load` notices damage."""
    config.save.compute_crc32 = compute_crc32


def get_default_mmap_options() -> int | None:
    """``MAP_PRIVATE`` or ``MAP_SHARED``: how ``load(mmap=True)`` maps the file."""
    return config.load.mmap_flags


class set_default_mmap_options:
    """Choose how ``load(mmap=True)`` maps the file; as a context manager, for its duration.

    Args:
        flags: ``mmap.MAP_PRIVATE`` (changes of tensors stay in memory) or ``mmap.MAP_SHARED``
            (they go to the file).
    """

    def __init__(self, flags: int) -> None:
        if flags not in (MAP_PRIVATE, MAP_SHARED):
            raise ValueError(
                "Invalid argument in function set_default_mmap_options, "
                f"expected mmap.MAP_PRIVATE or mmap.MAP_SHARED, but got {flags}"
            )
        self.prev = config.load.mmap_flags
        config.load.mmap_flags = flags

    def __enter__(self) -> None:
        pass

    def __exit__(self, *exc_info: Any) -> None:
        config.load.mmap_flags = self.prev


class _Local(threading.local):
    skip_data = False
    materialize_fake_tensors = False


_serialization_tls = _Local()


class skip_data:
    """Within it, `save` leaves out the bytes of storages, and `load` does not read them.

    The checkpoint then has holes of the right sizes, to be filled by other means.
    """

    def __init__(self, materialize_fake_tensors: bool = False) -> None:
        self.materialize_fake_tensors = materialize_fake_tensors

    def __enter__(self) -> None:
        self._before = _serialization_tls.skip_data, _serialization_tls.materialize_fake_tensors
        _serialization_tls.skip_data = True
        _serialization_tls.materialize_fake_tensors = self.materialize_fake_tensors

    def __exit__(self, *exc_info: Any) -> None:
        _serialization_tls.skip_data, _serialization_tls.materialize_fake_tensors = self._before


# Globals that ``weights_only`` lets through.


def add_safe_globals(safe_globals: list[Any]) -> None:
    """Let ``load(weights_only=True)`` make and call these classes and functions.

    Each is one of them, or a pair of it and the full name that checkpoints have for it.
    """
    restricted.add_safe_globals(safe_globals)


def get_safe_globals() -> list[Any]:
    """What the program has added to the list."""
    return restricted.get_safe_globals()


def clear_safe_globals() -> None:
    """Take back all that was added to the list."""
    restricted.clear_safe_globals()


class safe_globals:
    """`add_safe_globals` for the duration of a ``with`` block."""

    def __init__(self, safe_globals: list[Any]) -> None:
        self.safe_globals = safe_globals

    def __enter__(self) -> None:
        restricted.add_safe_globals(self.safe_globals)

    def __exit__(self, *exc_info: Any) -> None:
        restricted.remove_safe_globals(self.safe_globals)


def get_unsafe_globals_in_checkpoint(f: Any) -> list[str]:
    """The names in a checkpoint that ``weights_only`` would refuse. The pickle is not run."""
    known = {*restricted.default_allowed(), *restricted.user_allowed()}
    with ExitStack() as stack:
        file = _opened(f, "rb", stack)
        if not _is_zipfile(file):
            raise ValueError("Expected input to be a checkpoint returned by torch.save")
        archive = ZipReader(file)
        if "constants.pkl" in archive:
            raise ValueError(
                "Expected input to be a checkpoint returned by torch.save but got a torchscript "
                "checkpoint"
            )
        found = restricted.globals_in(io.BytesIO(archive.read("data.pkl")))
    return list(found - known)


# Files.


def _is_path(f: Any) -> bool:
    return isinstance(f, (str, os.PathLike))


def _opened(f: Any, mode: str, stack: ExitStack) -> Any:
    if _is_path(f):
        return stack.enter_context(open(f, mode))
    if "r" in mode:
        _check_seekable(f)
    return f


def _check_seekable(f: Any) -> None:
    try:
        f.seek(f.tell())
    except (io.UnsupportedOperation, AttributeError) as error:
        if "seek" not in str(error) and "tell" not in str(error):
            raise
        raise type(error)(
            f"{error}. You can only torch.load from a file that is seekable. Please pre-load the "
            "data into a buffer like io.BytesIO and try to load from it instead."
        ) from None


def _is_zipfile(f: Any) -> bool:
    start = f.tell()
    first = f.read(len(MAGIC))
    f.seek(start)
    return first == MAGIC


# Saving.


def save(
    obj: object,
    f: Any,
    pickle_module: Any = pickle,
    pickle_protocol: int = DEFAULT_PROTOCOL,
    _use_new_zipfile_serialization: bool = True,
    _disable_byteorder_record: bool = False,
) -> None:
    """Write an object with tensors in it to a file.

    Args:
        obj: what is to be saved; a state dict, mostly.
        f: a path, or a file-like object open for writing bytes.
        pickle_module: module with ``Pickler`` for all but the tensors.
        pickle_protocol: of the pickle.
        _use_new_zipfile_serialization: False for the format before the zip file.

    Raises:
        RuntimeError: where the folder of a path does not exist.
    """
    _check_dill_version(pickle_module)
    if not _is_path(f) and not hasattr(f, "write"):
        raise AttributeError(
            "expected 'f' to be string, path, or a file-like object with a 'write' attribute"
        )
    if not _use_new_zipfile_serialization:
        if _serialization_tls.skip_data:
            raise RuntimeError(
                "Cannot use skip_data=True with _use_new_zipfile_serialization=False"
            )
        with ExitStack() as stack:
            legacy.save(obj, _opened(f, "wb", stack), pickle_module, pickle_protocol)
        return
    if not _is_path(f) and not callable(f.write):
        kind = str(type(f)).strip("<>")
        raise TypeError(f"Buffer of {kind} has no callable attribute 'write'")
    saved = Saved(lambda storage: str(len(saved.storages)))
    pickled = io.BytesIO()
    names.dump(obj, pickled, pickle_module, pickle_protocol, saved.persistent_id)
    with ExitStack() as stack:
        root = "archive"
        if _is_path(f):
            path = os.fspath(f)
            _check_folder(path)
            root = os.path.splitext(os.path.basename(path))[0] or root
        file = _opened(f, "wb", stack)
        _write_archive(file, root, pickled.getbuffer(), saved, not _disable_byteorder_record)
        # A file-like object need not have it.
        if not _is_path(f) and hasattr(file, "flush"):
            file.flush()


def _check_folder(path: Any) -> None:
    folder = os.path.dirname(os.fsdecode(path))
    if folder and not os.path.isdir(folder):
        raise RuntimeError(f"Parent directory {folder} does not exist.")


def _write_archive(file: Any, root: str, pickled: Any, saved: Saved, byteorder: bool) -> None:
    alignment = config.save.storage_alignment
    archive = ZipWriter(file.write, root, alignment, config.save.compute_crc32)
    archive.add("data.pkl", pickled)
    archive.add(".format_version", b"1")
    archive.add(".storage_alignment", str(alignment).encode())
    if byteorder:
        archive.add("byteorder", sys.byteorder.encode())
    for key, storage in saved.storages.items():
        name = f"data/{key}"
        if _serialization_tls.skip_data or storage.device.type == "meta":
            archive.add_hole(name, storage.nbytes(), lambda n: file.seek(n, io.SEEK_CUR))
        else:
            archive.add(name, bytes_of(storage.cpu()))
    archive.add("version", b"3\n")
    number = archive.combined_checksum()
    archive.add(".data/serialization_id", f"{hash_of_names(saved):020d}{number:020d}".encode())
    archive.finish()


def hash_of_names(saved: Saved) -> int:
    """A number of the sizes of the storages: the first half of a checkpoint's id."""
    number = 0
    for key, storage in saved.storages.items():
        number = (number * 1_000_003 + int(key) * 31 + storage.nbytes()) % 10**19
    return number


def _check_dill_version(pickle_module: Any) -> None:
    if pickle_module is None or pickle_module.__name__ != "dill":
        return
    least = (0, 3, 1)
    if not check_module_version_greater_or_equal(pickle_module, least, False):
        raise ValueError(
            f"'torch' supports dill >= {'.'.join(map(str, least))}, but you have dill "
            f"{pickle_module.__version__}. Please upgrade dill or switch to 'pickle'"
        )


def check_module_version_greater_or_equal(
    module: Any, req_version_tuple: tuple[Any, ...], error_if_malformed: bool = True
) -> bool:
    """Whether ``module.__version__`` is at least the version given as a tuple.

    Raises:
        RuntimeError: where it cannot be understood; without `error_if_malformed` that is a
            warning, and the answer is yes.
    """
    try:
        parts = module.__version__.split(".")
        found = tuple(type(part)(parts[i]) for i, part in enumerate(req_version_tuple))
        return found >= req_version_tuple
    except Exception as error:
        message = (
            f"'{module.__name__}' module version string is malformed '{module.__version__}' and "
            "cannot be compared with tuple "
            f"{req_version_tuple}"
        )
        if error_if_malformed:
            raise RuntimeError(message) from error
        warnings.warn(message + ", but continuing assuming that requirement is met", stacklevel=3)
        return True


# Loading.


def load(
    f: Any,
    map_location: Any = None,
    pickle_module: Any = None,
    *,
    weights_only: bool | None = None,
    mmap: bool | None = None,
    **pickle_load_args: Any,
) -> Any:
    """Read an object that `save` (or torch's) wrote.

    Args:
        f: a path, or a seekable file-like object open for reading bytes.
        map_location: where storages go: a device, its name, a dict from saved locations to
            locations, or a function of (storage, location); None for where they were.
        pickle_module: module with ``Unpickler``; only with ``weights_only=False``.
        weights_only: read with the unpickler that runs no code of the file's choosing (the
            default). Without it a file can do anything: only for files that one trusts.
        mmap: leave the bytes in the file, mapped, until they are touched.
        **pickle_load_args: of ``pickle_module.load``, e.g. ``encoding``.

    Raises:
        pickle.UnpicklingError: where ``weights_only`` does not let something through; the text
            says what to do.
        RuntimeError: where the file is damaged, or a location cannot be had here.
    """
    weights_only = _weights_only(weights_only, pickle_module)
    if weights_only and pickle_module is not None:
        raise RuntimeError("Can not safely load weights when explicit pickle_module is specified")
    if weights_only and pickle_load_args:
        warnings.warn("pickle_load_args only works if `weights_only=False`.", stacklevel=2)
    _check_dill_version(pickle_module)
    mmap = config.load.mmap if mmap is None else mmap
    pickle_load_args.setdefault("encoding", "utf-8")
    module = restricted if weights_only else (pickle_module or pickle)
    if _is_path(f) and os.fspath(f).endswith(".safetensors"):
        return _load_safetensors(os.fspath(f), map_location)
    with ExitStack() as stack:
        file = _opened(f, "rb", stack)
        try:
            if _is_zipfile(file):
                return _load_zip(f, file, map_location, module, mmap, pickle_load_args)
            if mmap:
                shown = f"{f}, " if isinstance(f, str) else ""
                raise RuntimeError(
                    "mmap can only be used with files saved with "
                    f"`torch.save({shown}_use_new_zipfile_serialization=True), "
                    "please torch.save your checkpoint with this option in order to use mmap."
                )
            return legacy.load(file, map_location, module, pickle_load_args)
        except pickle.UnpicklingError as error:
            if not weights_only:
                raise
            raise pickle.UnpicklingError(_explained(str(error))) from None


def _weights_only(asked: bool | None, pickle_module: Any) -> bool:
    """Whether the restricted unpickler is to be used; the environment has a say."""
    force = _is_set("TORCH_FORCE_WEIGHTS_ONLY_LOAD")
    force_no = _is_set("TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD")
    if force and force_no:
        raise RuntimeError(
            "Only one of `TORCH_FORCE_WEIGHTS_ONLY_LOAD` or `TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD` "
            "should be set, but both were set."
        )
    if force:
        return True
    if asked is not None:
        return asked
    if force_no:
        warnings.warn(
            "Environment variable TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD detected, since the"
            "`weights_only` argument was not explicitly passed to `torch.load`, forcing "
            "weights_only=False.",
            UserWarning,
            stacklevel=3,
        )
        return False
    return pickle_module is None


def _is_set(name: str) -> bool:
    return parse_bool(live(name, "0") or "0")


def _explained(message: str) -> str:
    """The text of a refusal, with what can be done about it."""
    if "was not an allowed global by default." in message:
        return (
            "Weights only load failed. This file can still be loaded, to do so you have two "
            "options, \033[1mdo those steps only if you trust the source of the checkpoint"
            f"\033[0m. \n\t(1) {UNSAFE_MESSAGE}\n\t(2) Alternatively, to load with "
            "`weights_only=True` please check the recommended steps in the following error "
            f"message.\n\tWeightsUnpickler error: {message}{_DOCS_MESSAGE}"
        )
    if "must be imported to load" in message:
        return f"Weights only load failed. {message}\n {UNSAFE_MESSAGE}\n"
    text = f"Weights only load failed. {UNSAFE_MESSAGE}\n"
    if not message.endswith("is blocked."):
        text += (
            "Please file an issue with the following so that we can make `weights_only=True` "
            "compatible with your use case: WeightsUnpickler error: "
        )
    return f"{text}\n\n{message}{_DOCS_MESSAGE}"


def _load_safetensors(path: str, map_location: Any) -> Any:
    try:
        import safetensors.torch  # lazy: a package that need not be installed
    except ImportError as error:
        raise RuntimeError(
            "Attempting to load a safetensors file but safetensors is not installed. "
            "Please install safetensors with: pip install safetensors"
        ) from error
    if map_location is not None and not isinstance(map_location, (str, bytes, torch.device)):
        kind = "dict" if isinstance(map_location, dict) else "callable"
        raise RuntimeError(
            f"Loading safetensors file with {kind} map_location is not supported. "
            "Use a device string or torch.device instead."
        )
    device = "cpu" if map_location is None else str(map_location)
    return safetensors.torch.load_file(path, device=device)


def _load_zip(
    f: Any, file: Any, map_location: Any, module: Any, mmap: bool, load_args: dict[str, Any]
) -> Any:
    start = file.tell()
    archive = ZipReader(file)
    if "constants.pkl" in archive:
        warnings.warn(
            "'torch.load' received a zip file that looks like a TorchScript archive dispatching "
            "to 'torch.jit.load' (call 'torch.jit.load' directly to silence this warning)",
            UserWarning,
            stacklevel=3,
        )
        if module is restricted:
            raise RuntimeError(
                "Cannot use ``weights_only=True`` with TorchScript archives passed to "
                "``torch.load``. " + UNSAFE_MESSAGE
            )
        file.seek(start)
        return torch.jit.load(file, map_location=map_location)
    mapped = None
    if mmap:
        if not _is_path(f):
            raise ValueError("f must be a file path in order to use the mmap argument")
        shared = get_default_mmap_options() == MAP_SHARED
        mapped = torch.UntypedStorage.from_file(os.fspath(f), shared, os.path.getsize(f))
    reader = _Reader(archive, map_location, mapped)
    data = io.BytesIO(archive.read("data.pkl"))
    loading = torch._utils._loading
    before, loading.map_location = loading.map_location, map_location
    try:
        return new_unpickler(module, data, reader.persistent_load, load_args).load()
    finally:
        loading.map_location = before


class _Reader:
    """Gives the unpickler the storages of an archive, each read once."""

    def __init__(self, archive: ZipReader, map_location: Any, mapped: Any) -> None:
        self.archive = archive
        self.mapped = mapped
        self.meta = is_meta(map_location)
        self.restore = restorer(map_location)
        self.swapped = self._is_swapped()
        self.loaded: dict[str, Any] = {}

    def _is_swapped(self) -> bool:
        order = get_default_load_endianness()
        if "byteorder" in self.archive:
            said = self.archive.read("byteorder")
            if said not in (b"little", b"big"):
                raise ValueError(f"Unknown endianness type: {said.decode()}")
            return said.decode() != sys.byteorder
        if order is LoadEndianness.NATIVE:
            return False
        return ("big" if order is LoadEndianness.BIG else "little") != sys.byteorder

    def persistent_load(self, saved_id: Any) -> Any:
        """The storage of an id, as a TypedStorage."""
        if not isinstance(saved_id, tuple):
            raise AssertionError(f"saved_id must be a tuple, got {type(saved_id).__name__}")
        kind, *rest = saved_id
        if kind not in ("storage", b"storage"):
            raise AssertionError(
                f"Unknown typename for persistent_load, expected 'storage' but got '{kind}'"
            )
        storage_type, key, location, count = rest
        known = self.loaded.get(key)
        if known is not None:
            return known
        dtype = torch.uint8 if storage_type is torch.UntypedStorage else storage_type.dtype
        if isinstance(location, bytes):
            location = location.decode("ascii")
        untyped = self._storage(f"data/{key}", count * dtype.itemsize, dtype)
        if not self.meta:
            untyped = self.restore(untyped, location)
        typed = torch.storage.TypedStorage(wrap_storage=untyped, dtype=dtype, _internal=True)
        self.loaded[key] = typed
        return typed

    def _storage(self, name: str, nbytes: int, dtype: Any) -> Any:
        if self.meta:
            return torch.UntypedStorage(nbytes, device=torch.device("meta"))
        if _serialization_tls.skip_data:
            return torch.UntypedStorage(nbytes)
        if self.mapped is not None and self.archive.is_stored(name):
            start = self.archive.offset(name)
            storage = self.mapped[start : start + nbytes]
        else:
            storage = torch.UntypedStorage(nbytes)
            self.archive.read_into(name, bytes_of(storage))
        if self.swapped:
            storage.byteswap(dtype)
        return storage


# Names that programs find here.


def _get_layout(name: str) -> Any:
    """The layout of a name such as "torch.strided"."""
    found = getattr(torch, name.rsplit(".", 1)[-1])
    if not isinstance(found, torch.layout):
        raise KeyError(name)
    return found


copyreg.pickle(torch.layout, lambda layout: (_get_layout, (str(layout),)))


def normalize_storage_type(storage_type: type) -> type:
    """The class of a storage at its public place."""
    return getattr(torch.storage, storage_type.__name__)


def storage_to_tensor_type(storage: Any) -> Any:
    """The tensor class of a storage's class, by name."""
    return getattr(torch, type(storage).__name__.replace("Storage", "Tensor"))


def validate_cuda_device(location: str) -> int:
    """The index of the CUDA device that a location means. RuntimeError where it is not there."""
    return validate_device(location, "cuda").index


def validate_hpu_device(location: str) -> int:
    """The index of the HPU device that a location means. RuntimeError where it is not there."""
    return validate_device(location, "hpu").index


def mkdtemp() -> Any:
    """A context manager: a temporary directory."""
    from tempfile import TemporaryDirectory  # lazy: rarely needed

    return TemporaryDirectory()


_get_restore_location: Callable[[Any], Callable[[Any, str], Any]] = restorer
