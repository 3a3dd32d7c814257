"""Eigenvalues with their vectors, and singular values with theirs.

Gradients: Giles 2008, "Collected matrix derivative results"; Townsend 2016 for the SVD. Vectors are
determined up to a sign or phase alone; what depends on it has no gradient."""

from __future__ import annotations

from typing import Any, Literal

from flambeau._src.core import dtype as dt
from flambeau._src.core import state
from flambeau._src.core.interchange import array_of
from flambeau._src.core.tensor import Tensor
from flambeau._src.ops.call import aten, call_bits
from flambeau._src.ops.factor import check_matrix, columned, doubled, put, real_dtype
from flambeau._src.ops.kinds import Composite, Opaque, TensorSpec
from flambeau._src.util.errors import LinAlgError

# ---- eigenvalues ----


# Where no values are at hand that could be looked at.
_UNSEEN = state.GEOMETRY | state.TRACE | state.FAKE | state.FUNCTIONALIZE | state.FUNCTORCH
_EIGENVECTORS = (
    "The eigenvectors in the complex case are specified up to multiplication by e^{i phi}. The "
    "specified loss function depends on this quantity, so it is ill-defined."
)
_SINGULAR_VECTORS = (
    "The singular vectors in the complex case are specified up to multiplication by e^{i phi}. The "
    "specified loss function depends on this phase term, making it ill-defined."
)


def _check_phases(inner: Tensor, name: str, reason: str) -> None:
    """Refuse the gradient of what changes when vectors v turn by a phase: of vᴴ times v's gradient,
    the imaginary part is by how much."""
    if not inner.dtype.is_complex or call_bits((inner,), {}, 0) & _UNSEEN:
        return
    turned = aten.imag(aten.diagonal(inner.detach(), 0, -2, -1))
    if not bool(aten.all(aten.abs(turned) <= 1e-2)):
        raise RuntimeError(f"{name}: {reason}")


class LinalgEigh(Opaque):
    """Eigenvalues (ascending) and eigenvectors of Hermitian matrices, read from one triangle."""

    schema = (
        "_linalg_eigh(Tensor A, str UPLO='L', bool compute_v=True) "
        "-> (Tensor eigenvalues, Tensor eigenvectors)"
    )
    public = ""
    out = "eigenvalues"
    out_args = ("eigenvalues", "eigenvectors")
    undefined_grads = True

    def meta(a: Tensor, uplo: str, compute: bool) -> Any:
        check_matrix(a, "linalg.eigh", square=True, kernel="linalg_eigh_cpu", late=True)
        if uplo.upper() not in ("L", "U"):
            raise RuntimeError(f"Expected UPLO argument to be 'L' or 'U', but got {uplo}")
        vectors = columned(a.shape, a) if compute else TensorSpec((0,), a.dtype, a.device)
        return TensorSpec(a.shape[:-1], real_dtype(a), a.device), vectors

    def kernel(outs: Any, a: Tensor, uplo: str, compute: bool) -> None:
        import numpy as np  # lazy: NumPy is heavy

        x = array_of(a)
        if not x.size:
            return
        half: Literal["L", "U"] = "U" if uplo in ("U", "u") else "L"
        if not compute:
            put(outs[0], np.linalg.eigvalsh(x, half))
            return
        values, vectors = np.linalg.eigh(x, half)
        put(outs[0], values)
        put(outs[1], vectors)

    def vjp(b: Any, g: Any, a: Any, uplo: str, compute: bool) -> Any:
        gl, gv = g
        if gl is None and gv is None:
            return None
        if not compute:
            raise RuntimeError("linalg_eigh: the eigenvectors are needed for the gradient")
        values, v = b.outs
        if gv is None:
            return aten.matmul(v * gl.unsqueeze(-2), v.mH)
        inner = aten.matmul(v.mH, gv)
        _check_phases(inner, "linalg_eigh_backward", _EIGENVECTORS)
        gaps = values.unsqueeze(-2) - values.unsqueeze(-1)
        gaps = gaps + aten.diag_embed(aten.ones_like(values))
        inner = inner / gaps
        diagonal = aten.diag_embed(aten.diagonal(inner, 0, -2, -1))
        inner = inner - diagonal
        if gl is not None:
            inner = inner + aten.diag_embed(gl)
        whole = aten.matmul(v, aten.matmul(inner, v.mH))
        return (whole + whole.mH) * 0.5  # the matrix is taken for Hermitian


class Eigh(Composite):
    """Eigenvalues and eigenvectors of Hermitian matrices."""

    schema = "linalg_eigh(Tensor self, str UPLO='L') -> (Tensor eigenvalues, Tensor eigenvectors)"
    public = ""
    out = "eigvals"
    out_args = ("eigvals", "eigvecs")

    def decompose(a: Tensor, uplo: str) -> Any:
        return tuple(aten._linalg_eigh(a, uplo, True))


class Eigvalsh(Composite):
    """Eigenvalues of Hermitian matrices."""

    schema = "linalg_eigvalsh(Tensor self, str UPLO='L') -> Tensor"
    public = ""
    out = "out"

    def decompose(a: Tensor, uplo: str) -> Tensor:
        return aten._linalg_eigh(a, uplo, a.requires_grad)[0]


class Eig(Opaque):
    """Complex eigenvalues and eigenvectors of square matrices."""

    schema = "linalg_eig(Tensor self) -> (Tensor eigenvalues, Tensor eigenvectors)"
    public = ""
    out = "out"
    out_rows = True
    out_args = ("eigenvalues", "eigenvectors")
    out_fresh = (0, 1)
    undefined_grads = True

    def meta(a: Tensor) -> Any:
        if not (a.dtype.is_floating_point or a.dtype.is_complex):
            raise RuntimeError(f"Unknown Complex ScalarType for {dt.scalar_name(a.dtype)}")
        check_matrix(a, "linalg.eig", square=True, kernel="linalg_eig_out_cpu")
        kind = a.dtype if a.dtype.is_complex else dt.COMPLEX_OF[a.dtype]
        return TensorSpec(a.shape[:-1], kind, a.device), columned(a.shape, a, kind)

    def kernel(outs: Any, a: Tensor) -> None:
        import numpy as np  # lazy: NumPy is heavy

        x = array_of(a)
        if not np.isfinite(x).all():
            raise RuntimeError("torch.linalg.eig: input tensor should not contain infs or NaNs.")
        if x.size:
            values, vectors = np.linalg.eig(x)
            put(outs[0], values)
            put(outs[1], vectors)

    def vjp(b: Any, g: Any, a: Any) -> Any:
        gl, gv = g
        values, v = b.outs
        if gl is None and gv is None:
            return None
        if gv is None:
            inner = gl.unsqueeze(-1) * v.mH
        else:
            inner = aten.matmul(v.mH, gv)
            _check_phases(inner, "linalg_eig_backward", _EIGENVECTORS)
            norm = aten.matmul(v.mH, v * aten.diagonal(inner, 0, -2, -1).real.unsqueeze(-2))
            gaps = values.conj().unsqueeze(-2) - values.conj().unsqueeze(-1)
            gaps = gaps + aten.diag_embed(aten.ones_like(values))
            inner = (inner - norm) / gaps
            inner = inner - aten.diag_embed(aten.diagonal(inner, 0, -2, -1))
            if gl is not None:
                inner = inner + aten.diag_embed(gl)
            inner = aten.matmul(inner, v.mH)
        r = aten._linalg_solve_ex(v.mH, inner)[0]
        return r if a.dtype.is_complex else aten.real(r)


class Eigvals(Composite):
    """Complex eigenvalues of square matrices."""

    schema = "linalg_eigvals(Tensor self) -> Tensor"
    public = ""
    out = "out"
    out_fresh = (0,)

    def decompose(a: Tensor) -> Tensor:
        return aten.linalg_eig(a)[0]


# ---- singular values ----


class LinalgSvd(Opaque):
    """U diag(S) Vᴴ = A, singular values descending."""

    schema = (
        "_linalg_svd(Tensor A, bool full_matrices=False, bool compute_uv=True, *, str? "
        "driver=None) -> (Tensor U, Tensor S, Tensor Vh)"
    )
    public = ""
    out = "U"
    out_args = ("U", "S", "Vh")
    undefined_grads = True

    def meta(a: Tensor, full: bool, compute: bool, driver: Any) -> Any:
        check_matrix(a, "linalg.svd", kernel="linalg_svd_cpu")
        if driver is not None:
            raise RuntimeError(
                "torch.linalg.svd: keyword argument `driver=` is only supported on CUDA inputs "
                "with cuSOLVER backend."
            )
        *batch, m, n = a.shape
        k = min(m, n)
        u, v = (
            ([*batch, m, m if full else k], [*batch, n if full else k, n])
            if compute
            else ([0], [0])
        )
        none = TensorSpec((0,), a.dtype, a.device)
        return (
            columned(u, a) if compute else none,
            TensorSpec([*batch, k], real_dtype(a), a.device),
            columned(v, a) if compute else none,
        )

    def kernel(outs: Any, a: Tensor, full: bool, compute: bool, driver: Any) -> None:
        import numpy as np  # lazy: NumPy is heavy

        x = array_of(a)
        if not x.size:
            for o in (outs[0], outs[2]):
                if o.numel():
                    put(o, np.eye(o.shape[-1], dtype=x.dtype))
            return
        try:
            if not compute:
                put(outs[1], np.linalg.svd(x, full, False))
                return
            found = np.linalg.svd(x, full)
        except np.linalg.LinAlgError:
            raise LinAlgError(
                "linalg.svd: The algorithm failed to converge because the input matrix is "
                "ill-conditioned or has too many repeated singular values"
            ) from None
        for o, v in zip(outs, found, strict=True):
            put(o, v)

    def vjp(b: Any, g: Any, a: Any, full: bool, compute: bool, driver: Any) -> Any:
        gu, gs, gvh = g
        if gu is None and gs is None and gvh is None:
            return None
        if not compute:
            raise RuntimeError(
                "svd_backward: Setting `compute_uv` to false in torch.svd doesn't compute singular "
                "matrices, and hence we cannot compute backward. Please use "
                "torch.svd(compute_uv=True)."
            )
        u, s, vh = b.outs
        m, n = a.shape[-2:]
        k = min(m, n)
        if full:
            u, vh = aten.narrow(u, -1, 0, k), aten.narrow(vh, -2, 0, k)
            gu = None if gu is None else aten.narrow(gu, -1, 0, k)
            gvh = None if gvh is None else aten.narrow(gvh, -2, 0, k)
        if gu is None and gvh is None:
            return (
                aten.matmul(u * gs.unsqueeze(-2), vh)
                if m >= n
                else aten.matmul(u, gs.unsqueeze(-1) * vh)
            )
        return _svd_gradient(gu, gs, gvh, u, s, vh, m, n, k)


def _svd_gradient(
    gu: Any, gs: Any, gvh: Any, u: Any, s: Any, vh: Any, m: int, n: int, k: int
) -> Any:
    if u.dtype.is_complex:
        both = [aten.matmul(u.mH, gu)] if gu is not None else []
        both += [aten.matmul(vh, gvh.mH)] if gvh is not None else []
        _check_phases(sum(both[1:], both[0]), "svd_backward", _SINGULAR_VECTORS)
    # s_j² - s_i²: as a product, nothing cancels but what the values themselves have in common
    gaps = (s.unsqueeze(-2) - s.unsqueeze(-1)) * (s.unsqueeze(-2) + s.unsqueeze(-1))
    gaps = gaps + aten.diag_embed(aten.ones_like(s))
    inner = None
    if gu is not None:
        part = aten.matmul(u.mH, gu)
        inner = (part - part.mH) / gaps * s.unsqueeze(-2)
    if gvh is not None:
        part = aten.matmul(vh, gvh.mH)
        both = s.unsqueeze(-1) * ((part - part.mH) / gaps)
        inner = both if inner is None else inner + both
    if u.dtype.is_complex and gu is not None:
        skew = aten.diagonal(aten.matmul(u.mH, gu), 0, -2, -1)
        inner = inner + aten.diag_embed(1j * aten.imag(skew) / s)
    if gs is not None:
        inner = inner + aten.diag_embed(gs.to(u.dtype) if u.dtype.is_complex else gs)
    result = aten.matmul(aten.matmul(u, inner), vh)
    if m > k and gu is not None:
        gus = gu / s.unsqueeze(-2)
        result = result + aten.matmul(gus - aten.matmul(u, aten.matmul(u.mH, gus)), vh)
    if n > k and gvh is not None:
        sgv = gvh / s.unsqueeze(-1)
        result = result + aten.matmul(u, sgv - aten.matmul(aten.matmul(sgv, vh.mH), vh))
    return result


class Svd(Composite):
    """U, S, Vᴴ with U diag(S) Vᴴ = A."""

    schema = (
        "linalg_svd(Tensor A, bool full_matrices=True, *, str? driver=None) "
        "-> (Tensor U, Tensor S, Tensor Vh)"
    )
    public = ""
    out = "U"
    out_args = ("U", "S", "Vh")

    def decompose(a: Tensor, full: bool, driver: Any) -> Any:
        return tuple(aten._linalg_svd(a, full, True, driver=driver))


class Svdvals(Composite):
    """Singular values, descending."""

    schema = "linalg_svdvals(Tensor A, *, str? driver=None) -> Tensor"
    public = ""
    out = "out"

    def decompose(a: Tensor, driver: Any) -> Tensor:
        values = aten._linalg_svd(doubled(a), False, a.requires_grad, driver=driver)[1]
        return values.to(real_dtype(a))


class TorchSvd(Composite):
    """linalg.svd under its old name: V, not Vᴴ, and the reduced form by default."""

    schema = (
        "svd(Tensor self, bool some=True, bool compute_uv=True) -> (Tensor U, Tensor S, Tensor V)"
    )
    out = "U"
    out_args = ("U", "S", "V")

    def decompose(a: Tensor, some: bool, compute: bool) -> Any:
        check_matrix(a, "linalg.svd", kernel="linalg_svd_cpu")
        if compute:
            u, s, vh = aten._linalg_svd(a, not some, True)
            return u, s, vh.mH
        *batch, m, n = a.shape
        s = aten._linalg_svd(a, False, False)[1]
        return a.new_zeros([*batch, m, m]), s, a.new_zeros([*batch, n, n])
