"""Packages import one way, down this list; imports inside functions count too.

Two files call what is above them: the functions of `api`, whose signatures are the options, and
the methods of a `Run` that show it. Of these, only what is imported with the file counts.
"""

import ast
from importlib import import_module
from pathlib import Path

import maskov

ROOT = Path(maskov.__file__).parent
# From the lowest to the highest; those of one line do not import each other.
LAYERS = [
    ["types", "errors", "version"],
    ["shipped"],
    ["config", "parts", "triton_draws"],
    ["random"],
    ["encoders"],
    ["models"],
    ["constraints", "fasta"],
    ["moves"],
    ["energies"],
    ["kernels"],
    ["diagnostics", "execution"],
    ["exact", "texts"],
    ["blanks", "starts"],
    ["testing", "tuning"],
    ["runs"],
    ["workers"],
    ["evaluation", "replay"],
    ["options", "ratings", "ui"],
    ["arguments"],
    ["api"],
    ["plan"],
    ["filling", "likelihood", "scoring"],
    ["rewriting", "translation"],
    ["cli"],
    ["__init__", "__main__"],
]
CALLS_UP = [ROOT / "api.py", ROOT / "runs" / "result.py"]
LEVEL = {name: level for level, names in enumerate(LAYERS) for name in names}


def _modules() -> list[Path]:
    return [path for path in ROOT.rglob("*.py") if "__pycache__" not in path.parts]


def _package(parts: tuple[str, ...]) -> str:
    return parts[0].removesuffix(".py")


def _imports(path: Path) -> set[str]:
    """Return the packages of maskov that a module imports, anywhere in it."""
    names = set()
    tree = ast.parse(path.read_text(encoding="utf-8"))
    # Types by their public names: nothing is imported there.
    types = {
        node for block in ast.walk(tree)
        if isinstance(block, ast.If) and ast.unparse(block.test) == "TYPE_CHECKING"
        for node in block.body
        if isinstance(node, ast.ImportFrom) and node.module == "maskov"
    }  # fmt: skip
    nodes = tree.body if path in CALLS_UP else list(ast.walk(tree))
    for node in (node for node in nodes if node not in types):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} imports relatively"
            parts = {alias.name for alias in node.names} if node.module == "maskov" else set()
            names |= {f"maskov.{part}" for part in parts & LEVEL.keys()}
            names |= (
                {node.module or ""} if node.module != "maskov" or parts - LEVEL.keys() else set()
            )
        elif isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif (
            isinstance(node, ast.Call)
            and getattr(node.func, "id", "") == "import_module"
            and isinstance(node.args[0], ast.Constant)
        ):
            names |= {str(node.args[0].value)}
    found = {name.split(".")[1] for name in names if name.startswith("maskov.")}
    return found | ({"__init__"} if "maskov" in names else set())


def test_every_package_has_its_place():
    assert {_package(path.relative_to(ROOT).parts) for path in _modules()} == set(LEVEL)


def test_imports_go_one_way():
    wrong = []
    for path in _modules():
        own = _package(path.relative_to(ROOT).parts)
        for other in _imports(path) - {own}:
            # `from maskov import x` names the root and x; x is what counts.
            if other != "__init__" and LEVEL.get(other, -1) >= LEVEL[own]:
                wrong.append(f"{path.relative_to(ROOT)} imports {other}")
            if other == "__init__" and own not in ("cli", "__main__"):
                wrong.append(f"{path.relative_to(ROOT)} imports the package itself")
    assert not wrong, "\n".join(wrong)


def test_every_public_name_is_there_and_others_are_not():
    assert dir(maskov) == sorted(maskov.__all__) == sorted(maskov._MODULES)
    for name, module in maskov._MODULES.items():
        assert getattr(maskov, name) is getattr(import_module(module), name)


def test_the_package_does_not_import_its_experiments():
    for path in _modules():
        text = path.read_text(encoding="utf-8")
        for name in ("benchmarks", "experiments", "recipes", "tests"):
            assert f"import {name}" not in text, path
            assert f"from {name}" not in text, path
