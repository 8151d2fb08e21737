"""Checks the shapes and types of every call of the package, as its annotations state them.

jaxtyping has an import hook of its own, which checks arguments twice, once before a call and once
more with what came back, and binds them to their names each time: three quarters of the suite's
time. This one has beartype check each once, within jaxtyping's context, where a name such as
`chains` has to mean one number throughout a call. A function is prepared when it is first called,
when everything that its annotations name is there.
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import sys
import threading
from collections.abc import Callable
from functools import wraps
from importlib.abc import MetaPathFinder
from importlib.machinery import PathFinder, SourceFileLoader
from types import CodeType, FunctionType
from typing import Any, get_args, get_type_hints

import torch
from beartype import BeartypeConf, beartype
from jaxtyping import AbstractArray
from jaxtyping import _array_types as jaxtyping_types
from jaxtyping._storage import _shape_storage


class WrongTypeError(TypeError):
    """What was given or returned is not what the annotation states."""


# `int` is allowed where `float` is asked. What is wrong is a TypeError, as it would be further on
# where the package counts on one: entries of damaged files reach its constructors.
_checked = beartype(conf=BeartypeConf(is_pep484_tower=True, violation_type=WrongTypeError))
# By the identity of their code, which is kept so that no other has it.
_shared: dict[int, tuple[Callable[..., Any], CodeType]] = {}
_at_work = threading.local()


def checked(thing: Any) -> Any:
    """Decorate a function, or the constructor of a dataclass."""
    if inspect.isclass(thing):
        if dataclasses.is_dataclass(thing) and "__init__" in vars(thing):
            thing.__init__ = checked(thing.__init__)
        return thing
    if not thing.__annotations__:
        return thing
    return _inner(thing) if "<locals>" in thing.__qualname__ else _outer(thing)


def _inner(function: Callable[..., Any]) -> Callable[..., Any]:
    """Check a function that is made within another."""
    check = None

    @wraps(function)
    def call(*arguments: Any, **named: Any) -> Any:
        __tracebackhide__ = True
        nonlocal check
        if check is None:
            check = _with_shared_checks(function)
        return check(*arguments, **named)

    return call


def _outer(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that at its first call takes over the code of its checks.

    Calling them from here would take as long again as most checks do. They reach all they need by
    defaults of parameters, so that their code runs in any function that has those.
    """

    def prepared() -> Callable[..., Any]:
        check = _with_checks(function, function)
        if not check.__code__.co_freevars and check.__defaults__ is None:
            # In this order, so that another thread finds no code without its defaults.
            call.__kwdefaults__ = {**call.__kwdefaults__, **(check.__kwdefaults__ or {})}
            call.__code__ = check.__code__
        return check

    call = FunctionType(_first_call.__code__, function.__globals__)
    call.__kwdefaults__ = {"__prepared": prepared}
    return wraps(function)(call)


def _first_call(*arguments: Any, __prepared: Any, **named: Any) -> Any:
    __tracebackhide__ = True
    return __prepared()(*arguments, **named)


def _with_checks(function: Callable[..., Any], stated: Callable[..., Any]) -> Callable[..., Any]:
    """Check what a function is given and returns by what another states."""
    hints = {name: _meaning(hint, stated) for name, hint in stated.__annotations__.items()}
    if inspect.isgeneratorfunction(function):
        function = _called(function)
    function.__annotations__ = hints
    checks = _checked(function)
    if not any(_has_shapes(hint) for hint in hints.values()):
        return checks

    call = FunctionType(_with_shapes.__code__, function.__globals__)
    call.__kwdefaults__ = {"__checks": checks, "__shapes": _shape_storage}
    return call


def _with_shapes(*arguments: Any, __checks: Any, __shapes: Any, **named: Any) -> Any:
    """Call with names of dimensions of its own; jaxtyping's functions for that, in their place."""
    __tracebackhide__ = True
    try:
        stack = __shapes.memo_stack
    except AttributeError:
        stack = __shapes.memo_stack = []
    stack.append(({}, {}, {}, {}))
    try:
        return __checks(*arguments, **named)
    finally:
        stack.pop()


def _called(generator: Callable[..., Any]) -> Callable[..., Any]:
    """Return a plain function, whose arguments are checked when it is called.

    Those of a generator would be when it is first asked, among the names of whoever asks.
    """

    @wraps(generator)
    def call(*arguments: Any, **named: Any) -> Any:
        __tracebackhide__ = True
        return generator(*arguments, **named)

    return call


def _with_shared_checks(function: Callable[..., Any]) -> Callable[..., Any]:
    """Check an inner function, which is made anew at each call of the outer one.

    Preparing its checks each time would take longer than the call. All that are made of the same
    code share them, so that the function itself is told to them at each call.
    """
    code = function.__code__
    if id(code) not in _shared:

        @wraps(function)
        def told(*arguments: Any, **named: Any) -> Any:
            __tracebackhide__ = True
            return _at_work.function(*arguments, **named)

        _shared[id(code)] = _with_checks(told, function), code
    checks = _shared[id(code)][0]

    def call(*arguments: Any, **named: Any) -> Any:
        __tracebackhide__ = True
        # A check may itself call something that is checked, such as a property.
        before = getattr(_at_work, "function", None)
        _at_work.function = function
        try:
            return checks(*arguments, **named)
        finally:
            _at_work.function = before

    return call


def _meaning(hint: Any, function: Callable[..., Any]) -> Any:
    """Return what an annotation says; anything goes where what it names is nowhere to be found."""

    def alone(value: Any) -> None: ...

    alone.__annotations__ = {"value": hint}
    try:
        return get_type_hints(alone, function.__globals__, include_extras=True)["value"]
    except NameError:
        return Any


# The name or the size of each dimension of annotations that are no more than that, and the dtypes
# that jaxtyping was seen to take there.
_plans: dict[type, tuple[tuple[str | int, ...], set[torch.dtype]] | None] = {}
_slowly = type(AbstractArray).__instancecheck__


def _plan(hint: Any) -> tuple[tuple[str | int, ...], set[torch.dtype]] | None:
    """Return what a plain annotation of a tensor states; None if it is not so plain."""
    if hint is AbstractArray or hint.array_type is not torch.Tensor:
        return None
    sizes: list[str | int] = []
    for dim in hint.dims:
        if getattr(dim, "broadcastable", True) or getattr(dim, "treepath", False):
            return None
        if isinstance(dim, jaxtyping_types._NamedDim):
            sizes.append(dim.name)
        elif isinstance(dim, jaxtyping_types._FixedDim):
            sizes.append(dim.size)
        else:
            return None
    return tuple(sizes), set()


def _is_instance(hint: Any, value: Any) -> bool:
    """Check a tensor as jaxtyping does, a few times faster; what is not plain it checks itself."""
    try:
        plan = _plans[hint]
    except KeyError:
        plan = _plans[hint] = _plan(hint)
    if plan is None or type(value) is not torch.Tensor or value.dtype not in plan[1]:
        taken = bool(_slowly(hint, value))
        if taken and plan is not None and type(value) is torch.Tensor:
            plan[1].add(value.dtype)
        return taken
    sizes, shape = plan[0], value.shape
    if len(shape) != len(sizes):
        return False
    try:
        memo = _shape_storage.memo_stack[-1][0]
    except (AttributeError, IndexError):  # outside any call
        memo = {}
    before = len(memo)
    for stated, size in zip(sizes, shape, strict=True):
        if size != (memo.setdefault(stated, size) if type(stated) is str else stated):
            while len(memo) > before:  # names that were new here
                memo.popitem()
            return False
    return True


type(AbstractArray).__instancecheck__ = _is_instance


def _has_shapes(hint: Any) -> bool:
    if inspect.isclass(hint) and issubclass(hint, AbstractArray):
        return True
    return any(_has_shapes(part) for part in get_args(hint))


def _decorate(within: ast.AST) -> None:
    """Put the decorator next to every function, and above everything else on a class."""
    for name in ("body", "orelse", "finalbody", "handlers", "cases"):
        for node in getattr(within, name, ()):  # statements only: no expression defines anything
            if isinstance(node, ast.FunctionDef):
                node.decorator_list.append(_decorator(node))
            elif isinstance(node, ast.ClassDef):
                node.decorator_list.insert(0, _decorator(node))
            _decorate(node)


def _decorator(node: ast.stmt) -> ast.expr:
    found = ast.parse("__import__('typecheck').checked", mode="eval").body
    for part in ast.walk(found):
        ast.copy_location(part, node)  # a function begins where its first decorator stands
    return found


class _Loader(SourceFileLoader):
    def get_code(self, fullname: str) -> CodeType:
        # Never from a cache, which holds the package as it stands.
        tree = ast.parse(self.get_data(self.path), self.path)
        _decorate(tree)
        return compile(tree, self.path, "exec", dont_inherit=True)


class CheckedImports(MetaPathFinder):
    """While it is entered, modules of a package are imported with checks."""

    def __init__(self, package: str) -> None:
        self._package = package

    def __enter__(self) -> None:
        sys.meta_path.insert(0, self)

    def __exit__(self, *_: object) -> None:
        sys.meta_path.remove(self)

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        """Find modules of the package as usual, and have them loaded with checks."""
        if name.split(".")[0] != self._package:
            return None
        spec = PathFinder.find_spec(name, path, target)
        if spec is not None and isinstance(spec.loader, SourceFileLoader):
            spec.loader = _Loader(spec.loader.name, spec.loader.path)
        return spec
