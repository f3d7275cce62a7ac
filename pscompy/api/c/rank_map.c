/* A World that has some of the ranks of another World numbers them anew. The
 * core knows a connection by its rank in the first World; Status.source is the
 * rank in the new one. */
#include "worker.h"

struct psb_numbering {
    psb_numbering_t *next;
    uint32_t context;
    /* ranks[r] is the new number of the rank r of the first World, or -1 if r
     * is not in the new World */
    int n, ranks[];
};

int psb_worker_rank(const psb_worker_t *self, uint32_t context, int rank)
{
    const psb_numbering_t *it = self->numberings;

    while (it && it->context != (context & PSC_CONTEXT_NUMBER))
        it = it->next;
    return it && rank < it->n ? it->ranks[rank] : rank;
}

/* Converts a sequence of ranks to an array; *highest_p becomes the highest
 * rank. Returns NULL with an exception. */
static int *numbering_ranks(PyObject *sequence, Py_ssize_t n, int *highest_p)
{
    int *ranks = PyMem_Calloc((size_t)n + 1, sizeof *ranks);

    if (!ranks)
        return (int *)PyErr_NoMemory();
    for (Py_ssize_t i = 0; i < n; i++) {
        uint64_t rank;

        if (psb_arg_u64(PySequence_Fast_GET_ITEM(sequence, i), "rank",
                        INT32_MAX - 1, &rank) < 0) {
            PyMem_Free(ranks);
            return NULL;
        }
        ranks[i] = (int)rank;
        if (ranks[i] > *highest_p)
            *highest_p = ranks[i];
    }
    return ranks;
}

static psb_numbering_t *numbering_create(uint32_t context, const int *ranks,
                                         Py_ssize_t n, int highest)
{
    size_t count = (size_t)highest + 1;
    psb_numbering_t *made =
        PyMem_Malloc(sizeof *made + count * sizeof *made->ranks);

    if (!made)
        return (psb_numbering_t *)PyErr_NoMemory();
    made->context = context;
    made->n = (int)count;
    memset(made->ranks, -1, count * sizeof *made->ranks);
    for (Py_ssize_t i = 0; i < n; i++)
        made->ranks[ranks[i]] = (int)i;
    return made;
}

PyObject *psb_worker_renumber(psb_worker_t *self, PyObject *const *args,
                              Py_ssize_t n_args, PyObject *kwnames)
{
    static const psb_signature_t signature = {
        "renumber", 2, 2, {"context", "ranks"}};
    psb_numbering_t *made = NULL;
    PyObject *given[2], *sequence;
    uint64_t context;
    int highest = -1, *ranks;
    Py_ssize_t n;

    if (psb_args_parse(&signature, args, n_args, kwnames, given) < 0 ||
        psb_arg_u64(given[0], "context", PSC_CONTEXT_NUMBER, &context) < 0)
        return NULL;
    sequence = PySequence_Fast(given[1], "renumber() needs a sequence");
    if (!sequence)
        return NULL;
    n = PySequence_Fast_GET_SIZE(sequence);
    ranks = numbering_ranks(sequence, n, &highest);
    if (ranks)
        made = numbering_create((uint32_t)context, ranks, n, highest);
    PyMem_Free(ranks);
    Py_DECREF(sequence);
    if (!made)
        return NULL;
    made->next = self->numberings;
    self->numberings = made;
    Py_RETURN_NONE;
}

void psb_worker_forget_numberings(psb_worker_t *self)
{
    psb_numbering_t *next;

    for (psb_numbering_t *it = self->numberings; it; it = next) {
        next = it->next;
        PyMem_Free(it);
    }
    self->numberings = NULL;
}
