"""Making many frozen dataclasses quickly: for the hot path, where a record is made for each event.

A frozen dataclass sets its fields one by one through `object.__setattr__`, which takes four times
as long as all else of making it. `fast_constructor` gives a function of the same keywords that
makes the same
object: its fields are set while it is of a twin class that is not frozen, then its class changes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, fields
from typing import Any, ParamSpec, TypeVar

Made = TypeVar("Made")
Given = ParamSpec("Given")


def fast_constructor(frozen: Callable[Given, Made]) -> Callable[Given, Made]:
    """A function that takes what the class takes and gives an equal object.

    The class must be a frozen dataclass with slots. Its `__post_init__` is **not** called: whoever
    makes an event this way has checked what it checks.
    """
    cls: Any = frozen
    names: dict[str, Any] = {"_twin": open_twin(cls), "_class": cls}
    parameters = []
    for field in fields(cls):
        if field.default_factory is not MISSING:
            raise TypeError(
                f"{cls.__name__}.{field.name} has a factory, which is not followed here"
            )
        if field.default is MISSING:
            parameters.append(field.name)
        else:
            names[f"_default_{field.name}"] = field.default
            parameters.append(f"{field.name}=_default_{field.name}")
    keywords_only = "*, " if all(field.kw_only for field in fields(cls)) else ""
    lines = [
        f"def make({keywords_only}{', '.join(parameters)}):",
        "    made = _twin()",
        *(f"    made.{field.name} = {field.name}" for field in fields(cls)),
        "    made.__class__ = _class",
        "    return made",
    ]
    exec("\n".join(lines), names)  # noqa: S102  # as `dataclass` does; the names are the class's
    make: Callable[Given, Made] = names["make"]
    return make


def open_twin(cls: type) -> type:
    """A class of the same fields that is not frozen, for an object whose class is then changed."""
    plain = {
        "__slots__": (),
        "__init__": object.__init__,
        "__setattr__": object.__setattr__,
        "__delattr__": object.__delattr__,
    }
    return type(f"Open{cls.__name__}", (cls,), plain)
