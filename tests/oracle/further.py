"""Further entries: the rest of the operator database, beyond the list the spine began with.

They are recorded and judged when named or with `--further` (`make oracle-further`).
This table is not among the sources whose digest names the recording: a line here adds files to it
and changes none. Whoever changes the `call` of a line removes its files from the recording.
"""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

#: kind: entries whose function is `torch.<name>`
FUNCTIONS = {
    "reduction": """nansum nanmean aminmax median nanmedian mode all any amax amin argmin prod
        count_nonzero min|reduction_with_dim min|reduction_no_dim std_mean std_mean|unbiased
        logsumexp norm norm|nuc norm|fro norm|inf dist equal allclose hash_tensor trace
        linalg.norm linalg.norm|subgradients_at_zero linalg.matrix_norm linalg.vector_norm
        masked.sum masked.prod masked.amax masked.amin masked.argmax masked.argmin masked.mean
        masked.median masked.norm masked.var masked.std masked.logsumexp
        _segment_reduce|lengths _segment_reduce|offsets""",
    "fft": """fft.fft fft.fft2 fft.fftn fft.hfft fft.hfft2 fft.hfftn fft.rfft fft.rfft2 fft.rfftn
        fft.ifft fft.ifft2 fft.ifftn fft.ihfft fft.ihfft2 fft.ihfftn fft.irfft fft.irfft2 fft.irfftn
        fft.fftshift fft.ifftshift""",
    "sample": """grid_sampler_2d grid_sampler_3d nn.functional.grid_sample nn.functional.ctc_loss
        nn.functional.interpolate|nearest nn.functional.interpolate|nearest-exact
        nn.functional.interpolate|linear nn.functional.interpolate|bilinear
        nn.functional.interpolate|bicubic nn.functional.interpolate|trilinear
        nn.functional.interpolate|area nn.functional.upsample_bilinear
        nn.functional.upsample_nearest""",
    "scan": """quantile nanquantile cov corrcoef diff trapezoid trapz cumulative_trapezoid gradient
        histc histogram histogramdd isin stft istft logspace linspace linspace|tensor_overload
        logspace|tensor_overload cumprod cummax cummin logcumsumexp masked.cumsum masked.cumprod
        bincount""",
    "pointwise": """deg2rad rad2deg copysign heaviside nextafter ldexp frexp logaddexp2 float_power
        gcd lcm nan_to_num angle complex polar isreal positive
        special.airy_ai special.bessel_j0 special.bessel_j1 special.bessel_y0
        special.bessel_y1 special.chebyshev_polynomial_t special.chebyshev_polynomial_u
        special.chebyshev_polynomial_v special.chebyshev_polynomial_w special.entr
        special.erfcx special.hermite_polynomial_h special.hermite_polynomial_he special.i0e
        special.i1 special.i1e special.laguerre_polynomial_l special.legendre_polynomial_p
        special.log_ndtr special.modified_bessel_i0 special.modified_bessel_i1
        special.modified_bessel_k0 special.modified_bessel_k1 special.ndtr special.ndtri
        special.scaled_modified_bessel_k0 special.scaled_modified_bessel_k1
        special.shifted_chebyshev_polynomial_t special.shifted_chebyshev_polynomial_u
        special.shifted_chebyshev_polynomial_v special.shifted_chebyshev_polynomial_w
        special.spherical_bessel_j0 special.xlog1py special.zeta i0 igamma igammac
        mvlgamma|mvlgamma_p_1 mvlgamma|mvlgamma_p_3 mvlgamma|mvlgamma_p_5
        abs acos acosh addcmul addcdiv asin asinh atan atan2 atanh bitwise_not bitwise_left_shift
        bitwise_right_shift ceil conj conj_physical resolve_conj resolve_neg cos cosh fmax fmin fmod
        remainder frac floor floor_divide log1p imag log10 log2 logaddexp logical_not maximum
        min|binary minimum logical_and logical_or logical_xor bitwise_and bitwise_or bitwise_xor
        isclose neg real round round|decimals_0 round|decimals_3 round|decimals_neg_3 sin sinc sinh
        sign sgn rsub signbit tan trunc exp2 expm1 reciprocal rsqrt sqrt square lerp isfinite isinf
        isposinf isneginf isnan hypot xlogy sigmoid digamma erfc erfinv lgamma logit
        masked.logaddexp
        nn.functional.relu nn.functional.hardswish nn.functional.leaky_relu nn.functional.elu
        nn.functional.celu nn.functional.selu nn.functional.silu nn.functional.silu|complex
        nn.functional.hardsigmoid nn.functional.logsigmoid nn.functional.mish
        nn.functional.softsign nn.functional.tanhshrink nn.functional.threshold
        nn.functional.softshrink nn.functional.hardshrink nn.functional.hardtanh
        nn.functional.relu6 nn.functional.softplus""",
    "loss": """nn.functional.soft_margin_loss nn.functional.margin_ranking_loss
        nn.functional.multi_margin_loss nn.functional.multilabel_margin_loss
        nn.functional.multilabel_soft_margin_loss nn.functional.triplet_margin_loss
        nn.functional.triplet_margin_with_distance_loss nn.functional.binary_cross_entropy
        nn.functional.binary_cross_entropy_with_logits nn.functional.smooth_l1_loss
        nn.functional.l1_loss nn.functional.mse_loss nn.functional.cosine_embedding_loss
        nn.functional.gaussian_nll_loss nn.functional.hinge_embedding_loss nn.functional.huber_loss
        nn.functional.poisson_nll_loss nn.functional.kl_div nn.functional.linear_cross_entropy
        nn.functional.linear_cross_entropy|chunked nn.functional.linear_cross_entropy|chunked_none
        nn.functional.cosine_similarity nn.functional.pairwise_distance nn.functional.pdist
        cdist""",
    "view": """broadcast_to broadcast_tensors unsafe_chunk view_as_real view_as_complex diagonal
        linalg.diagonal unsafe_split split_with_sizes tensor_split hsplit vsplit dsplit ravel
        atleast_1d atleast_2d atleast_3d movedim""",
    "copy": """block_diag combinations cartesian_prod diag diag_embed diagonal_copy diagonal_scatter
        alias_copy flip fliplr flipud masked_fill masked_scatter masked_select
        meshgrid|variadic_tensors meshgrid|list_of_tensors constant_pad_nd
        nn.functional.pad|constant nn.functional.pad|reflect nn.functional.pad|replicate
        nn.functional.pad|replicate_negative nn.functional.pad|circular nn.functional.unfold roll
        rot90 split_with_sizes_copy column_stack put take _unsafe_masked_index _chunk_cat hstack
        unbind_copy vstack dstack unfold_copy squeeze_copy tile unsqueeze_copy tril triu t_copy
        nn.functional.pixel_shuffle nn.functional.pixel_unshuffle nn.functional.channel_shuffle
        diagflat repeat_interleave nn.functional.one_hot nonzero nonzero_static argwhere
        unravel_index""",
    "index": """_unsafe_masked_index_put_accumulate index_reduce|mean index_reduce|prod
        index_reduce|amin index_reduce|amax scatter_reduce|sum scatter_reduce|prod
        scatter_reduce|mean scatter_reduce|amin scatter_reduce|amax renorm bucketize
        searchsorted""",
    "sort": "kthvalue msort argsort unique unique_consecutive",
    "create": "eye scalar_tensor triu_indices tril_indices",
    "window": """signal.windows.hamming signal.windows.hann signal.windows.bartlett
        signal.windows.blackman signal.windows.cosine signal.windows.exponential
        signal.windows.gaussian signal.windows.kaiser signal.windows.general_cosine
        signal.windows.general_hamming signal.windows.nuttall""",
    "meta": "empty_permuted broadcast_shapes",
    "norm": """nn.functional.normalize native_group_norm nn.functional.group_norm
        nn.functional.instance_norm nn.functional.rms_norm nn.functional.local_response_norm
        masked.softmax masked.log_softmax masked.softmin masked.normalize nn.functional.glu
        nn.functional.prelu""",
    "pool": """nn.functional.adaptive_avg_pool1d nn.functional.adaptive_avg_pool2d
        nn.functional.adaptive_avg_pool3d nn.functional.adaptive_max_pool1d
        nn.functional.adaptive_max_pool2d nn.functional.adaptive_max_pool3d
        nn.functional.avg_pool1d nn.functional.avg_pool2d nn.functional.avg_pool3d
        nn.functional.max_unpool1d nn.functional.max_unpool1d|grad nn.functional.max_unpool2d
        nn.functional.max_unpool2d|grad nn.functional.max_unpool3d
        nn.functional.max_unpool3d|grad""",
    "matmul": """addmv addbmm dot vdot mv addr cross linalg.cross nn.functional.bilinear outer kron
        inner tensordot linalg.vecdot linalg.multi_dot linalg.matrix_power bmm|triton_optimized""",
    "linalg": """cholesky cholesky_inverse cholesky_solve geqrf lu lu_unpack lu_solve matrix_exp
        ormqr qr triangular_solve svd pinverse logdet linalg.det linalg.cholesky linalg.cholesky_ex
        linalg.cond linalg.eig linalg.eigvals linalg.eigh linalg.eigvalsh
        linalg.householder_product linalg.ldl_factor linalg.ldl_factor_ex linalg.ldl_solve
        linalg.lstsq linalg.qr linalg.slogdet linalg.vander linalg.lu_factor linalg.lu_factor_ex
        linalg.lu linalg.lu_solve linalg.inv linalg.inv_ex linalg.solve linalg.solve_ex
        linalg.solve_triangular linalg.matrix_rank linalg.matrix_rank|hermitian linalg.pinv
        linalg.pinv|hermitian linalg.svd linalg.svdvals linalg.tensorinv linalg.tensorsolve""",
}
#: kind: `call=entry`, the call as in `entries.py`
CALLS = {
    "norm": """torch.ops.aten._softmax_backward_data=_softmax_backward_data
        torch.ops.aten._batch_norm_with_update=_batch_norm_with_update
        torch.ops.aten._safe_softmax.default=torch.ops.aten._safe_softmax.default""",
    "sample": "torch.ops.aten._upsample_bilinear2d_aa=_upsample_bilinear2d_aa",
    "pointwise": """Tensor.cdouble=cdouble Tensor.cfloat=cfloat Tensor.chalf=chalf
        own:polygamma=polygamma|polygamma_n_0 own:polygamma=polygamma|polygamma_n_1
        own:special_polygamma=special.polygamma|special_polygamma_n_0""",
    "view": "Tensor.unfold=unfold own:H=H own:mH=mH",
    "copy": """Tensor.repeat=repeat own:zero_=zero_ own:item=item
        own:embedding_bag=nn.functional.embedding_bag""",
    "reduction": "Tensor.sum_to_size=sum_to_size",
    "meta": "own:resize_=resize_ own:resize_as_=resize_as_",
    "pool": "own:max_pool_backward=max_pool2d_with_indices_backward",
    "mask": """torch.ops.aten.native_dropout_backward.default=native_dropout_backward
        seed:torch.nn.functional.rrelu=nn.functional.rrelu
        seed:torch.nn.functional.fractional_max_pool2d=nn.functional.fractional_max_pool2d
        seed:torch.nn.functional.fractional_max_pool3d=nn.functional.fractional_max_pool3d
        own:mha=nn.functional.multi_head_attention_forward""",
    "random": """seed:Tensor.cauchy_=cauchy seed:Tensor.geometric_=geometric
        seed:Tensor.log_normal_=log_normal""",
    "linalg": """own:svd_lowrank=svd_lowrank own:pca_lowrank=pca_lowrank
        own:lstsq=linalg.lstsq|grad_oriented own:pinv=linalg.pinv|singular""",
}
#: Entries of the database that are not judged, and why.
LEFT_OUT = {
    "jiterator_unary jiterator_binary jiterator_4inputs_with_extra_args "
    "jiterator_binary_return_by_ref jiterator_2inputs_2outputs": "CUDA alone",
    "sparse.sampled_addmm sparse.mm|reduce to_sparse": "no sparse tensors yet",
    "polygamma|polygamma_n_2 polygamma|polygamma_n_3 polygamma|polygamma_n_4": "PyTorch takes "
    "minutes for a sample in bfloat16",
    "torch._scaled_mm_v2 torch._scaled_mm torch.ops.aten._flash_attention_forward "
    "torch.ops.aten._efficient_attention_forward": "CUDA alone",
}


def _seeded(rt: ModuleType, fn: Callable[..., Any]) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        rt.manual_seed(42)
        return fn(*args, **kwargs)

    return call


def _max_pool_backward(rt: ModuleType, x: Any, **kw: Any) -> Any:
    """The gradient of a pooling whose result had ones as its gradient."""
    options = {"stride": (), "padding": (0,), "dilation": (1,), "ceil_mode": False} | kw
    options["stride"] = options["kernel_size"] if options["stride"] is None else options["stride"]
    out, at = rt.nn.functional.max_pool2d_with_indices(
        x, options["kernel_size"], options["stride"], options["padding"], options["dilation"],
        options["ceil_mode"], return_indices=True,
    )  # fmt: skip
    return rt.ops.aten.max_pool2d_with_indices_backward.default(
        rt.ones_like(out), x, options["kernel_size"], options["stride"], options["padding"],
        options["dilation"], options["ceil_mode"], at,
    )  # fmt: skip


#: Where the database's function is a lambda: the same, of either runtime.
OWN: dict[str, Callable[[ModuleType], Callable[..., Any]]] = {
    "polygamma": lambda rt: lambda x, n, **kw: rt.polygamma(n, x, **kw),
    "special_polygamma": lambda rt: lambda x, n, **kw: rt.special.polygamma(n, x, **kw),
    "H": lambda rt: lambda x: x.H,
    "mH": lambda rt: lambda x: x.mH,
    "item": lambda rt: lambda x, *args, **kw: x.item(*args, **kw),
    "zero_": lambda rt: lambda x: rt.zero_(x.clone()),
    "resize_": lambda rt: lambda x, shape: x.clone().resize_(shape),
    "resize_as_": lambda rt: lambda x, other: rt.resize_as_(x.clone(), other),
    "embedding_bag": lambda rt: lambda w, at, **kw: rt.nn.functional.embedding_bag(at, w, **kw),
    "max_pool_backward": lambda rt: lambda x, **kw: _max_pool_backward(rt, x, **kw),
    "mha": lambda rt: _seeded(rt, rt.nn.functional.multi_head_attention_forward),
    "svd_lowrank": lambda rt: _seeded(rt, lambda a, b, **kw: rt.svd_lowrank(a @ b.mT, **kw)),
    "pca_lowrank": lambda rt: _seeded(rt, lambda a, b, **kw: rt.pca_lowrank(a @ b.mT, **kw)),
    "lstsq": lambda rt: lambda a, b, driver: rt.linalg.lstsq(a, b, driver=driver)[:2],
    "pinv": lambda rt: lambda a, b: rt.linalg.pinv(a @ b.mT),
}
