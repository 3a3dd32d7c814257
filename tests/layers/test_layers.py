"""The rules of the tree hold for the project as it stands."""

from pathlib import Path

import pytest

from tests.layers import checker

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def modules():
    return checker.read_tree(ROOT)


def none(complaints):
    assert not complaints, "\n" + "\n".join(complaints)


def test_ranks(modules):
    none(checker.check_ranks(modules))


def test_no_cycles(modules):
    none(checker.check_cycles(modules))


def test_local_imports_give_a_reason(modules):
    none(checker.check_local_imports(modules))


def test_no_global_statement(modules):
    none(checker.check_globals(modules))


def test_environment_is_read_in_one_place(modules):
    none(checker.check_environment(modules))


def test_no_torch(modules):
    none(checker.check_torch(modules, ROOT))


def test_names(modules):
    none(checker.check_names(modules))


def test_lengths(modules):
    none(checker.check_lengths(modules, ROOT))


def test_readmes():
    none(checker.check_readmes(ROOT))


def test_no_machine_paths():
    none(checker.check_machine_paths(ROOT))
