"""Row kernels of one loop give the bits of those with both, for the operands that ask for them."""

from __future__ import annotations

from typing import Any

import pytest

import flambeau as torch
from flambeau._src import _native
from flambeau._src.loops.compile import kernel_text, loader
from flambeau._src.loops.request import KernelRequest
from flambeau._src.ops.kinds import places, row_loops


def softmax(k: Any, x: Any) -> Any:
    e = k.exp(x - k.max(x))
    return e / k.sum(e)


def spread(k: Any, x: Any) -> Any:
    return k.sum((x - k.sum(x) / k.count()) ** 2)


def several(k: Any, x: Any) -> Any:
    return k.sum(x * 2) + k.max(x) - k.dot(x, x + 1) * k.prod(x / 4 + 1)


def address(expr: Any, kind: str) -> int:
    request = KernelRequest(f"one_loop_{expr.__name__}", expr, kind, ("float32",), ("float32",))
    found = loader()
    return found.load(kernel_text([request], found.target), [request.symbol])[request.symbol]


# sizes, the dimension of the rows' elements, which dimensions are exchanged in memory, the kind
CASES = [
    ((40, 200), 1, None, "row_along"),
    ((40, 65), 1, None, "row_along"),
    ((40, 64), 1, None, "row"),
    ((3, 90, 7), 1, (1, 2), "row_along"),
    ((300, 50), 0, None, "row_across"),
    ((3, 300, 1000), 1, None, "row_across"),
    ((300, 1024), 0, None, "row_across"),  # many enough for several threads
    ((3, 300, 192), 1, None, "row_across"),
    ((9, 3), 0, None, "row_across"),
    ((8, 30), 0, None, "row"),
    ((30, 200), 1, (0, 1), "row_across"),
    ((300, 1), 0, None, "row_along"),
    ((4, 30, 20), 0, (1, 2), "row"),
]


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("expr", [softmax, spread])
def test_the_same_bits(expr: Any, case: Any) -> None:
    size, dim, exchanged, kind = case
    full = expr is softmax
    torch.manual_seed(1)
    x = torch.randn(size)
    if exchanged is not None:
        x = x.transpose(*exchanged).contiguous().transpose(*exchanged)
    of_rows = [1 if i == dim else n for i, n in enumerate(size)]
    found = row_loops(places([x if full else torch.empty(of_rows)]), places([x]), dim)
    left_over = full and kind == "row_across" and size[exchanged[0] if exchanged else -1] % 64
    assert found == ("row" if left_over else kind)

    def run(kind: str) -> Any:
        out = torch.empty_like(x) if full else torch.empty(of_rows)
        _native.run_rows(address(expr, kind), (out,), (x,), dim, None)
        return out

    assert torch.equal(run(found), run("row"))


def test_along_rows_reads_every_layout() -> None:
    """A compiled program may meet other strides than it was made for."""
    x = torch.randn(200, 90)
    for turned in (x, x.t().contiguous().t(), x[::2]):
        out = torch.empty(turned.shape)
        _native.run_rows(address(softmax, "row_along"), (out,), (turned,), 0, None)
        torch.testing.assert_close(out, torch.softmax(turned, 0))


def test_no_row_depends_on_the_number_of_threads() -> None:
    """What is left over of vectors of rows is done otherwise: a thread's part has none."""
    torch.manual_seed(2)
    x = torch.randn(700, 330)
    before = torch.get_num_threads()
    try:
        found = []
        for n in (1, 2, 3):
            torch.set_num_threads(n)
            # one thread, and several, are both tried
            found += [torch.softmax(x, 0) for _ in range(40)]
    finally:
        torch.set_num_threads(before)
    assert all(torch.equal(y, found[0]) for y in found)


@pytest.mark.parametrize("n0", [16, 17, 131, 257, 1000])
def test_several_elements_at_a_time_are_taken_in_their_order(n0: int) -> None:
    """Rows whose last vector is not full are taken one element at a time."""
    torch.manual_seed(3)
    x = torch.randn(n0, 304)  # 19 vectors of 16
    wide, narrow = torch.empty(1, 304), torch.empty(1, 301)
    for out, given in ((wide, x), (narrow, x[:, :301].contiguous())):
        _native.run_rows(address(several, "row_across"), (out,), (given,), 0, None)
    assert torch.equal(wide[:, :301], narrow)
    part = x.double()
    wanted = (part * 2).sum(0) + part.amax(0)
    wanted -= (part * (part + 1)).sum(0) * (part / 4 + 1).prod(0)
    torch.testing.assert_close(wide[0].double(), wanted, rtol=1e-4, atol=1e-3)
