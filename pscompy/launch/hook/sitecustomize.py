"""Where a Python that is to become the ranks of a job stops in its start: see `nursery`.

The launcher puts this folder in front of PYTHONPATH, so that `site` imports this file instead of
another of its name. The process that comes back from `serve` is a rank: it finds everything as if
this file did not exist, and goes on as any Python that was just started.
"""

import os
import sys

before = {*sys.modules}


def run_the_real_one() -> None:
    """What would have been imported instead."""
    from importlib.machinery import PathFinder
    from importlib.util import module_from_spec

    spec = PathFinder.find_spec(__name__)
    if spec is None or spec.loader is None:
        raise ModuleNotFoundError(f"No module named {__name__!r}", name=__name__)
    sys.modules[__name__] = module_from_spec(spec)
    spec.loader.exec_module(sys.modules[__name__])


try:
    from pscompy.launch.cradle import serve

    serve(sys.path.index(os.path.dirname(__file__)), before)  # noqa: PTH120
except BaseException:  # nothing of the program may run here
    os._exit(1)
run_the_real_one()
