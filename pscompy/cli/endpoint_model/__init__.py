"""A model of the InfiniBand resources that the threads of a program use, by their sharing.

The model, and every number in it, is that of "Scalable Communication Endpoints for MPI+Threads
Applications" by Rohit Zambre, Aparna Chandramowlishwaran and Pavan Balaji. CTX, PD, MR, QP and CQ
are objects of Verbs. A UAR is a page of a mlx5 device through which a process rings its doorbells;
a uUAR is one of the two halves of a page that QPs are assigned to. `pscompy endpoint-model` prints
the counts; the model opens no device.
"""

from pscompy.cli.endpoint_model.model import CATEGORIES, NAIVE, Category, Usage, hybrids, usage
from pscompy.cli.endpoint_model.paper import CONTRADICTIONS, Contradiction
from pscompy.cli.endpoint_model.policy import Policy, Sharing, levels

__all__ = [
    "CATEGORIES",
    "CONTRADICTIONS",
    "NAIVE",
    "Category",
    "Contradiction",
    "Policy",
    "Sharing",
    "Usage",
    "hybrids",
    "levels",
    "usage",
]
