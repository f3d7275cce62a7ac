"""How much of an InfiniBand device the threads of a program take, by what they share.

The model, and every number in it, is that of "Scalable Communication Endpoints for MPI+Threads
Applications" by Rohit Zambre, Aparna Chandramowlishwaran and Pavan Balaji: CTX, PD,
MR, QP and CQ are Verbs' objects; a UAR is a page of a mlx5 device through which a process rings
its doorbells, and a uUAR one of the two halves of a page that QPs are assigned to.
`pscompy endpoints` prints what is counted here; nothing here opens a device.
"""

from pscompy.endpoints.model import CATEGORIES, NAIVE, Category, Usage, hybrids, usage
from pscompy.endpoints.paper import CONTRADICTIONS, Contradiction
from pscompy.endpoints.policy import Policy, Sharing, levels

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
