"""Switches of the capture: kept, for the programs that set them."""

from __future__ import annotations

recompile_limit = cache_size_limit = 8
accumulated_recompile_limit = accumulated_cache_size_limit = 256
suppress_errors = False
verbose = False
disable = False
dynamic_shapes = True
assume_static_by_default = True
automatic_dynamic_shapes = True
capture_scalar_outputs = False
capture_dynamic_output_shape_ops = False
specialize_int = False
specialize_float = False
inline_inbuilt_nn_modules = True
optimize_ddp = True
fail_on_recompile_limit_hit = False
allow_unspec_int_on_nn_module = False
error_on_recompile = False
log_compilation_metrics = True
