"""The random streams of the CPU, and the default one of the process.

The stream itself is C (`csrc/random.c`): one MT19937 a generator (Matsumoto and Nishimura, 1998),
drawn from word for word as torch's CPU generator is, so that a seed gives torch's numbers. Its
fills take raw memory: `generator.normal(address, n, dtype.code, mean, std)` and so on. The elements
must lie contiguously; the operators fill strided tensors in the order of memory, by way of a fresh
block.

A forked child starts from a copy of its parent's streams.
"""

from __future__ import annotations

import os
import warnings
from typing import Any, NoReturn

from flambeau._src import _native
from flambeau._src.core.dtype import c_name, dtype, is_integral, scalar_name, uint8
from flambeau._src.core.slots import SLOTS
from flambeau._src.core.tensor import Tensor, cpu, device

STATE_BYTES = 5056


class Generator(_native.Generator):
    """A source of random numbers: `Generator(device="cpu")`.

    A CPU generator starts from the seed 67280421310721. `seed` draws a fresh seed from the
    operating system. Generators of other devices are made by what fills the slot
    `generator.<device type>`.
    """

    __slots__ = ("__weakref__",)

    def __new__(cls, device: Any = None) -> Generator:
        kind = "cpu" if device is None else _device(device).type
        if kind == "cpu":
            made: Generator = super().__new__(cls)
            return made
        if kind == "meta":
            raise RuntimeError("META device type not an accelerator.")
        maker = SLOTS.get(f"generator.{kind}")
        if maker is None:
            raise RuntimeError(f"Cannot get {kind.upper()} generator without ATen_{kind} library.")
        foreign: Generator = maker(_device(device))
        return foreign

    @property
    def device(self) -> device:
        """The device whose tensors it fills."""
        return cpu

    def seed(self) -> int:
        """Take a seed from the operating system: 64 bits. Returns it."""
        seed = int.from_bytes(os.urandom(8), "little")
        self.manual_seed(seed)
        return seed

    def get_state(self) -> Tensor:
        """The whole state: a CPU tensor of 5,056 bytes, in torch's layout."""
        state = _native.empty((STATE_BYTES,), uint8, cpu)
        self.state_to(state.data_ptr())
        return state

    def set_state(self, new_state: Tensor) -> Generator:
        """Go on from a state that `get_state` gave (torch's or ours). Returns the generator."""
        if not isinstance(new_state, Tensor):
            kind = type(new_state).__name__
            raise TypeError(f"expected a torch.ByteTensor, but got {kind}")
        if new_state.dtype is not uint8 or new_state.device.type != "cpu":
            raise TypeError("RNG state must be a torch.ByteTensor")
        if not new_state.is_contiguous():
            raise RuntimeError("RNG state must be contiguous")
        self.state_from(new_state.data_ptr(), new_state.numel())
        return self

    def clone_state(self) -> Generator:
        """A new generator that goes on from here by itself."""
        other = Generator()
        other.set_state_bytes(self.state_bytes())
        return other

    def graphsafe_get_state(self) -> Generator:
        """CUDA only: the state that a graph's capture shares."""
        raise NotImplementedError("graphsafe_get_state is not supported in this Generator")

    def graphsafe_set_state(self, state: Generator) -> Generator:
        """CUDA only: go on from a state that a graph's capture shares."""
        raise NotImplementedError("graphsafe_set_state is not supported in this Generator")

    def get_offset(self) -> NoReturn:
        """CUDA only: how far the counter has gone."""
        raise RuntimeError("CPU Generator does not use offset")

    def set_offset(self, offset: int) -> NoReturn:
        """CUDA only: set how far the counter has gone."""
        raise RuntimeError("CPU Generator does not use offset")

    def __copy__(self) -> Generator:
        return self.clone_state()

    def __deepcopy__(self, memo: dict[int, Any]) -> Generator:
        return self.clone_state()

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), ("cpu",), (self.initial_seed(), None, self.state_bytes())

    def __setstate__(self, state: tuple[int, int | None, bytes | Tensor]) -> None:
        if isinstance(state[2], Tensor):  # as torch pickles it
            self.set_state(state[2])
        else:
            self.set_state_bytes(state[2])


def _device(value: Any) -> device:
    return value if isinstance(value, device) else device(value)


#: The stream of every random operator that is given none.
default_generator = Generator()
default_generator.seed()


def manual_seed(seed: Any) -> Generator:
    """Seed the default generators of all devices with an integer in [-2**63, 2**64)."""
    step = _step("_manual_seed")
    if step is None:
        seed_all(int(seed))
    else:
        step(seed)
    return default_generator


def _step(name: str) -> Any:
    """The operator that stands for a call while a program is being traced, or None."""
    traced = SLOTS.get("generator.traced")
    return None if traced is None else traced(name)


def seed_all(seed: int) -> None:
    """Seed the default generators of all devices at once, whatever is being traced."""
    accelerators = SLOTS.get("manual_seed.accelerators")
    if accelerators is not None:
        accelerators(seed)
    default_generator.manual_seed(seed)


def seed() -> int:
    """Seed the default generators of all devices from the operating system; returns the seed."""
    value = default_generator.seed()
    accelerators = SLOTS.get("manual_seed.accelerators")
    if accelerators is not None:
        accelerators(value)
    return value


def initial_seed() -> int:
    """The seed of the default generator."""
    return default_generator.initial_seed()


def get_rng_state() -> Tensor:
    """The state of the default generator: a tensor of 5,056 bytes."""
    step = _step("_rng_state")
    found: Tensor = default_generator.get_state() if step is None else step()
    return found


def set_rng_state(new_state: Tensor) -> None:
    """Go on with the default generator from a state that `get_rng_state` gave."""
    step = _step("_set_rng_state") if isinstance(new_state, Tensor) else None
    if step is None:
        default_generator.set_state(new_state)
    else:
        step(new_state)


# ---- the ranges of random_ and randint ----

INT64_MIN = -(2**63)
#: Mantissa bits of the floats: beyond 2**digits not every integer is one of them.
DIGITS = {"float16": 11, "bfloat16": 8, "float32": 24, "float64": 53}
_FLOAT_MAX = {"float16": 65504}


def integer_range(d: dtype, low: int, high: int | None) -> tuple[int, int]:
    """Check the bounds of `random_(low, high)` for dtype d.

    Returns (base, range) for `Generator.random_range`; high is excluded, None stands for the
    largest value that d takes. The bounds of a float move inwards to integers that it can hold.
    Errors and warnings are torch's.
    """
    if high is not None:
        return _bounded(d, low, high)
    if low == INT64_MIN:
        return _everything(d)
    if d.is_complex:
        raise RuntimeError(
            "random_from_to_impl handles only integral, floating-point and boolean types"
        )
    if d.is_floating_point and d.name not in DIGITS:
        raise NotImplementedError(
            f"\"random_from_to_range_calc\" not implemented for '{scalar_name(d)}'"
        )
    if d.is_floating_point:
        low = _moved_low(low, d)
        last = 1 << DIGITS[d.name]
        if low >= last:  # the message of torch says "or equal"; its check does not
            raise RuntimeError(
                "random_ expects 'from' casted to dtype to be less than or equal to 'to_inc' "
                f"casted to dtype, but got from={low} > to_inc={last}"
            )
    else:
        last = _limits(d)[1]
        last -= (last > 2**63) << 64  # torch keeps it in a signed 64-bit integer
    _check_bounds(d, low, last)
    return low, last - low + 1


def _bounded(d: dtype, low: int, high: int) -> tuple[int, int]:
    if low >= high:
        raise RuntimeError(
            f"random_ expects 'from' to be less than 'to', but got from={low} >= to={high}"
        )
    if d.is_floating_point:
        if d.name not in DIGITS:
            raise NotImplementedError(
                f"\"random_update_from_to\" not implemented for '{scalar_name(d)}'"
            )
        low, high = _moved_low(low, d), _moved_high(high, d)
        if low >= high:
            raise RuntimeError(
                "random_ expects 'from' casted to dtype to be less than 'to' casted to dtype, "
                f"but got from={low} >= to={high}"
            )
    if d.is_complex:
        raise RuntimeError(
            "check_random_bounds handles only integral, floating-point and boolean types"
        )
    _check_bounds(d, low, high - 1)
    return low, high - low


def _everything(d: dtype) -> tuple[int, int]:
    if d.name in ("int64", "float64", "float32", "bfloat16"):
        return 0, 0
    if d.name in ("uint8", "int8", "int16", "int32"):
        raise RuntimeError(
            "random_full_64_bits_range_kernel_cpu handles only int64, double, float and bfloat16"
        )
    raise NotImplementedError(
        f"\"random_full_64_bits_range_kernel_cpu\" not implemented for '{scalar_name(d)}'"
    )


def _limits(d: dtype) -> tuple[int, int]:
    if d.name == "bool":
        return 0, 1
    if is_integral(d):
        bits, signed = 8 * d.itemsize, d.name[0] != "u"
        return (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if signed else (0, (1 << bits) - 1)
    most = _FLOAT_MAX.get(d.name, 1 << 64)  # a float32 already holds every 64-bit number's size
    return -most, most


def _check_bounds(d: dtype, low: int, last: int) -> None:
    name = c_name(d)
    least, most = _limits(d)
    for value, what in ((low, "from"), (last, "to - 1")):
        if not least <= value <= most:
            raise RuntimeError(f"{what} is out of bounds for {name}")
    if d.is_floating_point:
        digits = DIGITS[d.name]
        for value, what in ((low, "from"), (last, "to - 1")):
            if abs(value) > 1 << digits:
                warnings.warn(
                    f"{what} is out of bounds [-(2^{digits}), 2^{digits}]. Due to precision "
                    f"limitations {name} can support discrete uniform distribution only within "
                    "this range. This warning will become an error in version 1.7 release, please "
                    "fix the code in advance",
                    stacklevel=4,
                )


def _rounded(value: int, d: dtype) -> int:
    """value as the float d and back, as C casts it: what does not fit gives the least int64."""
    digits = (24, DIGITS[d.name]) if d.itemsize == 2 else (DIGITS[d.name],)
    size = abs(value)
    for n in digits:
        shift = max(size.bit_length() - n, 0)
        size = ((size >> shift) + _round_up(size, shift)) << shift
    if size >= 2**63 or size > _limits(d)[1]:
        return INT64_MIN
    return size if value >= 0 else -size


def _round_up(size: int, shift: int) -> int:
    rest, half = size & ((1 << shift) - 1), (1 << shift) >> 1
    return int(shift > 0 and (rest > half or (rest == half and size >> shift & 1 == 1)))


def _moved_low(low: int, d: dtype) -> int:
    after = _rounded(low + 1, d)
    if after >= low:
        return low
    step = abs(low + 1).bit_length() - DIGITS[d.name]
    return after + (1 << max(step, 0))


def _moved_high(high: int, d: dtype) -> int:
    before = _rounded(high - 1, d)
    if before < high:
        return high
    step = abs(high - 1).bit_length() - DIGITS[d.name]
    return before - (1 << max(step, 0))
