"""`compile` and `disable`: what programs put around their functions and modules."""

from __future__ import annotations

import functools
import sys
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from types import CodeType, FunctionType
from typing import Any

from flambeau._src.capture import frames
from flambeau._src.compiler import own  # noqa: F401 (registers the back ends)
from flambeau._src.compiler.backends import BackEnd, lookup
from flambeau._src.compiler.driver import COMPILERS, Compiler, Options, inductor_switches
from flambeau._src.compiler.settings import DYNAMO, INDUCTOR
from flambeau._src.compiler.stance import STANCE
from flambeau._src.compiler.told import offer, stand_for
from flambeau._src.core.slots import slot

__all__ = [
    "DEFAULT", "MODES", "Disabled", "Recipe", "compile", "compiler_for", "disable",
    "list_mode_options", "list_options", "set_default_backend",
]  # fmt: skip

#: What each mode sets among the options.
MODES: dict[str, dict[str, Any]] = {
    "default": {},
    "lite": {
        "fallback_by_default": True, "selective_decompose": True, "reorder_for_peak_memory": False,
        "reorder_for_compute_comm_overlap": False,
        "triton.reorder_for_reducing_graph_partitions": False, "use_pre_grad_passes": False,
        "use_joint_graph_passes": False, "use_post_grad_passes": False, "use_dce": False,
        "allow_buffer_reuse": False,
    },
    "reduce-overhead": {"triton.cudagraphs": True},
    "max-autotune-no-cudagraphs": {"max_autotune": True, "coordinate_descent_tuning": True},
    "max-autotune": {
        "max_autotune": True, "triton.cudagraphs": True, "coordinate_descent_tuning": True,
    },
}  # fmt: skip


class _Default:
    """The back end that `compile` uses where none is named."""

    backend: Any = None


DEFAULT = _Default()


def set_default_backend(backend: Any) -> None:
    """The back end (name or callable) to use where none is named; None: "inductor"."""
    if backend is not None and not callable(backend):
        lookup(backend)
    DEFAULT.backend = backend


def list_mode_options(mode: str | None = None, dynamic: bool | None = None) -> dict[str, Any]:
    """What each mode (or one) sets. RuntimeError, with the known ones, for an unknown mode."""
    if mode is None:
        return {name: dict(options) for name, options in MODES.items()}
    if mode not in MODES:
        raise RuntimeError(f"Unrecognized mode={mode}, should be one of: {', '.join(MODES)}")
    return dict(MODES[mode])


def list_options() -> list[str]:
    """The names that `options` takes."""
    return list(INDUCTOR.values)


def _options(mode: str | None, options: dict[str, Any] | None) -> dict[str, Any]:
    """The options of the generated code. RuntimeError for what is not known."""
    chosen = list_mode_options(mode or "default")
    for name, value in (options or {}).items():
        key = name.replace("-", "_")
        if key not in INDUCTOR.values:
            raise RuntimeError(
                f"Unexpected optimization option {name}, known options are {list_options()}"
            )
        default = INDUCTOR.defaults[key]
        if default is not None and type(value) is not type(default) and not callable(value):
            raise RuntimeError(
                f"Unexpected type of attr {key}, got {type(value).__name__} should be "
                f"{type(default).__name__}"
            )
        chosen[key] = value
    return chosen


def _frozen(value: Any) -> Any:
    if isinstance(value, dict):
        return tuple(sorted((k, _frozen(v)) for k, v in value.items()))
    try:
        hash(value)
    except TypeError:
        return id(value)
    return value


def compiler_for(
    back_end: BackEnd, *, fullgraph: bool = False, dynamic: bool | None = None,
    mode: str | None = None, options: dict[str, Any] | None = None,
    recompile_limit: int | None = None, isolate: Any = None,
) -> Compiler:  # fmt: skip
    """The compiler of these options: there is one for each set of them."""
    keywords: dict[str, Any] = {}
    switches: dict[str, Any] = {}
    options = dict(options or {})
    choose = options.pop("guard_filter_fn", None)
    if back_end.name == "inductor" and back_end.pipeline:
        switches = inductor_switches(_options(mode, options))
    else:
        if mode and mode != "default":
            keywords["mode"] = mode
        if options:
            keywords["options"] = options
    function = back_end.function
    key = (
        id(function), back_end.pipeline, fullgraph, dynamic, _frozen(keywords), _frozen(switches),
        recompile_limit, isolate, id(choose),
    )  # fmt: skip
    found = COMPILERS.get(key)
    if found is None:
        made = Options(
            back_end, fullgraph, dynamic, tuple(keywords.items()), tuple(switches.items()),
            recompile_limit, choose,
        )  # fmt: skip
        found = COMPILERS[key] = Compiler(made)
    return found


def _nn_module(value: Any) -> bool:
    nn = sys.modules.get("flambeau.nn")
    return nn is not None and isinstance(value, nn.Module)


@dataclass(frozen=True, eq=False)
class Recipe:
    """The arguments of `compile`, to be applied to a function or module (again in a copy, in
    another process, after a reset)."""

    backend: Any = "inductor"
    fullgraph: bool = False
    dynamic: bool | None = None
    mode: str | None = None
    options: dict[str, Any] | None = None
    recompile_limit: int | None = None
    isolate: Any = None

    def __deepcopy__(self, memo: Any) -> Recipe:
        return self

    def compiler(self) -> Compiler:
        """The compiler of these options. Raises what is wrong with them."""
        return compiler_for(
            lookup(self.backend), fullgraph=self.fullgraph, dynamic=self.dynamic, mode=self.mode,
            options=self.options, recompile_limit=self.recompile_limit, isolate=self.isolate,
        )  # fmt: skip

    def __call__(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        """`fn`, run with the compiler at work."""
        entered = _entered(fn)
        target = frames.prepare(entered)
        current = self.compiler()
        set_callback, make = frames.set_callback, self.compiler

        def compile_wrapper(*args: Any, **kwargs: Any) -> Any:
            nonlocal current
            if current.retired:
                current = make()
            callback: Compiler | None = current
            if not STANCE.plain and STANCE.value.stance == "force_eager":
                callback = None
            before = set_callback(callback)
            try:
                return target(*args, **kwargs)
            finally:
                set_callback(before)

        functools.update_wrapper(compile_wrapper, fn)
        compile_wrapper.__dict__.update(
            _torchdynamo_orig_callable=fn, _torchdynamo_inline=entered, _is_torch_compile=True,
            get_compiler_config=lambda: dict(current.options.switches), compiler=lambda: current,
        )  # fmt: skip
        return compile_wrapper


Recipe.__module__ = "flambeau._dynamo.eval_frame"  # pickles of compiled modules name it


#: Codes of functions that call a module, by its class and what is called of it.
_CALLING: weakref.WeakKeyDictionary[type, dict[Any, CodeType]] = weakref.WeakKeyDictionary()


def _entered(fn: Callable[..., Any]) -> Callable[..., Any]:
    """`fn` itself where it has a frame of its own; else a function whose frame calls it. Modules of
    one class share its code: what is compiled for one may serve the others."""
    if isinstance(fn, FunctionType):
        offer(fn.__code__)
        return fn

    def inner(*args: Any, **kwargs: Any) -> Any:
        return fn(*args, **kwargs)

    name = getattr(fn, "__name__", type(fn).__name__)
    module = getattr(fn, "__self__", fn)
    shared = _CALLING.setdefault(type(module), {}) if _nn_module(module) else {}
    called = getattr(getattr(fn, "__func__", None), "__code__", None)
    code = shared.get(called)
    if code is None:
        code = inner.__code__.replace(co_name=name, co_qualname=name, co_filename=stand_for(fn))
        shared[called] = code
    inner.__code__ = code
    offer(code)
    return inner


def compile(
    model: Callable[..., Any] | None = None, *, fullgraph: bool = False,
    dynamic: bool | None = None, backend: Any = None, mode: str | None = None,
    options: dict[str, Any] | None = None, name: str | None = None, disable: bool = False,
    recompile_limit: int | None = None, isolate_recompiles: bool = False, shapes_spec: Any = None,
) -> Any:  # fmt: skip
    """A function or module that runs compiled; compiled when it is first called, and again when
    what it relied on (types, shapes, attributes, globals, modes) has changed.

    Args:
        model: a function, method, callable object or `nn.Module`; None: returns a decorator.
        fullgraph: raise where the program cannot be captured in one graph.
        dynamic: True: sizes are symbols from the start; False: never; None: those that changed.
        backend: a name of `list_backends()` or `(gm, example_inputs) -> callable`.
        mode: "default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs", "lite".
        options: options of the back end; not together with `mode`.
        name: shown in logs.
        disable: return the model as it is.
        recompile_limit: in place of `torch._dynamo.config.recompile_limit`.
        isolate_recompiles: share no compiled code with other calls of `compile`.

    Raises:
        InvalidBackend, RuntimeError (unknown mode or option: the known ones are listed),
        AssertionError (not callable).
    """
    if mode is not None and options is not None:
        raise RuntimeError(
            "Either mode or options can be specified, but both can't be specified at the same time."
        )
    if model is None:
        return functools.partial(
            compile, fullgraph=fullgraph, dynamic=dynamic, backend=backend, mode=mode,
            options=options, name=name, disable=disable, recompile_limit=recompile_limit,
            isolate_recompiles=isolate_recompiles, shapes_spec=shapes_spec,
        )  # fmt: skip
    chosen = backend if backend is not None else DEFAULT.backend or "inductor"
    isolate = object() if isolate_recompiles else None
    recipe = Recipe(chosen, fullgraph, dynamic, mode, options, recompile_limit, isolate)
    recipe.compiler()  # what is wrong with the options is said now
    if disable or DYNAMO.get("disable"):
        return model
    if _nn_module(model):
        return slot("optimized_module")(model, recipe)
    if isinstance(model, type):
        # Of a class, the calls of its objects are compiled.
        model.__call__ = recipe(model.__call__)  # type: ignore[method-assign]
        return model
    if not callable(model):
        raise AssertionError(f"A callable function is expected, but {type(model)} is provided.")
    if isinstance(model, FunctionType):  # what was compiled, or disabled, is taken out of it
        model = getattr(model, "_torchdynamo_orig_callable", model)
    return recipe(model)


class Disabled:
    """No compiler at work: inside a `with`, or while a decorated function runs.

    recursive   functions that are called from it are not captured either
    """

    def __init__(self, recursive: bool = True, reason: str | None = None) -> None:
        self.recursive, self.reason = recursive, reason
        self.before: list[Any] = []

    def __call__(self, fn: Any) -> Any:
        if _nn_module(fn):
            return slot("optimized_module")(fn, lambda module: self(module.__call__))
        if isinstance(fn, type):
            for name in ("__init__", "__call__"):
                if name in vars(fn):
                    setattr(fn, name, self(vars(fn)[name]))
            return fn
        assert callable(fn), f"A callable function is expected, but {type(fn)} is provided."
        set_callback, recursive = frames.set_callback, self.recursive
        if not recursive:
            frames.skip(getattr(fn, "__func__", fn).__code__, None)

        @functools.wraps(fn)
        def disabled(*args: Any, **kwargs: Any) -> Any:
            if not recursive:
                return fn(*args, **kwargs)
            before = set_callback(None)
            try:
                return fn(*args, **kwargs)
            finally:
                set_callback(before)

        disabled._torchdynamo_disable = True  # type: ignore[attr-defined]
        disabled._torchdynamo_disable_msg = self.reason  # type: ignore[attr-defined]
        disabled._torchdynamo_disable_recursive = recursive  # type: ignore[attr-defined]
        disabled._torchdynamo_orig_callable = fn  # type: ignore[attr-defined]
        return disabled

    def __enter__(self) -> Disabled:
        self.before.append(frames.set_callback(None))
        return self

    def __exit__(self, *error: object) -> None:
        frames.set_callback(self.before.pop())


def disable(fn: Any = None, recursive: bool = True, *, reason: str | None = None) -> Any:
    """Keep a function (or module, or class) from being compiled.

    Args:
        fn: what to keep; None: returns a decorator, which is a context manager as well.
        recursive: what it calls is not compiled either; False: only the function's own frame.
        reason: shown where a graph ends because of it.
    """
    context = Disabled(recursive, reason)
    return context if fn is None else context(fn)
