"""A cache for functions of large objects that stay the same, whose hash would cost more than the lookup saves."""

from collections import OrderedDict
from collections.abc import Callable
from functools import wraps
from threading import Lock
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


def cached_by_identity(size: int) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Keep the results of the last calls; a call with the same objects as arguments, not equal ones, gets one of them.

    Args:
        size: results that are kept, with their arguments.
    """

    def decorate(function: Callable[P, T]) -> Callable[P, T]:
        known: OrderedDict[tuple[object, ...], tuple[object, T]] = OrderedDict()
        lock = Lock()

        @wraps(function)
        def cached(*args: P.args, **kwargs: P.kwargs) -> T:
            key = (*map(id, args), *((name, id(value)) for name, value in kwargs.items()))
            with lock:
                found = known.get(key)
                if found is not None:
                    known.move_to_end(key)
                    return found[1]
            result = function(*args, **kwargs)
            with lock:
                known[key] = (args, kwargs), result  # the arguments stay, so that nothing else gets their ids
                while len(known) > size:
                    known.popitem(last=False)
            return result

        return cached

    return decorate
