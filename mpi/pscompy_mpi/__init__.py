"""MPI on pscompy: a libmpi.so.12 with MPICH's ABI, on which mpi4py runs unchanged."""
