"""The folder that stands in front of a nursery's PYTHONPATH, for its `sitecustomize`."""

import os.path

FOLDER = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120
