"""Where the storages of a checkpoint go: tags like ``cpu`` and ``cuda:0``, and who knows them."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import Any

import flambeau as torch

Tagger = Callable[[Any], "str | None"]
Deserializer = Callable[[Any, str], Any]

#: (priority, tagger, deserializer), the lowest priority first.
package_registry: list[tuple[int, Tagger, Deserializer]] = []


def register_package(priority: int, tagger: Tagger, deserializer: Deserializer) -> None:
    """Make a kind of device known to `save` and `load`.

    Args:
        priority: those with a lower one are asked first.
        tagger: gives the tag of a storage, or None where it is not its business.
        deserializer: of (storage, tag), gives the storage where it belongs, or None.
    """
    package_registry.append((priority, tagger, deserializer))
    package_registry.sort(key=lambda entry: entry[0])


def location_tag(storage: Any) -> str:
    """The tag that says where a storage is. RuntimeError where nobody knows."""
    for _, tagger, _ in package_registry:
        location = tagger(storage)
        if location:
            return location
    raise RuntimeError(f"don't know how to determine data location of {torch.typename(storage)}")


def default_restore_location(storage: Any, location: str) -> Any:
    """The storage where the tag says. RuntimeError where nobody knows the tag."""
    for _, _, deserializer in package_registry:
        result = deserializer(storage, location)
        if result is not None:
            return result
    raise RuntimeError(
        f"don't know how to restore data location of {torch.typename(storage)} "
        f"(tagged with {location})"
    )


def restorer(map_location: Any) -> Callable[[Any, str], Any]:
    """The function of (storage, tag) that a `map_location` argument of `load` stands for."""
    if map_location is None:
        return default_restore_location
    if isinstance(map_location, dict):
        return lambda storage, location: default_restore_location(
            storage, map_location.get(location, location)
        )
    if isinstance(map_location, (str, bytes)):
        tag = map_location if isinstance(map_location, str) else map_location.decode("ascii")
        return lambda storage, location: default_restore_location(storage, tag)
    if isinstance(map_location, torch.device):
        device_tag = str(map_location)
        return lambda storage, location: default_restore_location(storage, device_tag)

    def restore(storage: Any, location: str) -> Any:
        result = map_location(storage, location)
        return default_restore_location(storage, location) if result is None else result

    return restore


def is_meta(map_location: Any) -> bool:
    """Whether a `map_location` asks for tensors without bytes."""
    if isinstance(map_location, str):
        return map_location == "meta"
    return isinstance(map_location, torch.device) and map_location.type == "meta"


# The devices that are known.


def _tag(kind: str, storage: Any) -> str | None:
    if storage.device.type != kind:
        return None
    if kind in ("cpu", "meta", "mps"):
        return kind
    return f"{kind}:{storage.device.index}"


def _to_cpu(storage: Any, location: str) -> Any:
    return storage if location == "cpu" else None


def _to_meta(storage: Any, location: str) -> Any:
    if location != "meta":
        return None
    return torch.UntypedStorage(storage.nbytes(), device=torch.device("meta"))


def _to_device(kind: str, storage: Any, location: str) -> Any:
    if location != kind and not re.match(rf"{kind}(:|[0-9]+)", location):
        return None
    return storage.to(device=validate_device(location, kind))


def validate_device(location: str, kind: str) -> Any:
    """The device that a tag means. RuntimeError where this machine does not have it."""
    module = getattr(torch, kind, None)
    if module is None:
        raise RuntimeError(
            f"The {kind.upper()} device module is not registered. If you are running on a CPU-only "
            "machine, please use torch.load with map_location=torch.device('cpu') to map your "
            "storages to the CPU."
        )
    if not module.is_available():
        raise RuntimeError(
            f"Attempting to deserialize object on a {kind.upper()} device but "
            f"torch.{kind}.is_available() is False. If you are running on a CPU-only machine, "
            "please use torch.load with map_location=torch.device('cpu') to map your storages "
            "to the CPU."
        )
    device = torch.device(location)
    index = device.index
    if index is None:
        index = module.current_device() if hasattr(module, "current_device") else 0
    if hasattr(module, "device_count") and index >= module.device_count():
        raise RuntimeError(
            f"Attempting to deserialize object on {kind.upper()} device {index} but "
            f"torch.{kind}.device_count() is {module.device_count()}. Please use torch.load with "
            "map_location to map your storages to an existing device."
        )
    return torch.device(kind, index)


register_package(10, functools.partial(_tag, "cpu"), _to_cpu)
register_package(20, functools.partial(_tag, "cuda"), functools.partial(_to_device, "cuda"))
register_package(21, functools.partial(_tag, "mps"), functools.partial(_to_device, "mps"))
register_package(22, functools.partial(_tag, "meta"), _to_meta)
register_package(24, functools.partial(_tag, "hpu"), functools.partial(_to_device, "hpu"))
register_package(25, functools.partial(_tag, "xpu"), functools.partial(_to_device, "xpu"))
register_package(26, functools.partial(_tag, "mtia"), functools.partial(_to_device, "mtia"))
