"""Tests of CPython that fail when they are captured, each with the reason why they must.

They count as failures in every figure that `tests.capture.soundness` prints.
"""

_FRAME = "The frame is the replacement's: what goes on after a break has another."
_TRACED = "A function that is inlined has no frame to trace."
_LINES = "The traceback of what was caught inside has no lines of its own."
_IDENTITY = "Equal strings and floats that leave a graph may be one object."

DIFFERENT: dict[str, str] = {
    "test_raise.TestTracebackType.test_attrs": _FRAME,
    **{
        f"test_patma.TestTracing.test_{name}": _TRACED
        for name in (
            "default_capture", "default_wildcard", "no_default", "only_default_capture",
            "only_default_wildcard", "unreachable_code",
        )
    },
    **{
        f"test_exceptions.PEP626Tests.test_{name}": _LINES
        for name in (
            "lineno_after_other_except", "lineno_after_raise_in_except",
            "lineno_after_raise_in_with_exit", "lineno_after_with", "lineno_in_finally_except",
            "lineno_in_named_except", "missing_lineno_shows_as_none",
        )
    },
    **{
        f"test_operator.{which}OperatorTestCase.test_{name}": _IDENTITY
        for which in ("C", "Py") for name in ("is", "is_not")
    },
}  # fmt: skip
