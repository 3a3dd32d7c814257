"""Pytrees: values, texts and errors as torch.utils._pytree gives them (recorded on 2.13)."""

import copy
import dataclasses
import pickle
from collections import OrderedDict, defaultdict, deque, namedtuple

import pytest

import flambeau.utils._pytree as pytree

Pair = namedtuple("Pair", "a b")


def nest():
    return {
        "x": 1,
        "y": OrderedDict(b=2, a=Pair(3, [4])),
        "z": defaultdict(int, {"q": 5}),
        "d": deque([6, 7], maxlen=3),
        "n": None,
        "s": slice(1, 2),
    }


SPEC_TEXT = """TreeSpec(dict, ['x', 'y', 'z', 'd', 'n', 's'], [*,
  TreeSpec(OrderedDict, ['b', 'a'], [*,
    TreeSpec(namedtuple, <class 'test_pytree.Pair'>, [*,
      TreeSpec(list, None, [*])])]),
  TreeSpec(defaultdict, [<class 'int'>, ['q']], [*]),
  TreeSpec(deque, 3, [*,
    *]),
  *,
  *])"""


def test_flatten_and_back():
    leaves, spec = pytree.tree_flatten(nest())
    assert leaves == [1, 2, 3, 4, 5, 6, 7, None, slice(1, 2)]
    assert repr(spec).replace(f"{Pair.__module__}.", "test_pytree.") == SPEC_TEXT
    back = pytree.tree_unflatten(leaves, spec)
    assert back == nest()
    assert [type(v) for v in back.values()] == [type(v) for v in nest().values()]
    assert back["d"].maxlen == 3 and back["z"].default_factory is int
    assert (spec.num_nodes, spec.num_leaves, spec.num_children) == (15, 9, 6)
    assert spec.type is dict and spec.context == list(nest())
    assert pytree.tree_leaves(nest()) == list(pytree.tree_iter(nest())) == leaves
    assert pytree.tree_structure(nest()) == spec
    assert hash(pytree.tree_structure(nest())) == hash(spec)


def test_is_leaf_and_subclasses():
    class MyList(list):
        pass

    assert pytree.tree_leaves([MyList([1]), (1, 2)]) == [[1], 1, 2]
    tuples = pytree.tree_leaves([(1, 2), 3], is_leaf=lambda x: isinstance(x, tuple))
    assert tuples == [(1, 2), 3]
    assert pytree.tree_is_leaf(None) and not pytree.tree_is_leaf([])
    leaves, spec = pytree.tree_flatten([(1, 2), 3], is_leaf=lambda x: isinstance(x, tuple))
    assert leaves == [(1, 2), 3] and repr(spec) == "TreeSpec(list, None, [*,\n  *])"


def test_leaf_spec():
    leaf = pytree.tree_structure(3)
    assert leaf is pytree.treespec_leaf() and leaf is pytree.LeafSpec()
    assert isinstance(leaf, pytree.LeafSpec) and not isinstance(
        pytree.tree_structure([]), pytree.LeafSpec
    )
    assert (leaf.num_nodes, leaf.num_leaves, leaf.num_children) == (1, 1, 0)
    assert leaf.type is None and leaf.context is None and repr(leaf) == "*"
    assert repr(pytree.tree_structure({"a": []})) == (
        "TreeSpec(dict, ['a'], [TreeSpec(list, None, [])])"
    )
    assert pytree.TreeSpec(list, None, [leaf]) == pytree.tree_structure([1])


def test_map():
    assert pytree.tree_map(lambda x: x, nest()) == nest()
    add = pytree.tree_map(lambda a, b: (a, b), {"a": [1]}, OrderedDict(a=[(2, 3)]))
    assert add == {"a": [(1, (2, 3))]}
    assert pytree.tree_map_only(int, lambda x: x + 1, {"a": [1, "b"]}) == {"a": [2, "b"]}
    assert pytree.tree_map_only((int, str), lambda x: x * 2, [1, "b"]) == [2, "bb"]
    assert pytree.tree_map_only(int | str, lambda x: x * 2, [1, "b", 2.0]) == [2, "bb", 2.0]
    assert pytree.tree_map_only(lambda x: x == 1, lambda x: x * 2, [1, 3]) == [2, 3]
    seen = []
    tree = [1, [2]]
    assert pytree.tree_map_(seen.append, tree) is tree and seen == [1, 2]
    assert pytree.tree_any(lambda x: x > 1, tree) and not pytree.tree_all(lambda x: x > 1, tree)
    assert pytree.tree_any_only(int, lambda x: x > 3, [1, 5, "a"])
    assert not pytree.tree_all_only(int, lambda x: x > 3, [1, 5, "a"])
    assert pytree.arg_tree_leaves(1, [2], a={"b": 3}) == [1, 2, 3]
    assert type(pytree.tree_map(lambda a, b: b, deque([1], 2), deque([1], 3))) is deque


@pytest.mark.parametrize(
    ("left", "right", "message"),
    [
        ([1, 2], [3, 4, 5], "Node arity mismatch; expected 2, but got 3."),
        ([1], (3,), "Node type mismatch; expected <class 'list'>, but got <class 'tuple'>."),
        ([1], None, "Node type mismatch; expected <class 'list'>, but got <class 'NoneType'>."),
        (
            {"a": 1},
            {"b": 1},
            "Node keys mismatch; missing key(s): {'a'}; extra key(s): {'b'}.",
        ),
    ],
)
def test_mismatch(left, right, message):
    with pytest.raises(ValueError) as caught:
        pytree.tree_map(lambda a, b: a, left, right)
    assert str(caught.value) == message


def test_other_errors():
    spec = pytree.tree_structure([1, 2])
    with pytest.raises(ValueError, match=r"`leaves` has length 1 but the spec refers to a pytree"):
        pytree.tree_unflatten([1], spec)
    with pytest.raises(TypeError, match="Expected `treespec` to be an instance of PyTreeSpec but"):
        pytree.tree_unflatten([3], 3)
    with pytest.raises(TypeError, match="Argument must be a type, a tuple of types, or a callable"):
        pytree.tree_map_only(3, lambda x: x, [1])
    with pytest.raises(ValueError, match=r"<class 'list'> is already registered as pytree node."):
        pytree.register_pytree_node(list, None, None)
    with pytest.raises(IndexError):
        spec.child(3)


def test_key_paths():
    pairs, spec = pytree.tree_flatten_with_path(nest())
    assert spec == pytree.tree_structure(nest())
    texts = [pytree.keystr(path) for path, _ in pairs]
    assert texts == [
        "['x']",
        "['y']['b']",
        "['y']['a'].a",
        "['y']['a'].b[0]",
        "['z']['q']",
        "['d'][0]",
        "['d'][1]",
        "['n']",
        "['s']",
    ]
    assert all(pytree.key_get(nest(), path) == leaf for path, leaf in pairs)
    assert repr(pairs[3][0]) == (
        "(MappingKey(key='y'), MappingKey(key='a'), GetAttrKey(name='b'), SequenceKey(idx=0))"
    )
    key = pytree.SequenceKey(1)
    assert key == pytree.SequenceKey(1) != pytree.MappingKey(1) and copy.copy(key) == key
    assert len({key, pytree.SequenceKey(1), pytree.MappingKey(1)}) == 2
    with pytest.raises(AttributeError):
        key.idx = 2
    mapped = pytree.tree_map_with_path(
        lambda k, a, b: (pytree.keystr(k), a, b), {"a": [1]}, {"a": [5]}
    )
    assert mapped == {"a": [("['a'][0]", 1, 5)]}


def test_registered_type():
    class Bag:
        def __init__(self, *items):
            self.items = list(items)

    def opened(bag):
        return bag.items, "context"

    pytree.register_pytree_node(Bag, opened, lambda c, _: Bag(*c))
    try:
        leaves, spec = pytree.tree_flatten([Bag(1, [2])])
        assert leaves == [1, 2] and "TreeSpec(Bag, context, [*," in repr(spec)
        assert spec.unflatten([5, 6])[0].items == [5, [6]]
        assert pytree.tree_map(lambda x: x + 1, Bag(1)).items == [2]
        with pytest.raises(ValueError, match="Did not find a flatten_with_keys_fn for type"):
            pytree.tree_flatten_with_path(Bag(1))
        with pytest.raises(NotImplementedError, match="No registered serialization name for"):
            pytree.treespec_dumps(spec)
        with pytest.raises(ValueError, match="already registered as pytree node"):
            pytree.register_pytree_node(Bag, opened, lambda c, _: Bag(*c))
        pytree._register_pytree_node(Bag, opened, lambda c, _: Bag(*c))
    finally:
        pytree._deregister_pytree_node(Bag)
    assert len(pytree.tree_leaves([Bag(1, 2)])) == 1


def test_dataclass():
    @dataclasses.dataclass
    class Point:
        x: int
        y: object = 3

    pytree.register_dataclass(Point, serialized_type_name="Point")
    try:
        pairs, spec = pytree.tree_flatten_with_path(Point(1, [2]))
        assert [(pytree.keystr(k), v) for k, v in pairs] == [(".x", 1), (".y[0]", 2)]
        assert spec.context == [["x", "y"], []]
        assert spec.unflatten([4, 5]) == Point(4, [5])
        assert pytree.tree_structure(Point(1, None)).context == [["x"], ["y"]]
        assert pytree.tree_map(lambda x: x, Point(1, None)) == Point(1, None)
        assert pytree.treespec_loads(pytree.treespec_dumps(spec)) == spec
    finally:
        pytree._deregister_pytree_node(Point)
    with pytest.raises(ValueError, match="field_names does not include all dataclass fields"):
        pytree.register_dataclass(Point, field_names=["x"])
    with pytest.raises(ValueError, match=r"as it is not a dataclass."):
        pytree.register_dataclass(int)


def test_constant():
    class Mode:
        def __init__(self, name):
            self.name = name

        def __eq__(self, other):
            return self.name == other.name

        def __hash__(self):
            return hash(self.name)

    pytree.register_constant(Mode)
    leaves, spec = pytree.tree_flatten([Mode("a"), 1])
    assert leaves == [1] and pytree.is_constant_class(Mode)
    assert spec == pytree.tree_structure([Mode("a"), 2]) != pytree.tree_structure([Mode("b"), 2])
    assert pytree._retrieve_constant(pytree.tree_structure(Mode("a"))).name == "a"
    with pytest.raises(TypeError, match="non-default `__eq__` implementation"):
        pytree.register_constant(type("Plain", (), {}))


def test_json():
    spec = pytree.tree_structure([1, (2, {"a": 3}), None])
    assert pytree.treespec_dumps(spec) == (
        '[1, {"type": "builtins.list", "context": "null", "children_spec": [{"type": null, '
        '"context": null, "children_spec": []}, {"type": "builtins.tuple", "context": "null", '
        '"children_spec": [{"type": null, "context": null, "children_spec": []}, {"type": '
        '"builtins.dict", "context": "[\\"a\\"]", "children_spec": [{"type": null, "context": '
        'null, "children_spec": []}]}]}, {"type": null, "context": null, "children_spec": []}]}]'
    )
    pytree._register_namedtuple(Pair, serialized_type_name="test.Pair")
    for tree in ([1, (2, {"a": 3}), OrderedDict(a=2)], nest(), deque([1], 3)):
        spec = pytree.tree_structure(tree)
        assert pytree.treespec_loads(pytree.treespec_dumps(spec)) == spec
    with pytest.raises(ValueError, match=r"Unknown protocol 7. Available protocols: \[1\]"):
        pytree.treespec_loads("[7, {}]")
    with pytest.raises(NotImplementedError, match="Deserializing foo in pytree is not registered"):
        pytree.treespec_loads('[1, {"type": "foo", "context": "null", "children_spec": []}]')


def test_pickle_and_copy():
    spec = pytree.tree_structure(nest())
    assert pickle.loads(pickle.dumps(spec)) == spec
    assert copy.deepcopy(spec) == spec
    assert pickle.loads(pickle.dumps(pytree.treespec_leaf())) is pytree.treespec_leaf()


def test_text_and_makers():
    assert pytree.treespec_pprint(pytree.tree_structure([1, Pair(2, {"a": 3})])) == (
        "[*, Pair(a=*, b={'a': *})]"
    )
    leaf = pytree.treespec_leaf()
    assert pytree._core.treespec_tuple([leaf]) == pytree.tree_structure((1,))
    spec = pytree._core.treespec_dict({"a": leaf}, b=pytree._core.treespec_tuple())
    assert spec == pytree.tree_structure({"a": 1, "b": ()})
    assert pytree.tree_structure([1, (2, 3)]).flatten_up_to([[0], (1, None)]) == [[0], 1, None]


def test_broadcast():
    spec = pytree.tree_structure([1, (2, 3)])
    assert pytree._broadcast_to_and_flatten(0, spec) == [0, 0, 0]
    assert pytree._broadcast_to_and_flatten([0, 1], spec) == [0, 1, 1]
    assert pytree._broadcast_to_and_flatten([0, (1,)], spec) is None
