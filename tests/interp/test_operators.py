"""`torch.ops`: names, texts, signatures and errors of operators as users hold them."""

from __future__ import annotations

import copy
import pickle

import pytest

import flambeau as torch

add = torch.ops.aten.add


def test_names_and_texts() -> None:
    assert repr(add) == "<OpOverloadPacket(op='aten.add')>" and str(add) == "aten.add"
    op = add.Tensor
    assert (
        repr(op) == "<OpOverload(op='aten.add', overload='Tensor')>"
        and str(op) == "aten.add.Tensor"
    )
    assert (
        op.name() == "aten::add.Tensor" and op.__name__ == "add.Tensor" and op.namespace == "aten"
    )
    assert op.overloadpacket is add and add.overloads()[:3] == ["Tensor", "Scalar", "out"]
    assert repr(torch.ops.aten) == "<module 'torch.ops.aten' from 'torch.ops'>"
    assert type(op).__name__ == "OpOverload" and op is torch.ops.aten.add.Tensor
    assert copy.deepcopy(op) is op and pickle.loads(pickle.dumps(op)) is op


def test_signatures() -> None:
    schema = add.Tensor._schema
    assert str(schema) == "aten::add.Tensor(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor"
    assert schema.name == "aten::add" and schema.overload_name == "Tensor"
    alpha = schema.arguments[2]
    assert (alpha.name, alpha.kwarg_only, alpha.default_value, str(alpha.type)) == (
        "alpha",
        True,
        1,
        "number",
    )
    assert not schema.is_mutable and torch.ops.aten.add_.Tensor._schema.is_mutable
    info = torch.ops.aten.add_.Tensor._schema.arguments[0].alias_info
    assert info.is_write and info.before_set == {"a"}
    sums = torch.ops.aten.sum.dim_IntList._schema.arguments
    assert (
        str(sums[1].type) == "Optional[List[int]]"
        and str(sums[3].real_type) == "Optional[ScalarType]"
    )


def test_calls_and_errors() -> None:
    x = torch.ones(2)
    assert add.Tensor(x, 1).tolist() == [2, 2] and add(x, x, alpha=2).tolist() == [3, 3]
    assert type(torch.ops.aten.split.Tensor(x, 1)) is list
    assert type(torch.ops.aten.max.dim(x, 0)) is tuple
    with pytest.raises(
        AttributeError, match="'_OpNamespace' 'aten' object has no attribute 'no_such'"
    ):
        _ = torch.ops.aten.no_such
    with pytest.raises(
        AttributeError, match=r"The underlying op of 'aten\.add' has no overload name 'no_such'"
    ):
        _ = add.no_such
    with pytest.raises(RuntimeError, match=r"aten::add\(\) is missing value for argument 'other'"):
        add.Tensor(x)
    with pytest.raises(
        RuntimeError,
        match=r"Expected a value of type 'Tensor' for argument 'self' but instead found type 'str'",
    ):
        add.Tensor("a", 2)
    with pytest.raises(OSError, match="Could not load this library"):
        torch.ops.load_library("libcustom.so")


def test_overloads_take_lists_as_such() -> None:
    x = torch.arange(16.0).reshape(4, 4)
    view = torch.ops.aten.view.default
    for _ in range(3):  # by Python, then by C
        assert view(x, [16]).shape == view(x, torch.Size([16])).shape == (16,)
        with pytest.raises(
            RuntimeError,
            match=r"aten::view\(\) Expected a value of type 'List\[int\]' for argument 'size' but "
            r"instead found type 'int'\.\nPosition: 1\nValue: 16\nDeclaration: aten::view\("
            r"Tensor\(a\) self, SymInt\[\] size\) -> Tensor\(a\)\n"
            r" Python error details: TypeError: 'int' object is not iterable",
        ):
            view(x, 16)
        with pytest.raises(RuntimeError, match="Unable to cast Python instance of type"):
            torch.ops.aten.permute.default(x, 0)
        assert x.view(16).shape == (16,)
    assert torch.ops.aten.sum.dim_IntList(x, 0).shape == (4,)
    with pytest.raises(RuntimeError, match="Cast error details: Cannot cast a to number"):
        torch.ops.aten.clamp.default(x, "a")


def test_tags() -> None:
    assert torch.Tag.pointwise in add.Tensor.tags
    assert torch.Tag.dynamic_output_shape in torch.ops.aten.nonzero.default.tags
    assert torch.Tag.data_dependent_output in torch.ops.aten._local_scalar_dense.default.tags
