"""Battery cases that fail for now, by name, with the reason. Remove a line when its case passes."""

from __future__ import annotations

import pytest

KNOWN = {
    "test_second_gradients[pdist]": "pdist's backward has no second gradient yet",
    "test_bfloat16[linalg_inv_ex]": "LAPACK takes no bfloat16, in torch neither",
    "test_bfloat16[linalg_qr]": "LAPACK takes no bfloat16, in torch neither",
    "test_bfloat16[linalg_pinv.atol_rtol_tensor]": "LAPACK takes no bfloat16, in torch neither",
    "test_gradients[soft_margin_loss]": "differences beyond the tolerance; not looked into",
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.name in KNOWN:
            item.add_marker(pytest.mark.xfail(reason=KNOWN[item.name], strict=False))
