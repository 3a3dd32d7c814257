"""The layers. Each file is found at the path that it has in PyTorch."""

from __future__ import annotations

import sys

from . import _ntuple as utils
from .activation import *  # noqa: F403
from .adaptive import *  # noqa: F403
from .batchnorm import *  # noqa: F403
from .channelshuffle import *  # noqa: F403
from .container import *  # noqa: F403
from .conv import *  # noqa: F403
from .distance import *  # noqa: F403
from .dropout import *  # noqa: F403
from .flatten import *  # noqa: F403
from .fold import *  # noqa: F403
from .instancenorm import *  # noqa: F403
from .linear import *  # noqa: F403
from .linear_cross_entropy_options import LinearCrossEntropyOptions
from .loss import *  # noqa: F403
from .module import Module
from .normalization import *  # noqa: F403
from .padding import *  # noqa: F403
from .pixelshuffle import *  # noqa: F403
from .pooling import *  # noqa: F403
from .rnn import *  # noqa: F403
from .sparse import *  # noqa: F403
from .transformer import *  # noqa: F403
from .upsampling import *  # noqa: F403

# Programs import _pair and the like from `nn.modules.utils`.
sys.modules[__name__ + ".utils"] = utils

__all__ = [
    _name
    for _name, _value in list(globals().items())
    if isinstance(_value, type) and issubclass(_value, Module)
]
