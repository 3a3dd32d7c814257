"""Normalisation of each channel of each sample."""

from __future__ import annotations

import warnings
from typing import Any

from flambeau import Tensor

from .. import functional as F
from .batchnorm import _LazyNormBase, _NormBase

__all__ = [
    "InstanceNorm1d",
    "InstanceNorm2d",
    "InstanceNorm3d",
    "LazyInstanceNorm1d",
    "LazyInstanceNorm2d",
    "LazyInstanceNorm3d",
]


class _InstanceNorm(_NormBase):
    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float = 0.1,
        affine: bool = False,
        track_running_stats: bool = False,
        device: Any = None,
        dtype: Any = None,
        *,
        bias: bool = True,
    ) -> None:
        super().__init__(
            num_features, eps, momentum, affine, track_running_stats, device, dtype, bias=bias
        )

    def _get_no_batch_dim(self) -> int:
        """The number of dimensions of an input without a batch."""
        raise NotImplementedError(f"{type(self).__name__} must say what an unbatched input is")

    def _handle_no_batch_input(self, input: Tensor) -> Tensor:
        return self._apply_instance_norm(input.unsqueeze(0)).squeeze(0)

    def _apply_instance_norm(self, input: Tensor) -> Tensor:
        return F.instance_norm(
            input,
            self.running_mean,
            self.running_var,
            self.weight,
            self.bias,
            self.training or not self.track_running_stats,
            self.momentum if self.momentum is not None else 0.0,
            self.eps,
        )

    def _load_from_state_dict(
        self,
        state_dict: Any,
        prefix: str,
        local_metadata: dict[str, Any],
        strict: bool,
        missing_keys: list[str],
        unexpected_keys: list[str],
        error_msgs: list[str],
    ) -> None:
        version = local_metadata.get("version")
        if version is None and not self.track_running_stats:
            # Before version 0.4 the statistics were kept by default.
            present = [
                prefix + name
                for name in ("running_mean", "running_var")
                if prefix + name in state_dict
            ]
            if present:
                klass = self.__class__.__name__
                names = " and ".join(f'"{key}"' for key in present)
                error_msgs.append(
                    f"Unexpected running stats buffer(s) {names} for {klass} with"
                    " track_running_stats=False. If state_dict is a checkpoint saved before"
                    f" 0.4.0, this may be expected because {klass} does not track running stats"
                    " by default since 0.4.0. Please remove these keys from state_dict. If the"
                    " running stats are actually needed, instead set track_running_stats=True in"
                    f" {klass} to enable them. See the documentation of {klass} for details."
                )
                for key in present:
                    state_dict.pop(key)
        super()._load_from_state_dict(
            state_dict,
            prefix,
            local_metadata,
            strict,
            missing_keys,
            unexpected_keys,
            error_msgs,
        )

    def forward(self, input: Tensor) -> Tensor:
        self._check_input_dim(input)
        feature_dim = input.dim() - self._get_no_batch_dim()
        if input.size(feature_dim) != self.num_features:
            if self.affine:
                raise ValueError(
                    f"expected input's size at dim={feature_dim} to match num_features"
                    f" ({self.num_features}), but got: {input.size(feature_dim)}."
                )
            warnings.warn(
                f"input's size at dim={feature_dim} does not match num_features. "
                "You can silence this warning by not passing in num_features, "
                "which is not used because affine=False",
                stacklevel=2,
            )
        if input.dim() == self._get_no_batch_dim():
            return self._handle_no_batch_input(input)
        return self._apply_instance_norm(input)


class _Dim1:
    def _get_no_batch_dim(self) -> int:
        return 2

    def _check_input_dim(self, input: Tensor) -> None:
        if input.dim() not in (2, 3):
            raise ValueError(f"expected 2D or 3D input (got {input.dim()}D input)")


class _Dim2:
    def _get_no_batch_dim(self) -> int:
        return 3

    def _check_input_dim(self, input: Tensor) -> None:
        if input.dim() not in (3, 4):
            raise ValueError(f"expected 3D or 4D input (got {input.dim()}D input)")


class _Dim3:
    def _get_no_batch_dim(self) -> int:
        return 4

    def _check_input_dim(self, input: Tensor) -> None:
        if input.dim() not in (4, 5):
            raise ValueError(f"expected 4D or 5D input (got {input.dim()}D input)")


class InstanceNorm1d(_Dim1, _InstanceNorm):
    """Instance normalisation of (N, C, L) or (C, L) (Ulyanov et al. 2016).

    Args:
        num_features: C.
        eps: added to the variance.
        momentum: the weight of a new batch in the running statistics.
        affine: a weight (ones) and, with `bias`, a bias (zeros) for each channel.
        track_running_stats: keep running statistics and use them in evaluation.
    """


class InstanceNorm2d(_Dim2, _InstanceNorm):
    """Instance normalisation of (N, C, H, W) or (C, H, W); see `InstanceNorm1d`."""


class InstanceNorm3d(_Dim3, _InstanceNorm):
    """Instance normalisation of (N, C, D, H, W) or (C, D, H, W); see `InstanceNorm1d`."""


class LazyInstanceNorm1d(_Dim1, _LazyNormBase, _InstanceNorm):
    """An InstanceNorm1d whose `num_features` is the first input's number of channels."""

    cls_to_become = InstanceNorm1d  # type: ignore[assignment]


class LazyInstanceNorm2d(_Dim2, _LazyNormBase, _InstanceNorm):
    """An InstanceNorm2d whose `num_features` is the first input's number of channels."""

    cls_to_become = InstanceNorm2d  # type: ignore[assignment]


class LazyInstanceNorm3d(_Dim3, _LazyNormBase, _InstanceNorm):
    """An InstanceNorm3d whose `num_features` is the first input's number of channels."""

    cls_to_become = InstanceNorm3d  # type: ignore[assignment]
