"""Layers with arguments and inputs: what `recorded_layers.json` has PyTorch's results of.

A case is (class, arguments, keyword arguments, inputs). An input is a shape (values sin(i)), or
("int", shape, bound), ("bool", shape), ("prob", shape), ("sign", shape), None, a number; a nested
module in the arguments is ("module", class, arguments, keyword arguments).
"""

from __future__ import annotations

from typing import Any

Case = tuple[str, tuple[Any, ...], dict[str, Any], tuple[Any, ...]]

_ELEMENTWISE = (
    "ReLU", "ReLU6", "Sigmoid", "Hardsigmoid", "Tanh", "SiLU", "Mish", "Hardswish", "ELU", "CELU",
    "SELU", "GELU", "Hardshrink", "LeakyReLU", "LogSigmoid", "Softplus", "Softshrink", "Softsign",
    "Tanhshrink", "PReLU", "RReLU", "Hardtanh",
)  # fmt: skip
IMAGE = (2, 3, 6, 5)

CASES: list[Case] = [
    *[(name, (), {}, ((3, 4),)) for name in _ELEMENTWISE],
    ("GELU", ("tanh",), {}, ((3, 4),)),
    ("Threshold", (0.1, 2.0), {}, ((3, 4),)),
    ("GLU", (), {}, ((3, 4),)),
    ("Softmax", (1,), {}, ((3, 4),)),
    ("LogSoftmax", (1,), {}, ((3, 4),)),
    ("Softmin", (0,), {}, ((3, 4),)),
    ("Softmax2d", (), {}, (IMAGE,)),
    ("Identity", (), {}, ((3, 4),)),
    ("Linear", (4, 3), {}, ((5, 4),)),
    ("Linear", (4, 3), {"bias": False}, ((2, 3, 4),)),
    ("Bilinear", (4, 3, 2), {}, ((5, 4), (5, 3))),
    ("Embedding", (7, 3), {"padding_idx": 2}, (("int", (4, 2), 7),)),
    ("EmbeddingBag", (7, 3), {"mode": "sum"}, (("int", (4, 2), 7),)),
    ("LayerNorm", (4,), {}, ((3, 4),)),
    ("LayerNorm", ((3, 4),), {"bias": False}, ((2, 3, 4),)),
    ("RMSNorm", (4,), {}, ((3, 4),)),
    ("GroupNorm", (2, 4), {}, ((2, 4, 5),)),
    ("LocalResponseNorm", (2,), {}, (IMAGE,)),
    ("CrossMapLRN2d", (3,), {}, (IMAGE,)),
    ("BatchNorm1d", (4,), {}, ((6, 4),)),
    ("BatchNorm1d", (4,), {"momentum": None}, ((6, 4, 3),)),
    ("BatchNorm2d", (3,), {}, (IMAGE,)),
    ("BatchNorm2d", (3,), {"affine": False, "track_running_stats": False}, (IMAGE,)),
    ("BatchNorm3d", (2,), {}, ((2, 2, 3, 2, 2),)),
    ("InstanceNorm2d", (3,), {"affine": True}, (IMAGE,)),
    ("Dropout", (0.5,), {}, ((3, 4),)),
    ("Dropout1d", (0.5,), {}, ((3, 4, 2),)),
    ("Dropout2d", (0.5,), {}, (IMAGE,)),
    ("AlphaDropout", (0.5,), {}, ((3, 4),)),
    ("Flatten", (), {}, (IMAGE,)),
    ("Unflatten", (1, (2, 2)), {}, ((3, 4),)),
    ("Conv1d", (3, 4, 3), {"padding": "same"}, ((2, 3, 7),)),
    ("Conv2d", (3, 4, 3), {"stride": 2, "padding": 1}, (IMAGE,)),
    ("Conv2d", (4, 6, (3, 2)), {"groups": 2, "dilation": 2}, ((2, 4, 6, 5),)),
    ("Conv2d", (3, 4, 3), {"padding": 1, "padding_mode": "reflect"}, (IMAGE,)),
    ("Conv3d", (2, 3, 2), {}, ((1, 2, 3, 3, 3),)),
    ("ConvTranspose1d", (3, 2, 3), {"stride": 2}, ((2, 3, 4),)),
    ("ConvTranspose2d", (3, 2, 3), {"stride": 2, "output_padding": 1}, (IMAGE,)),
    ("MaxPool1d", (2,), {}, ((2, 3, 7),)),
    ("MaxPool2d", (3,), {"stride": 2, "padding": 1}, (IMAGE,)),
    ("AvgPool1d", (2,), {}, ((2, 3, 7),)),
    ("AvgPool2d", (3,), {"stride": 2, "padding": 1, "count_include_pad": False}, (IMAGE,)),
    ("LPPool2d", (2, 2), {}, (("prob", IMAGE),)),
    ("AdaptiveAvgPool2d", ((2, None),), {}, (IMAGE,)),
    ("AdaptiveMaxPool2d", (2,), {}, (IMAGE,)),
    ("PixelShuffle", (2,), {}, ((1, 4, 2, 2),)),
    ("ChannelShuffle", (2,), {}, ((1, 4, 2, 2),)),
    ("ZeroPad2d", (1,), {}, (IMAGE,)),
    ("ConstantPad1d", ((1, 2), 3.0), {}, ((2, 3, 4),)),
    ("ReflectionPad2d", (1,), {}, (IMAGE,)),
    ("ReplicationPad1d", (2,), {}, ((2, 3, 4),)),
    ("CircularPad2d", (1,), {}, (IMAGE,)),
    ("Upsample", (), {"scale_factor": 2}, (IMAGE,)),
    ("Upsample", (), {"size": (4, 7), "mode": "bilinear"}, (IMAGE,)),
    ("Unfold", (2,), {}, (IMAGE,)),
    ("Fold", ((4, 4), 2), {}, ((2, 12, 9),)),
    ("CosineSimilarity", (), {}, ((3, 4), (3, 4))),
    ("PairwiseDistance", (), {}, ((3, 4), (3, 4))),
    ("CrossEntropyLoss", (), {}, ((5, 4), ("int", (5,), 4))),
    ("CrossEntropyLoss", (), {"label_smoothing": 0.1}, ((2, 4, 3), ("int", (2, 3), 4))),
    ("NLLLoss", (), {"reduction": "sum"}, ((5, 4), ("int", (5,), 4))),
    ("MSELoss", (), {}, ((5, 4), ("prob", (5, 4)))),
    ("L1Loss", (), {"reduction": "none"}, ((5, 4), ("prob", (5, 4)))),
    ("SmoothL1Loss", (), {}, ((5, 4), ("prob", (5, 4)))),
    ("HuberLoss", (), {"delta": 0.5}, ((5, 4), ("prob", (5, 4)))),
    ("BCELoss", (), {}, (("prob", (5, 4)), ("prob", (5, 4)))),
    ("BCEWithLogitsLoss", (), {}, ((5, 4), ("prob", (5, 4)))),
    ("KLDivLoss", (), {"reduction": "batchmean"}, ((5, 4), ("prob", (5, 4)))),
    ("GaussianNLLLoss", (), {}, ((5, 4), (5, 4), ("prob", (5, 4)))),
    ("PoissonNLLLoss", (), {}, ((5, 4), ("prob", (5, 4)))),
    ("HingeEmbeddingLoss", (), {}, ((5, 4), ("sign", (5, 4)))),
    ("MultiLabelSoftMarginLoss", (), {}, ((5, 4), ("prob", (5, 4)))),
    ("TripletMarginLoss", (), {}, ((5, 4), ("prob", (5, 4)), ("sign", (5, 4)))),
    ("MultiheadAttention", (4, 2), {}, ((3, 2, 4), (5, 2, 4), (5, 2, 4))),
    ("MultiheadAttention", (4, 2), {"kdim": 3, "vdim": 2}, ((3, 2, 4), (5, 2, 3), (5, 2, 2))),
    ("TransformerEncoderLayer", (4, 2, 8), {"dropout": 0.0}, ((3, 2, 4),)),
    ("TransformerEncoderLayer", (4, 2, 8), {"norm_first": True}, ((3, 2, 4),)),
    ("TransformerDecoderLayer", (4, 2, 8), {"batch_first": True}, ((2, 3, 4), (2, 5, 4))),
    (
        "TransformerEncoder",
        (("module", "TransformerEncoderLayer", (4, 2, 8), {}), 2),
        {"enable_nested_tensor": False},
        ((3, 2, 4),),
    ),
    ("RNN", (3, 4), {"nonlinearity": "relu"}, ((5, 2, 3),)),
    ("GRU", (3, 4, 2), {"bidirectional": True}, ((5, 2, 3),)),
    ("LSTM", (3, 4, 2), {"batch_first": True}, ((2, 5, 3),)),
    ("LSTM", (3, 4), {"proj_size": 2, "bias": False}, ((5, 3),)),
    ("LSTMCell", (3, 4), {}, ((2, 3),)),
    ("GRUCell", (3, 4), {}, ((2, 3), (2, 4))),
    ("Sequential", (("module", "Linear", (4, 3), {}), ("module", "ReLU", (), {})), {}, ((2, 4),)),
]  # fmt: skip


def build(torch: Any, case: Case) -> Any:
    """The module of a case."""

    def argument(value: Any) -> Any:
        if isinstance(value, tuple) and value and value[0] == "module":
            _, name, args, kwargs = value
            return getattr(torch.nn, name)(*args, **kwargs)
        return value

    name, args, kwargs, _ = case
    return getattr(torch.nn, name)(*map(argument, args), **kwargs)


def make_input(torch: Any, spec: Any, place: int) -> Any:
    """The input that a specification stands for; floating ones require gradients."""
    kind = "float"
    bound = 0
    if isinstance(spec[0], str):
        kind, spec, *rest = spec
        bound = rest[0] if rest else 0
    count = 1
    for n in spec:
        count *= n
    steps = torch.arange(count, dtype=torch.float64) + 0.7 * place
    if kind == "int":
        return (steps.long() * 5 % bound).reshape(spec)
    waves = torch.sin(steps * 1.3).float().reshape(spec)
    if kind == "prob":
        return (waves + 1.1) / 2.3
    if kind == "sign":
        return torch.sign(waves)
    return waves.requires_grad_()


def tensors_of(torch: Any, value: Any) -> list[Any]:
    """The tensors in nested tuples, in order."""
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, (tuple, list)):
        return [t for part in value for t in tensors_of(torch, part)]
    return []


def digest(torch: Any, t: Any) -> list[Any]:
    """Shape, sum, weighted sum and the first values of a tensor."""
    if t is None:
        return []
    flat = t.detach().double().reshape(-1)
    weights = torch.cos(torch.arange(flat.numel(), dtype=torch.float64))
    numbers = [flat.sum().item(), (flat * weights).sum().item(), *flat[:3].tolist()]
    return [list(t.shape), [round(x, 7) for x in numbers]]


def run(torch: Any, case: Case) -> dict[str, Any]:
    """Everything that is recorded of a case."""
    torch.manual_seed(3)
    module = build(torch, case)
    inputs = [make_input(torch, spec, i) for i, spec in enumerate(case[3])]
    torch.manual_seed(4)
    outputs = tensors_of(torch, module(*inputs))
    state = [[name, digest(torch, t)] for name, t in module.state_dict().items()]
    result = {"repr": repr(module), "state": state}
    result["outputs"] = [digest(torch, t) for t in outputs]
    floating = [t for t in outputs if t.requires_grad]
    if floating:
        total = sum(
            (t * torch.cos(torch.arange(t.numel()).reshape(t.shape))).sum() for t in floating
        )
        total.backward()
    leaves = [*module.parameters(), *(t for t in inputs if t.requires_grad)]
    result["grads"] = [digest(torch, t.grad) for t in leaves]
    return result
