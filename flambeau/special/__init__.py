"""torch.special: special functions, as SciPy names them."""

from __future__ import annotations

from flambeau._src.ops.call import aten

__all__ = [
    "digamma", "entr", "erf", "erfc", "erfinv", "exp2", "expit", "expm1", "gammaln", "log1p",
    "log_softmax", "logit",
    "logsumexp", "ndtr", "psi", "round", "sinc", "softmax", "xlog1py", "xlogy",
]  # fmt: skip

digamma = aten.special_digamma
entr = aten.special_entr
erf = aten.special_erf
erfc = aten.special_erfc
erfinv = aten.special_erfinv
exp2 = aten.special_exp2
expit = aten.special_expit
expm1 = aten.special_expm1
gammaln = aten.special_gammaln
log1p = aten.special_log1p
log_softmax = aten.special_log_softmax
logit = aten.special_logit
logsumexp = aten.special_logsumexp
ndtr = aten.special_ndtr
psi = aten.special_psi
round = aten.special_round
sinc = aten.special_sinc
softmax = aten.special_softmax
xlog1py = aten.special_xlog1py
xlogy = aten.special_xlogy
