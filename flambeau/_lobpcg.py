"""torch.lobpcg: the locally optimal block preconditioned conjugate gradient method.

A. V. Knyazev, "Toward the optimal preconditioned eigensolver", SIAM J. Sci. Comput. 23 (2001), and,
for the basis kept orthonormal (method "ortho"), A. Stathopoulos and K. Wu, "A block
orthogonalization procedure with constant synchronization requirements", ibid. 23 (2002).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import flambeau as torch
from flambeau import Tensor

__all__ = ["lobpcg"]

_EPS = {torch.float32: 1.2e-07, torch.float64: 2.23e-16}


class LOBPCG:
    """One run for one pair of matrices: what a `tracker` is given after each iteration.

    X, E, R     the iterates [m, n], their Ritz values [n] and residuals [m, n]
    S           the basis of the last Rayleigh-Ritz step
    ivars, fvars, bvars, tvars   whole numbers (`istep`, `iterations_left`, `converged_count`),
                norms, flags (`force_stop`, for the tracker to set) and relative residuals (`rerr`)
    """

    def __init__(
        self, A: Tensor, B: Tensor | None, X: Tensor, iK: Tensor | None, iparams: dict[str, int],
        fparams: dict[str, float], bparams: dict[str, bool], method: str,
        tracker: Callable[[LOBPCG], None] | None,
    ) -> None:  # fmt: skip
        self.A, self.B, self.X, self.iK = A, B, X, iK
        self.iparams, self.fparams, self.bparams = iparams, fparams, bparams
        self.method, self.tracker = method, tracker
        n = iparams["n"]
        self.E = torch.zeros((n,), dtype=X.dtype, device=X.device)
        self.R, self.S = torch.zeros_like(X), X
        self.P = X[:, :0]
        self.ivars = {"istep": 0, "iterations_left": iparams["niter"], "converged_count": 0}
        self.fvars: dict[str, float] = {}
        self.bvars: dict[str, bool] = {}
        self.tvars: dict[str, Tensor] = {}

    def with_B(self, t: Tensor) -> Tensor:
        return t if self.B is None else self.B @ t

    def run(self) -> None:
        """Iterate until `k` pairs have converged, or the iterations are used up."""
        self.S = _independent(self, self.X)
        self.ritz(self.S)
        self.set_norms()
        self.update_residual()
        while not self.stop_iteration():
            self.ivars["istep"] += 1
            self.ivars["iterations_left"] -= 1
            self.update()
            self.update_residual()
            self.call_tracker()

    def call_tracker(self) -> None:
        if self.tracker is not None:
            self.tracker(self)

    def stop_iteration(self) -> bool:
        """Whether enough pairs have converged, no iteration is left, or the tracker said so."""
        done = self.ivars["converged_count"] >= self.iparams["k"]
        return self.bvars.get("force_stop", False) or self.ivars["iterations_left"] == 0 or done

    def set_norms(self) -> None:
        size = torch.linalg.norm(self.X)
        self.fvars["X_norm"] = size.item()
        self.fvars["A_norm"] = (torch.linalg.norm(self.A @ self.X) / size).item()
        self.fvars["B_norm"] = (torch.linalg.norm(self.with_B(self.X)) / size).item()

    def update_residual(self) -> None:
        """R = A X - B X diag(E), and how many of the first pairs it lets pass."""
        self.R = self.A @ self.X - self.with_B(self.X) * self.E
        scale = self.fvars["A_norm"] + self.E.abs() * self.fvars["B_norm"]
        lengths = torch.linalg.vector_norm(self.X, dim=0) * scale
        errors = torch.linalg.vector_norm(self.R, dim=0) / lengths.clamp(min=_tiny(self.X))
        self.tvars["rerr"] = errors
        count = 0
        for error in errors.tolist():
            if not error <= self.fparams["tol"]:
                break
            count += 1
        self.ivars["converged_count"] = count

    def ritz(self, S: Tensor) -> Tensor:
        """X and E of the basis S; the coefficients of X in it."""
        n = self.iparams["n"]
        gram = S.mT @ self.with_B(S)
        inverse = torch.linalg.inv(torch.linalg.cholesky(_symmetric(gram)))
        values, Z = torch.linalg.eigh(_symmetric(inverse @ (S.mT @ (self.A @ S)) @ inverse.mT))
        if self.bparams["largest"]:
            values, Z = values.flip(-1), Z.flip(-1)
        Z = inverse.mT @ Z[:, :n]
        self.X, self.E = S @ Z, values[:n]
        return Z

    def update(self) -> None:
        """One step: the best of the span of X, the last directions and the new residuals."""
        n, locked = self.iparams["n"], self.ivars["converged_count"]
        R = self.R[:, locked:]
        W = R if self.iK is None else self.iK @ R
        X, P = self.X, self.P
        if self.method == "ortho":
            P = _independent(self, P, X)
            W = _independent(self, W, torch.cat([X, P], 1))
            self.S = torch.cat([X, P, W], 1)
        else:
            self.S = _independent(self, torch.cat([X, P, W], 1), scale_only=True)
        if self.S.shape[1] == X.shape[1]:  # nothing new: the span is invariant
            self.bvars["force_stop"] = True
            return
        Z = self.ritz(self.S)
        self.P = self.S[:, n:] @ Z[n:, locked:]


def _tiny(t: Tensor) -> float:
    return float(torch.finfo(t.dtype).tiny)


def _symmetric(t: Tensor) -> Tensor:
    return (t + t.mT) / 2


def _independent(
    run: LOBPCG, V: Tensor, against: Tensor | None = None, scale_only: bool = False
) -> Tensor:
    """V with columns of length one in B's product, B-orthogonal to `against` and each other;
    columns that others give are dropped (`scale_only`: only those of length zero)."""
    rounds = 1 if scale_only else 3
    for _ in range(rounds):
        if against is not None and V.shape[1]:
            V = V - against @ (against.mT @ run.with_B(V))
        lengths = (V * run.with_B(V)).sum(0).clamp(min=0).sqrt()
        kept = lengths > _tiny(V) ** 0.5
        V = V[:, kept] / lengths[kept]
        if scale_only or not V.shape[1]:
            return V
        values, Z = torch.linalg.eigh(_symmetric(V.mT @ run.with_B(V)))
        kept = values > 4 * V.shape[0] * torch.finfo(V.dtype).eps * values[-1]
        V = V @ (Z[:, kept] / values[kept].sqrt())
    return V


class LOBPCGAutogradFunction(torch.autograd.Function):
    """The pairs, with the gradient of a symmetric matrix's eigenpairs.

    With U the eigenvectors and g the gradients, those of A are
    U (diag(g_E) + F * (Uᵀ g_U)) Uᵀ + Z Uᵀ with F_ij = 1 / (E_j - E_i) off the diagonal and, in the
    complement of U, (E_i - A) z_i = g_Ui: M. B. Giles, "An extended collection of matrix derivative
    results" (2008), of which the complement's sum is solved for.
    """

    @staticmethod
    def forward(ctx: Any, A: Tensor, B: Tensor | None, options: dict[str, Any]) -> Any:
        E, U = _run(A, B, **options)
        ctx.save_for_backward(A, B, E, U)
        return E, U

    @staticmethod
    def backward(ctx: Any, grad_E: Tensor, grad_U: Tensor) -> Any:
        A, B, E, U = ctx.saved_tensors
        if B is not None:
            raise ValueError("lobpcg.backward does not support backward with B != I yet.")
        k, m = E.shape[-1], A.shape[-1]
        gaps = E.unsqueeze(-2) - E.unsqueeze(-1)
        same = torch.eye(k, dtype=torch.bool, device=E.device)
        inner = torch.where(same, 0.0, (U.mT @ grad_U) / torch.where(same, 1.0, gaps))
        given = U @ (torch.diag_embed(grad_E) + inner) @ U.mT
        if k < m:
            one = torch.eye(m, dtype=A.dtype, device=A.device)
            outside = one - U @ U.mT
            shifted = E[..., None, None] * one - A.unsqueeze(-3)
            apart = outside.unsqueeze(-3)
            system = apart @ shifted @ apart + (U @ U.mT).unsqueeze(-3)
            right = (outside @ grad_U).mT.unsqueeze(-1)
            Z = torch.linalg.solve(system, right).squeeze(-1).mT
            given = given + Z @ U.mT
        return given, None, None


def _run(
    A: Tensor, B: Tensor | None, k: int, X: Tensor | None, n: int, iK: Tensor | None, niter: int,
    tol: float | None, largest: bool, method: str, tracker: Any,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Each matrix of the batch for itself."""
    m, batch = A.shape[-1], A.shape[:-2]
    kind = A.dtype if A.dtype.is_floating_point else torch.float32  # A @ X refuses the others
    tol = _EPS[kind] ** 0.5 if tol is None else tol
    if X is None:
        X = torch.randn((*batch, m, n), dtype=kind, device=A.device)
    elif X.shape != (*batch, m, n):
        raise AssertionError(f"X shape mismatch: got {X.shape}, expected {(*batch, m, n)}")
    found = []
    for i in itertools.product(*(range(s) for s in batch)):
        own = [None if t is None else t[i] if t.dim() > 2 else t for t in (B, iK)]
        work = LOBPCG(
            A[i], own[0], X[i], own[1], {"m": m, "n": n, "k": k, "niter": niter}, {"tol": tol},
            {"largest": largest}, method, tracker,
        )  # fmt: skip
        work.run()
        found.append((work.E[:k], work.X[:, :k]))
    E = torch.stack([e for e, _ in found]).reshape(*batch, k)
    return E, torch.stack([x for _, x in found]).reshape(*batch, m, k)


def lobpcg(
    A: Tensor, k: int | None = None, B: Tensor | None = None, X: Tensor | None = None,
    n: int | None = None, iK: Tensor | None = None, niter: int | None = None,
    tol: float | None = None, largest: bool | None = None, method: str | None = None,
    tracker: None = None, ortho_iparams: dict[str, int] | None = None,
    ortho_fparams: dict[str, float] | None = None,
    ortho_bparams: dict[str, bool] | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """The k largest (or smallest) eigenvalues of A x = λ B x, and their eigenvectors.

    Args:
        A: symmetric [*, m, m], float32 or float64. B: symmetric positive definite, or None for I.
        k: how many pairs; by default the columns of X, or 1.
        X: where to begin, [*, m, n]; by default n (≥ k) columns of normal random numbers.
        iK: the preconditioner, [m, m].
        niter: the most iterations, 1,000 by default; -1 for any number.
        tol: relative residual at which a pair has converged; by default the square root of the
            dtype's precision.
        largest: False for the smallest ones. method: "ortho" (the default) or "basic".
        tracker: called with the run after each iteration.
        ortho_iparams, ortho_fparams, ortho_bparams: taken, and not needed by this method's
            orthogonalisation, which stops by itself.

    Returns eigenvalues [*, k] and eigenvectors [*, m, k]. Gradients are those of (A + Aᵀ) / 2.

    Raises ValueError for m < 3 n.
    """
    gradients = torch.is_grad_enabled() and (A.requires_grad or (B is not None and B.requires_grad))
    if A.shape[-2] != A.shape[-1]:
        raise AssertionError(f"A must be square, got shape {A.shape}")
    k = (1 if X is None else X.shape[-1]) if k is None else k
    n = (k if n is None else n) if X is None else X.shape[-1]
    k = min(k, n)
    if A.shape[-1] < 3 * n:
        raise ValueError(
            "LOBPCG algorithm is not applicable when the number of A rows "
            f"(={A.shape[-1]}) is smaller than 3 x the number of requested eigenpairs (={n})"
        )
    options = {
        "k": k, "X": X, "n": n, "iK": iK, "niter": 1000 if niter is None else niter, "tol": tol,
        "largest": True if largest is None else largest,
        "method": "basic" if method == "basic" else "ortho", "tracker": tracker,
    }  # fmt: skip
    if not gradients:
        return _run(A, B, **options)
    B = B if B is None or not B.requires_grad else _symmetric(B)
    return LOBPCGAutogradFunction.apply(_symmetric(A), B, options)
