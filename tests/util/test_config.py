"""The configuration: what each variable means, and that it cannot change."""

import pytest

from flambeau._src.util.config import child_environment, config, live, parse_bool, read_config


def test_defaults():
    empty = read_config({"HOME": "/h"})
    assert empty.cache_dir == "/h/.cache/flambeau"
    assert empty.torch_home == "/h/.cache/torch"
    assert (empty.num_threads, empty.cc, empty.kernels, empty.cache) == (0, (), "auto", True)


def test_cache_dir_order():
    env = {"HOME": "/h", "XDG_CACHE_HOME": "/x"}
    assert read_config(env).cache_dir == "/x/flambeau"
    assert read_config({**env, "FLAMBEAU_CACHE_DIR": "/c"}).cache_dir == "/c"


@pytest.mark.parametrize(
    ("env", "threads"),
    [
        ({"OMP_NUM_THREADS": "4"}, 4),
        ({"OMP_NUM_THREADS": "4,2"}, 4),
        ({"OMP_NUM_THREADS": "many"}, 0),
        ({"OMP_NUM_THREADS": "4", "FLAMBEAU_NUM_THREADS": "3"}, 3),
    ],
)
def test_threads(env, threads):
    assert read_config({"HOME": "/h", **env}).num_threads == threads


def test_bad_values_name_the_variable():
    with pytest.raises(ValueError, match="FLAMBEAU_NUM_THREADS must be an integer, got 'x'"):
        read_config({"HOME": "/h", "FLAMBEAU_NUM_THREADS": "x"})
    with pytest.raises(ValueError, match="FLAMBEAU_KERNELS must be auto, pack or numpy"):
        read_config({"HOME": "/h", "FLAMBEAU_KERNELS": "fast"})


def test_flags_and_commands():
    env = {"HOME": "/h", "CC": "ccache gcc", "FLAMBEAU_CACHE": "off", "TORCH_COMPILE_DISABLE": "1"}
    read = read_config(env)
    assert read.cc == ("ccache", "gcc") and not read.cache and not read.compile
    assert [parse_bool(t) for t in ("1", "yes", "0", "False", "")] == [1, 1, 0, 0, 0]


def test_immutable():
    with pytest.raises(AttributeError):
        config.cache = False


def test_live_environment(monkeypatch):
    monkeypatch.setenv("RANK", "3")
    assert live("RANK") == "3" and live("NO_SUCH_VARIABLE", "d") == "d"
    child = child_environment(RANK=None, EXTRA="1")
    assert "RANK" not in child and child["EXTRA"] == "1"
