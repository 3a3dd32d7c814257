"""Reading and exchanging the tensors of a module tree by dotted name."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from flambeau import Tensor
from flambeau.nn.modules.module import Module

_MISSING: Any = object()


def _check(name: str) -> None:
    if "." in name:
        raise KeyError('tensor name can\'t contain "."')
    if name == "":
        raise KeyError('tensor name can\'t be empty string ""')


def set_tensor(module: Module, name: str, tensor: Tensor) -> None:
    """Put a tensor (or a parameter) in a module's tables, past the checks of assignment."""
    if not isinstance(module, Module):
        raise TypeError(f"{module} is not an instance of torch.nn.Module")
    if not isinstance(tensor, Tensor) and tensor is not None:
        raise TypeError(f"{tensor} is not an instance of torch.Tensor")
    _check(name)
    if name in module._parameters:
        module._parameters[name] = tensor  # type: ignore[assignment]
    elif name in module._buffers:
        module._buffers[name] = tensor
    else:
        setattr(module, name, tensor)


def swap_tensor(module: Module, name: str, tensor: Any, allow_missing: bool = False) -> Any:
    """Put a tensor in a module's place `name` and return the one that was there.

    Where nothing was there (`allow_missing`) or shall be, a marker stands for it.
    """
    if not isinstance(module, Module):
        raise TypeError(f"{module} is not an instance of torch.nn.Module")
    if tensor is not _MISSING and not isinstance(tensor, Tensor) and tensor is not None:
        raise TypeError(f"{tensor} is not an instance of torch.Tensor")
    _check(name)
    table: Any = None
    if name in module._parameters:
        table = module._parameters
    elif name in module._buffers:
        table = module._buffers
    if table is not None:
        old = table[name]
        if tensor is _MISSING:
            del table[name]
        else:
            table[name] = tensor
        return old
    if hasattr(module, name):
        old = getattr(module, name)
        if old is not None and not isinstance(old, Tensor):
            raise TypeError(f"attribute `{name}`: {old} is not an instance of torch.Tensor")
    elif allow_missing:
        old = _MISSING
    else:
        raise AttributeError(f"{module._get_name()} has no attribute `{name}`")
    if tensor is not _MISSING:
        setattr(module, name, tensor)
    elif hasattr(module, name):
        delattr(module, name)
    return old


def swap_submodule(module: Module, name: str, submodule: Module) -> Module:
    """Put a module in a child's place and return the child."""
    if not isinstance(module, Module):
        raise TypeError(f"{module} is not an instance of torch.nn.Module")
    if not isinstance(submodule, Module):
        raise TypeError(f"{submodule} is not an instance of torch.nn.Module")
    if "." in name:
        raise KeyError('submodule name can\'t contain "."')
    if name == "":
        raise KeyError('submodule name can\'t be empty string ""')
    if name not in module._modules:
        raise KeyError(f"submodule {name} does not exist")
    old = module._modules[name]
    if not isinstance(old, Module):
        raise TypeError(f"{name} attribute is not an instance of torch.nn.Module")
    module._modules[name] = submodule
    return old


class NamedMemberAccessor:
    """The parameters, buffers and modules of a tree by dotted name; paths are looked up once."""

    def __init__(self, module: Module) -> None:
        self.module = module
        self.memo: dict[str, Module] = {}

    def get_submodule(self, name: str) -> Module:
        """The module at a path."""
        if not name:
            return self.module
        if name in self.memo:
            return self.memo[name]
        prefix, _, attr = name.rpartition(".")
        parent = self.get_submodule(prefix)
        try:
            submodule = getattr(parent, attr)
        except AttributeError as error:
            raise AttributeError(f"{parent._get_name()} has no attribute `{attr}`") from error
        if not isinstance(submodule, Module):
            raise TypeError(
                f"submodule `{name}`: {submodule} is not an instance of torch.nn.Module"
            )
        self.memo[name] = submodule
        return submodule

    def swap_submodule(self, path: str, value: Module) -> Module:
        """Put a module at a path and return the one that was there."""
        prefix, _, attr = path.rpartition(".")
        return swap_submodule(self.get_submodule(prefix), attr, value)

    def get_tensor(self, name: str) -> Tensor:
        """The tensor at a path."""
        prefix, _, attr = name.rpartition(".")
        submodule = self.get_submodule(prefix)
        try:
            tensor = getattr(submodule, attr)
        except AttributeError as error:
            raise AttributeError(f"{submodule._get_name()} has no attribute `{name}`") from error
        if not isinstance(tensor, Tensor) and tensor is not None:
            raise TypeError(f"{tensor} is not an instance of torch.Tensor")
        return tensor

    def set_tensor(self, name: str, value: Tensor) -> None:
        """Put a tensor at a path."""
        prefix, _, attr = name.rpartition(".")
        set_tensor(self.get_submodule(prefix), attr, value)

    def del_tensor(self, name: str) -> None:
        """Remove the tensor at a path."""
        prefix, _, attr = name.rpartition(".")
        submodule = self.get_submodule(prefix)
        try:
            delattr(submodule, attr)
        except AttributeError as error:
            raise AttributeError(f"{submodule._get_name()} has no attribute `{name}`") from error

    def swap_tensor(self, name: str, value: Any, allow_missing: bool = False) -> Any:
        """Put a tensor at a path and return the one that was there; see `swap_tensor`."""
        prefix, _, attr = name.rpartition(".")
        return swap_tensor(self.get_submodule(prefix), attr, value, allow_missing)

    def get_tensors(self, names: Iterable[str]) -> list[Tensor]:
        """The tensors at the paths."""
        return [self.get_tensor(name) for name in names]

    def set_tensors(self, names: Iterable[str], values: Iterable[Tensor]) -> None:
        """Put tensors at the paths."""
        names, values = list(names), list(values)
        if len(names) != len(values):
            raise AssertionError(
                "names and values must have the same length, "
                f"got {len(names)} names and {len(values)} values"
            )
        for name, value in zip(names, values, strict=True):
            self.set_tensor(name, value)

    def set_tensors_dict(self, named_tensors: dict[str, Tensor]) -> None:
        """Put tensors at the paths that are the keys."""
        for name, value in named_tensors.items():
            self.set_tensor(name, value)

    def del_tensors(self, names: Iterable[str]) -> None:
        """Remove the tensors at the paths."""
        for name in names:
            self.del_tensor(name)

    def swap_tensors(
        self, names: Iterable[str], values: Iterable[Any], allow_missing: bool = False
    ) -> list[Any]:
        """Put tensors at the paths and return those that were there."""
        names, values = list(names), list(values)
        if len(names) != len(values):
            raise AssertionError(
                "names and values must have the same length, "
                f"got {len(names)} names and {len(values)} values"
            )
        return [
            self.swap_tensor(name, value, allow_missing)
            for name, value in zip(names, values, strict=True)
        ]

    def swap_tensors_dict(
        self, named_tensors: dict[str, Any], allow_missing: bool = False
    ) -> tuple[dict[str, Any], list[str]]:
        """The same with a dict; returns those that were there and the names that were missing.

        If one cannot be put in place, all that were are put back.
        """
        old: dict[str, Any] = {}
        missing: list[str] = []
        try:
            for name, tensor in named_tensors.items():
                old[name] = self.swap_tensor(name, tensor, True)
                if old[name] is _MISSING:
                    missing.append(name)
            if missing and not allow_missing:
                raise RuntimeError(f"Missing key(s): {', '.join(map(repr, missing))}.")
        except Exception:
            for name, tensor in old.items():
                self.swap_tensor(name, tensor, True)
            raise
        return old, missing

    def check_keys(self, keys: Iterable[str]) -> tuple[list[str], list[str]]:
        """The names that are not among the keys, and the keys that are no names."""
        keys = set(keys)
        valid = {name for name, _ in self.named_tensors(remove_duplicate=False)}
        return sorted(valid - keys), sorted(keys - valid)

    def named_parameters(self, remove_duplicate: bool = True) -> Iterable[tuple[str, Tensor]]:
        """All parameters with their names."""
        yield from self.module.named_parameters(remove_duplicate=remove_duplicate)

    def named_buffers(self, remove_duplicate: bool = True) -> Iterable[tuple[str, Tensor]]:
        """All buffers with their names."""
        yield from self.module.named_buffers(remove_duplicate=remove_duplicate)

    def named_tensors(self, remove_duplicate: bool = True) -> Iterable[tuple[str, Tensor]]:
        """All parameters, then all buffers, with their names."""
        yield from self.module.named_parameters(remove_duplicate=remove_duplicate)
        yield from self.module.named_buffers(remove_duplicate=remove_duplicate)

    def named_modules(self, remove_duplicate: bool = True) -> Iterable[tuple[str, Module]]:
        """All modules with their names."""
        yield from self.module.named_modules(remove_duplicate=remove_duplicate)
