"""What `compile` makes of a module: one in whose place it runs compiled."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from flambeau.nn.modules.module import Module

__all__ = ["OptimizedModule"]

_PREFIX = "_orig_mod."
_OWN = frozenset({"forward", "_wrap"})


class OptimizedModule(Module):
    """A module that runs another one (`_orig_mod`) compiled.

    Attributes are the original's: reads and writes reach it. The state dict has the original's
    keys; loading takes them with and without the prefix ``_orig_mod.``. `_wrap` makes a compiled
    function of the original, and travels with copies and pickles.
    """

    __module__ = "flambeau._dynamo.eval_frame"

    def __init__(self, mod: Module, wrap: Callable[[Any], Callable[..., Any]]) -> None:
        super().__init__()
        d = self.__dict__
        d.pop("training")
        d["_modules"]["_orig_mod"] = mod
        d["_wrap"] = wrap
        d["forward"] = self._once_known if hasattr(mod, "_initialize_hook") else wrap(mod)

    def _once_known(self, *args: Any, **kwargs: Any) -> Any:
        """The first call of a lazy module: it takes its shapes before anything is compiled."""
        mod = self._orig_mod
        if hasattr(mod, "_initialize_hook"):
            mod._infer_parameters(mod, args, kwargs)
        self.__dict__["forward"] = self._wrap(mod)
        return self.forward(*args, **kwargs)

    # ---- attributes ----

    @property
    def training(self) -> bool:  # type: ignore[override]
        """The original's."""
        return bool(self._modules["_orig_mod"].training)  # type: ignore[union-attr]

    @training.setter
    def training(self, value: bool) -> None:
        self._modules["_orig_mod"].training = value  # type: ignore[union-attr]

    def __getattr__(self, name: str) -> Any:
        mod = self.__dict__["_modules"]["_orig_mod"]
        return mod if name == "_orig_mod" else getattr(mod, name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name in _OWN:
            self.__dict__[name] = value
        elif name == "_orig_mod":
            self.__dict__["_modules"][name] = value
            self.__dict__["forward"] = self._wrap(value)
        elif name in self.__dict__ or name in ("__class__", "training"):
            super().__setattr__(name, value)
        else:
            setattr(self._orig_mod, name, value)

    def __delattr__(self, name: str) -> None:
        if name in self.__dict__:
            super().__delattr__(name)
        else:
            delattr(self._orig_mod, name)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *dir(self._orig_mod)})

    def __len__(self) -> int:
        return len(self._orig_mod)

    def __getitem__(self, index: Any) -> Any:
        return self._orig_mod[index]

    def __iter__(self) -> Iterator[Any]:
        return iter(self._orig_mod)

    def __contains__(self, item: Any) -> bool:
        return item in self._orig_mod

    def __bool__(self) -> bool:
        return True  # a module is true, however many it holds

    # ---- state ----

    def __getstate__(self) -> dict[str, Any]:
        state = super().__getstate__()
        state.pop("forward", None)
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self.__dict__["forward"] = self._wrap(self._modules["_orig_mod"])

    def state_dict(
        self, *args: Any, destination: Any = None, prefix: str = "", keep_vars: bool = False
    ) -> Any:
        """The original's state dict."""
        return self._orig_mod.state_dict(
            *args, destination=destination, prefix=prefix, keep_vars=keep_vars
        )

    def load_state_dict(
        self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False
    ) -> Any:
        """Load into the original; keys with the prefix ``_orig_mod.`` lose it."""
        plain = OrderedDict((k.removeprefix(_PREFIX), v) for k, v in state_dict.items())
        metadata = getattr(state_dict, "_metadata", None)
        if metadata is not None:
            bare = {
                k.removeprefix(_PREFIX).removeprefix("_orig_mod"): v for k, v in metadata.items()
            }
            plain._metadata = bare  # type: ignore[attr-defined]
        return self._orig_mod.load_state_dict(plain, strict=strict, assign=assign)

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *rest: Any) -> None:
        # As a part of another module: the original is loaded next, from the prefixed names.
        for key in [k for k in state_dict if k.startswith(prefix)]:
            if not key.startswith(prefix + _PREFIX):
                state_dict[prefix + _PREFIX + key[len(prefix) :]] = state_dict.pop(key)
