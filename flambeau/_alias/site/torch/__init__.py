"""flambeau under the name torch: importing this puts flambeau in its place."""


def _become_flambeau() -> None:
    import importlib.util  # here, and not above: nothing of this file is to stay
    import sys
    from pathlib import Path

    name = "flambeau._alias.finder"
    finder = sys.modules.get(name)
    if finder is None:
        # The hook is loaded by its path: importing it by name would run flambeau before it.
        path = Path(__file__).resolve().parents[2] / "finder.py"
        if not path.is_file():
            spec = importlib.util.find_spec("flambeau")
            if spec is None or spec.origin is None:
                raise ImportError(
                    "this 'torch' is an alias of flambeau, which is not installed: "
                    "pip install flambeau, or remove the alias (pip uninstall torch)"
                )
            path = Path(spec.origin).parent / "_alias" / "finder.py"
        spec = importlib.util.spec_from_file_location(name, path)
        if spec is None or spec.loader is None:
            raise ImportError(f"cannot load {path}")
        finder = importlib.util.module_from_spec(spec)
        sys.modules[name] = finder
        spec.loader.exec_module(finder)
    finder.activate()


_become_flambeau()
