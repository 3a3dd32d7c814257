"""What users write, compiled: the values of the plain program, and no more graphs than expected."""

from __future__ import annotations

import warnings
from typing import Any

import pytest

import flambeau as torch
from flambeau._dynamo.testing import CompileCounterWithBackend
from tests.capture import user_gradients, user_idioms, user_models, user_projects, user_training

PROGRAMS = user_training.PROGRAMS
assert (
    user_gradients.prog
    is user_models.prog
    is user_idioms.prog
    is user_projects.prog
    is user_training.prog
)

#: By name: graphs, and breaks.
EXPECTED: dict[str, tuple[int, int]] = {
    "train_sched": (2, 0), "train_fwd_only": (1, 0), "clip_in_graph": (2, 0), "clip_value": (1, 0),
    "ema": (2, 0), "swa": (1, 0), "amp_train": (1, 0), "grad_accum": (2, 0), "focal_loss": (3, 0),
    "dice": (2, 0), "masking": (2, 0), "data_branch": (3, 1), "boolean_index": (2, 2),
    "greedy": (2, 0), "greedy_in_graph": (3, 0), "beam": (2, 0), "kv_cache": (3, 0),
    "kv_static": (2, 0), "dqn": (1, 0), "ppo_loss": (3, 0), "gae": (2, 0), "gan": (2, 0),
    "siamese": (3, 0), "triplet": (1, 0), "info_nce": (2, 0), "autograd_fn": (2, 0),
    "quantize": (2, 0), "einops_like": (2, 0), "dataclass_cfg": (2, 0), "outputs": (2, 0),
    "module_containers": (2, 0), "try_except": (2, 0), "logging_calls": (2, 0), "warn": (2, 1),
    "prints": (2, 1), "partials": (2, 0), "tqdm_like": (1, 0), "fstrings": (2, 0),
    "asserts": (3, 1), "isinst_chain": (1, 0), "walrus": (1, 0), "matching": (6, 0),
    "enums": (2, 0), "rnn_loop": (3, 0), "lstm_module": (2, 0), "resnet_block": (2, 0),
    "transformer": (3, 0), "vae": (2, 0), "diffusion": (4, 0), "rope": (2, 0),
    "early_exit": (3, 4), "metrics": (4, 0), "ctx_managers": (1, 0), "generators": (1, 0),
    "sort_things": (1, 0), "counters": (5, 0), "weight_norm": (1, 0), "spectral": (1, 0),
    "hooks": (1, 0), "temperature_sampling": (2, 0), "lr_arg": (2, 0), "manual_adam": (2, 0),
    "warmup": (3, 0), "jacobian": (1, 0), "grad_penalty": (1, 0), "checkpointing": (1, 0),
    "dataloader": (2, 0), "eval_train_switch": (4, 0), "freeze": (2, 0),
    "attention_mask_dict": (3, 0),
    "model_output": (4, 0), "config_model": (3, 0), "signature_filter": (2, 0),
    "nonpersistent_buffers": (3, 0), "ema_update": (1, 0), "clip_and_step": (2, 0),
    "grad_scaler": (1, 0), "checkpoint_loop": (2, 0), "partial_layers": (1, 0),
    "modulelist_index": (2, 0), "descriptor_and_slots": (2, 0), "nested_gen_with": (1, 0),
    "match_classes": (6, 0), "rng_in_loop": (1, 0), "autograd_fn_ctx": (1, 0),
    "counters_defaultdict": (2, 0), "deque_mutation": (2, 0), "property_super_mro": (4, 6),
    "fstrings_logging_dict": (1, 0), "walk_tree": (1, 0), "kwargs_only_routing": (3, 0),
    "try_finally_flow": (1, 0), "closures_nonlocal": (2, 0), "optim_param_groups": (3, 0),
    "itertools_mix": (1, 0), "hf_attention_mask": (3, 0), "dynamic_cache": (4, 0),
    "static_cache_index": (4, 0), "parametrized_training": (2, 0), "forward_hooks": (2, 0),
    "timm_droppath": (2, 0), "timm_forward_features": (3, 0), "lightning_module": (2, 0),
    "grad_accum_ctx": (3, 0), "autocast_nested": (1, 0), "enum_flag_dispatch": (2, 0),
    "abstract_registry": (1, 0), "weakref_idcache": (2, 0), "generator_pipeline": (1, 0),
    "exc_groups_ctx": (2, 0), "inplace_views_buffers": (2, 0), "moco_ema": (1, 0),
    "moe_routing": (1, 0), "gan_two_optims": (2, 0), "wgan_gp": (2, 1), "lbfgs_closure": (1, 0),
    "schedulers_many": (2, 0), "swa_ema_multi": (2, 0), "namedtuple_state": (2, 0),
    "dataclass_features": (3, 4), "cached_property_lru": (2, 0), "getattr_delegation": (1, 0),
    "string_keyed_modules": (2, 0), "tensor_subclass_meta": (1, 0), "list_default_mutation": (2, 0),
    "global_state_counter": (2, 0), "sort_key_tensors": (0, 0), "star_expr": (1, 0),
    "shape_arith": (4, 0),
    "shared_weights": (2, 0), "grad_alias_mutation": (1, 0), "grads_of_views": (1, 0),
    "retain_and_double": (1, 0), "grad_penalty_inside": (2, 0), "custom_optimizer": (3, 0),
    "sam_two_steps": (1, 0), "lookahead_slow": (3, 0), "bn_momentum_freeze": (9, 3),
    "inplace_relu_residual": (1, 0), "rnn_tbptt": (2, 0), "lora_merge": (4, 0),
    "ddpm_loss_ema": (2, 0), "ckpt_rng_dropout": (1, 0), "multi_loss_partial_backward": (1, 0),
    "freeze_midway": (3, 0), "grad_none_branch": (2, 0), "accumulate_dtype": (2, 0),
    "scaler_inside": (2, 0), "post_acc_hook_fused_optim": (1, 0), "tensor_hook_clip": (2, 0),
    "hooked_module_pure": (1, 0), "hooked_module_logging": (3, 2), "gradcam": (4, 1),
    "out_args_and_views": (1, 0), "return_same_twice": (1, 0), "detach_chain": (2, 1),
    "param_reassign": (2, 1), "param_data_sgd": (2, 0),
}  # fmt: skip


def tell_apart(x: Any, y: Any, tolerance: float) -> str | None:
    """The first difference."""
    if isinstance(x, torch.Tensor):
        same = isinstance(y, torch.Tensor) and x.dtype is y.dtype and x.shape == y.shape
        close = same and torch.allclose(x, y, rtol=tolerance, atol=tolerance, equal_nan=True)
        return None if close else f"{x} and {y}"
    if isinstance(x, dict):
        if list(x) != list(y):
            return f"keys {list(x)} and {list(y)}"
        return tell_apart(list(x.values()), list(y.values()), tolerance)
    if isinstance(x, (list, tuple)):
        if len(x) != len(y):
            return f"lengths {len(x)} and {len(y)}"
        return next(
            (d for a, b in zip(x, y, strict=True) if (d := tell_apart(a, b, tolerance))), None
        )
    return None if x == y else f"{x} and {y}"


def _plain(fn: Any) -> Any:
    return fn


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_program(name: str, backend: str) -> None:
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    counted = CompileCounterWithBackend(backend)
    found = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for compile_ in (_plain, lambda fn: torch.compile(fn, backend=counted)):
            torch.manual_seed(0)
            found.append(PROGRAMS[name](compile_))
    assert not (why := tell_apart(*found, 1e-6)), why
    breaks = sum(torch._dynamo.utils.counters["graph_break"].values())
    assert (counted.frame_count, breaks) == EXPECTED[name]
    assert not torch._dynamo.utils.counters["contained"]
