"""Things by name, with parameters after a colon: "ring", "k-class:k=4", "momentum-tracking:beta=0.5,init=zero".

The command line, TOML files and stored runs use the same specs. The parameters are read from the signature of the
function or class that the name stands for.
"""

import inspect
from collections.abc import Callable, Collection
from functools import cache
from typing import Any, Literal, get_args, get_origin

from gossamer.errors import InputError, unknown

Value = bool | int | float | str | tuple[float, ...]


signature = cache(inspect.signature)
"""Of what a name stands for: a grid asks for the same ones thousands of times."""


def normalized(name: str) -> str:
    """A name as it is looked up: upper case, blanks and underscores do not matter.

    >>> normalized(" Momentum Tracking")
    'momentum-tracking'
    """
    return str(name).strip().lower().replace("_", "-").replace(" ", "-")


def split(text: str) -> tuple[str, str]:
    """The name and the parameters after the colon.

    >>> split("k-class:k=4")
    ('k-class', 'k=4')
    """
    name, _, rest = text.partition(":")
    return name.strip(), rest.strip()


def parameters(
    kind: str, name: str, build: Callable[..., Any], text: str, *, given: Collection[str] = ()
) -> dict[str, Value]:
    """`key=value,key=value` as keyword arguments of `build`, each of the type that it declares.

    Arguments in `given` come from elsewhere and cannot be set here. Several numbers are joined by slashes.

    >>> from gossamer.data.partition import k_class
    >>> parameters("partition", "k-class", k_class, "k=4", given=("nodes", "seed"))
    {'k': 4}
    """
    declared = {k: p for k, p in signature(build).parameters.items() if k not in given}
    found: dict[str, Value] = {}
    for item in filter(None, map(str.strip, text.split(","))):
        key, equals, value = (part.strip() for part in item.partition("="))
        if not declared:
            raise InputError(f"The {kind} '{name}' takes no parameters, so leave out ':{text}'.")
        if key not in declared:
            raise unknown(f"parameter of {name}", key, declared)
        try:
            if not equals:
                raise ValueError
            found[key] = _convert(value, declared[key].annotation)
        except ValueError:
            shown = f"not '{value}'" if equals else "as in key=value"
            raise InputError(
                f"The parameter {key} of the {kind} '{name}' must be {_wanted(declared[key].annotation)}, {shown}."
            ) from None
    for key, parameter in declared.items():
        if parameter.default is parameter.empty and key not in found:
            example = {"a number": "0.3", "a whole number": "4"}.get(_wanted(parameter.annotation), "...")
            raise InputError(f"The {kind} '{name}' needs {key}, as in '{name}:{key}={example}'.")
    return found


def _convert(text: str, annotation: Any) -> Value:
    wanted = _wanted(annotation)
    if wanted == "true or false":
        return {"true": True, "false": False}[text.lower()] if text.lower() in ("true", "false") else _fail()
    if wanted == "a whole number":
        return int(text)
    if wanted == "a number":
        return float(text)
    if wanted == "numbers joined by slashes":
        return tuple(float(part) for part in text.split("/"))
    if get_origin(annotation) is Literal and text not in get_args(annotation):
        return _fail()
    return text


def _fail() -> Value:
    raise ValueError


def _wanted(annotation: Any) -> str:
    """The type of a parameter in words."""
    if annotation is bool:
        return "true or false"
    if get_origin(annotation) is Literal:
        return " or ".join(map(str, get_args(annotation)))
    if get_origin(annotation) is tuple:
        return "numbers joined by slashes"
    kinds = get_args(annotation) or (annotation,)
    if float in kinds:
        return "a number"
    if int in kinds:
        return "a whole number"
    return "a word"
