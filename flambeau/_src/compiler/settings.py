"""The switches of `compile`, by the names that programs set them under (``torch._dynamo.config``).

A `Switches` is one table of known names and their values. The driver reads it when a program is
compiled and hands the values on as arguments; nothing below the driver looks here. A name that
changes nothing in this implementation may be set: that is counted and announced once.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import sys
import types
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from flambeau._src.util.config import config as environment
from flambeau._src.util.log import fallback

__all__ = ["COMPILER", "DYNAMO", "FUNCTORCH", "INDUCTOR", "Switches", "install"]


class Switches:
    """Known names with values. `acting` are those that something here reads."""

    def __init__(
        self, name: str, acting: dict[str, Any], known: dict[str, Any],
        aliases: Mapping[str, str] | None = None,
    ) -> None:  # fmt: skip
        self.name = name
        self.defaults = {**known, **acting}
        self.acting = frozenset(acting)
        self.values = copy.deepcopy(self.defaults)
        self.aliases = dict(aliases or {})

    def key(self, name: str) -> str:
        """The name that `name` stands for. AttributeError where it is not known."""
        name = self.aliases.get(name, name)
        if name not in self.values:
            raise AttributeError(f"{self.name} does not exist".replace("*", name))
        return name

    def get(self, name: str) -> Any:
        """The value of a switch."""
        return self.values[self.key(name)]

    def set(self, name: str, value: Any) -> None:
        """Change a switch."""
        key = self.key(name)
        if key not in self.acting and value != self.defaults[key]:
            path = self.name.replace("*", key)
            fallback(f"switch.{path}", f"{path} = {value!r} changes nothing here")
        self.values[key] = value

    def sections(self, prefix: str) -> bool:
        """Whether `prefix` is the first part of dotted names."""
        return any(k.startswith(prefix + ".") for k in self.values)

    @contextlib.contextmanager
    def patched(self, changes: Mapping[str, Any]) -> Iterator[None]:
        """Other values for a while."""
        before = {name: self.get(name) for name in changes}
        try:
            for name, value in changes.items():
                self.set(name, value)
            yield
        finally:
            for name, value in before.items():
                self.values[self.key(name)] = value


class _Patch(contextlib.ContextDecorator):
    """`config.patch(...)`: a context manager, and a decorator."""

    def __init__(self, switches: Switches, changes: dict[str, Any]) -> None:
        for name in changes:
            switches.key(name)
        self.switches, self.changes = switches, changes
        self.open: list[Any] = []

    def __enter__(self) -> None:
        entered = self.switches.patched(self.changes)
        entered.__enter__()
        self.open.append(entered)

    def __exit__(self, *error: Any) -> None:
        self.open.pop().__exit__(*error)


class _Section:
    """`config.triton`: the switches that begin with a name."""

    def __init__(self, switches: Switches, prefix: str) -> None:
        self.__dict__.update(_switches=switches, _prefix=prefix)

    def __getattr__(self, name: str) -> Any:
        return self._switches.get(f"{self._prefix}.{name}")

    def __setattr__(self, name: str, value: Any) -> None:
        self._switches.set(f"{self._prefix}.{name}", value)


class ConfigModule(types.ModuleType):
    """A module whose attributes are the switches of one table."""

    _switches: Switches

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        switches = self._switches
        if switches.sections(name):
            return _Section(switches, name)
        return switches.get(name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name.startswith("__") or isinstance(value, types.ModuleType):
            super().__setattr__(name, value)
        else:
            self._switches.set(name, value)

    def __delattr__(self, name: str) -> None:
        switches = self._switches
        switches.values[switches.key(name)] = copy.deepcopy(switches.defaults[switches.key(name)])

    def __dir__(self) -> list[str]:
        return sorted([*self._switches.values, "patch", "get_config_copy", "load_config"])

    def patch(
        self, arg1: str | dict[str, Any] | None = None, arg2: Any = None, **kwargs: Any
    ) -> _Patch:
        """Other values inside a `with`, or while a decorated function runs."""
        if isinstance(arg1, str):
            kwargs = {arg1: arg2}
        elif arg1 is not None:
            kwargs = dict(arg1)
        return _Patch(self._switches, kwargs)

    def get_config_copy(self) -> dict[str, Any]:
        """All switches and their values."""
        return copy.deepcopy(self._switches.values)

    shallow_copy_dict = to_dict = get_config_copy

    def load_config(self, values: Mapping[str, Any]) -> None:
        """Set many at once."""
        for name, value in values.items():
            self._switches.set(name, value)

    def is_default(self, name: str) -> bool:
        """Whether a switch has the value that it began with."""
        return bool(self._switches.get(name) == self._switches.defaults[self._switches.key(name)])

    def _make_closure_patcher(self, **changes: Any) -> Callable[[], Callable[[], None]]:
        def change() -> Callable[[], None]:
            before = {k: self._switches.get(k) for k in changes}
            self.load_config(changes)
            return functools.partial(self.load_config, before)

        return change


def install(module: str, switches: Switches) -> None:
    """Make a module, while it is imported, the public face of a table."""
    found = sys.modules[module]
    found.__class__ = ConfigModule
    found.__dict__["_switches"] = switches


DYNAMO = Switches(
    "torch._dynamo.config.*",
    acting={
        "recompile_limit": 8, "accumulated_recompile_limit": 256, "fail_on_recompile_limit_hit":
        False, "error_on_recompile": False,
        # The one default that differs from torch's: a fault in a stage must not end the program.
        "suppress_errors": True, "verbose": False, "disable": False, "dynamic_shapes": True,
        "assume_static_by_default": True, "automatic_dynamic_shapes": True,
        "capture_scalar_outputs": False, "capture_dynamic_output_shape_ops": False,
        "specialize_int": False, "specialize_float": False, "force_parameter_static_shapes": True,
        "force_nn_module_property_static_shapes": True, "allow_unspec_int_on_nn_module": False,
        "minimum_call_count": 1,
    },
    known={
        "allow_empty_graphs": False, "allow_ignore_mark_dynamic": False, "allow_rnn": False,
        "assume_dunder_attributes_remain_unchanged": True, "automatic_dynamic_local_pgo": True,
        "automatic_dynamic_remote_pgo": None, "automatic_dynamic_shapes_mark_as": "dynamic",
        "caching_precompile": False, "capture_autograd_function": True, "capture_func_transforms":
        True, "capture_profiler_record_function": False, "capture_sparse_compute": True,
        "compiled_autograd": False, "compiled_autograd_kwargs_override": {}, "cprofile": False,
        "constant_fold_autograd_profiler_enabled": False, "dead_code_elimination": None,
        "cudagraph_backend_keep_input_mutation": False, "cudagraph_backend_support_input_mutation":
        False, "debug_dir_root": "torch_compile_debug", "do_not_emit_runtime_asserts": False,
        "dont_skip_tracing": False, "enable_aot_compile": True, "enable_compiler_collectives":
        False, "enable_cpp_framelocals_guard_eval": True, "enable_cpp_guard_manager": True,
        "enable_cpp_symbolic_shape_guards": False, "enable_dynamo_decompositions": True,
        "enable_faithful_generator_behavior": True, "enable_trace_contextlib": True,
        "enable_trace_load_build_class": False, "enable_trace_unittest": False,
        "error_on_nested_fx_trace": True, "error_on_nested_jit_trace": True,
        "fake_tensor_cache_enabled": True, "fake_tensor_cache_crosscheck_enabled": False,
        "graph_break_on_nn_param_ctor": True, "guard_nn_modules": True,
        "guard_nn_modules_using_dict_tags": True, "ignore_logging_functions": set(),
        "inline_inbuilt_nn_modules": True, "inline_torch_dispatch_torch_compile": True,
        "install_free_tensors": False, "issue_3_13_0_warning": True, "log_compilation_metrics":
        True, "log_file_name": None, "log_graph_in_out_metadata": False, "nested_graph_breaks":
        False, "nontraceable_tensor_subclasses": set(), "numpy_default_complex": "complex128",
        "numpy_default_float": "float64", "numpy_default_int": "int64",
        "only_allow_pt2_compliant_ops": False, "optimize_ddp": True, "optimize_ddp_lazy_compile":
        False, "prefer_deferred_runtime_asserts_over_guards": False, "prepare_freezing": False,
        "raise_on_ctx_manager_usage": True, "raise_on_unsafe_aot_autograd": False,
        "record_runtime_overhead": True, "reorderable_logging_functions": set(),
        "replay_record_enabled": False, "replay_side_effects": True, "report_guard_failures": True,
        "repro_after": None, "repro_forward_only": False, "repro_ignore_non_fp": False,
        "repro_level": 2, "repro_tolerance": 0.001, "rewrite_assert_with_torch_assert": True,
        "run_gc_after_compile": True, "same_two_models_use_fp64": True,
        "side_effect_replay_policy": "info", "skip_code_recursive_on_recompile_limit_hit": True,
        "skip_fsdp_guards": True, "skip_nnmodule_hook_guards": True,
        "skip_no_tensor_aliasing_guards_on_parameters": True,
        "skip_tensor_guards_with_matching_dict_tags": True, "skip_torchrec": True,
        "skipfiles_inline_module_allowlist": {}, "strict_precompile": False, "trace_autograd_ops":
        False, "trace_numpy": True, "traceable_tensor_subclasses": set(),
        "use_graph_deduplication": False, "use_lazy_graph_module": True, "use_numpy_random_stream":
        False, "verify_correctness": False, "wrap_top_frame": False,
    },
    aliases={
        "cache_size_limit": "recompile_limit",
        "accumulated_cache_size_limit": "accumulated_recompile_limit",
    },
)  # fmt: skip
DYNAMO.values["disable"] = not environment.compile

INDUCTOR = Switches(
    "torch._inductor.config.*",
    acting={
        # Every operator rounds as it does in eager: compiled results are bit-equal.
        "emulate_precision_casts": False,
    },
    known={
        "debug": False, "dce": False, "epilogue_fusion": True, "fallback_random": False,
        "max_autotune": False, "max_autotune_pointwise": False, "max_autotune_gemm": False,
        "max_autotune_gemm_backends": "ATEN,TRITON,CPP", "max_autotune_conv_backends":
        "ATEN,TRITON", "coordinate_descent_tuning": False, "shape_padding": True, "size_asserts":
        True, "nan_asserts": False, "freezing": False, "cpp_wrapper": False, "fx_graph_cache":
        True, "fx_graph_remote_cache": None, "fallback_by_default": False, "selective_decompose":
        False, "reorder_for_peak_memory": True, "reorder_for_compute_comm_overlap": False,
        "reorder_for_locality": True, "use_pre_grad_passes": True, "use_joint_graph_passes": True,
        "use_post_grad_passes": True, "use_dce": True, "allow_buffer_reuse": True,
        "permute_fusion": False, "compile_threads": 1, "conv_1x1_as_mm": False,
        "aggressive_fusion": False, "benchmark_kernel": False, "layout_optimization": True,
        "pattern_matcher": True, "split_reductions": True, "keep_output_stride": True,
        "group_fusion": False, "force_disable_caches": False, "comprehensive_padding": True,
        "graph_partition": True, "unroll_reductions_threshold": 8, "deterministic": False,
        "profiler_mark_wrapper_call": False, "max_fusion_size": 64, "inplace_buffers": True,
        "memory_planning": False, "worker_start_method": "subprocess", "cpu_backend": "cpp",
        "cuda_backend": "triton", "search_autotune_cache": False, "autotune_in_subproc": False,
        "autotune_local_cache": True, "combo_kernels": False, "constant_and_index_propagation":
        True, "joint_graph_constant_folding": True, "post_grad_custom_pre_pass": None,
        "post_grad_custom_post_pass": None, "joint_custom_pre_pass": None,
        "joint_custom_post_pass": None, "pre_grad_custom_pass": None, "b2b_gemm_pass": False,
        "force_fuse_int_mm_with_mul": False, "enabled_metric_tables": "", "use_mixed_mm": True,
        "bw_outputs_user_visible": True, "assume_aligned_inputs": False, "online_softmax": True,
        "implicit_fallbacks": True, "disable_progress": True, "verbose_progress": False,
        "triton.cudagraphs": False, "triton.cudagraph_trees": True,
        "triton.cudagraph_skip_dynamic_graphs": False, "triton.cudagraph_support_input_mutation":
        True, "triton.cudagraph_dynamic_shape_warn_limit": 8, "triton.unique_kernel_names": True,
        "triton.persistent_reductions": True, "triton.multi_kernel": 0,
        "triton.reorder_for_reducing_graph_partitions": True, "trace.enabled": False,
        "trace.graph_diagram": False, "trace.debug_dir": None, "cpp.threads": -1, "cpp.simdlen":
        None, "cpp.min_chunk_size": 512, "cpp.cxx": (None, "g++"), "cpp.enable_kernel_profile":
        False, "cpp.enable_unsafe_math_opt_flag": False, "cpp.weight_prepack": True,
        "cpp.max_horizontal_fusion_size": 16, "aot_inductor.output_path": "",
        "aot_inductor.package": False,
    },
)  # fmt: skip

FUNCTORCH = Switches(
    "torch._functorch.config.*",
    acting={
        "aggressive_recomputation": False, "recompute_views": True, "ban_recompute_reductions":
        True, "ban_recompute_used_far_apart": True, "max_dist_from_bw": 1000, "cse": True,
    },
    known={
        "functionalize_rng_ops": False, "fake_tensor_allow_meta": True, "debug_assert": False,
        "debug_partitioner": False, "decompose_custom_triton_ops": True, "static_weight_shapes":
        True, "treat_parameters_as_free_to_save": True, "enable_autograd_cache": True,
        "view_replay_for_aliased_outputs": True, "ban_recompute_long_fusible_chains": True,
        "ban_recompute_materialized_backward": True, "ban_recompute_not_in_allowlist": True,
        "activation_memory_budget": 1.0, "activation_memory_budget_runtime_estimator": "flops",
        "activation_memory_budget_solver": "dp", "fake_tensor_crossref": False,
        "fake_tensor_propagate_real_tensors": False, "backward_pass_autocast": "same_as_forward",
        "donated_buffer": True, "torch_compile_graph_format": "svg", "strict_autograd_cache":
        False, "graphsafe_rng_functionalization": True, "force_non_lazy_backward_lowering": False,
        "guess_tangent_strides_as_outputs": True, "unlift_effect_tokens": False,
    },
)  # fmt: skip

COMPILER = Switches(
    "torch.compiler.config.*",
    acting={},
    known={"job_id": None, "cache_key_tag": "", "dynamic_sources": "", "unbacked_sources": ""},
)
