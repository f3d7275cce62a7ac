/* A World that has some of the ranks of another World numbers them anew. The
 * core knows a connection by its rank in the first World; Status.source is the
 * rank in the new one. */
#include "worker.h"

typedef struct psb_numbering {
    psc_entry_t entry; /* in psb_worker_t.numberings */
    /* ranks[r] is the new number of the rank r of the first World, or -1 if r
     * is not in the new World */
    int n, ranks[];
} psb_numbering_t;

int psb_worker_rank(const psb_worker_t *self, uint32_t context, int rank)
{
    const psc_entry_t *entry =
        psc_table_find(&self->numberings, context & PSC_CONTEXT_NUMBER);
    const psb_numbering_t *it =
        entry ? psc_container_of(entry, psb_numbering_t, entry) : NULL;

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

static psb_numbering_t *numbering_create(const int *ranks, Py_ssize_t n,
                                         int highest)
{
    size_t count = (size_t)highest + 1;
    psb_numbering_t *made =
        PyMem_Malloc(sizeof *made + count * sizeof *made->ranks);

    if (!made)
        return (psb_numbering_t *)PyErr_NoMemory();
    made->n = (int)count;
    memset(made->ranks, -1, count * sizeof *made->ranks);
    for (Py_ssize_t i = 0; i < n; i++)
        made->ranks[ranks[i]] = (int)i;
    return made;
}

PyObject *psb_worker_renumber(psb_worker_t *self, uint32_t context,
                              PyObject *members)
{
    PyObject *sequence = PySequence_Fast(members, "ranks are a sequence");
    psb_numbering_t *made = NULL;
    int highest = -1, *ranks;
    Py_ssize_t n;

    if (!sequence)
        return NULL;
    n = PySequence_Fast_GET_SIZE(sequence);
    ranks = numbering_ranks(sequence, n, &highest);
    if (ranks)
        made = numbering_create(ranks, n, highest);
    PyMem_Free(ranks);
    Py_DECREF(sequence);
    if (!made)
        return NULL;
    psb_worker_forget_numbering(self, context);
    psc_table_add(&self->numberings, &made->entry, context);
    Py_RETURN_NONE;
}

static void numbering_free(psb_worker_t *self, psc_entry_t *entry)
{
    psc_table_remove(&self->numberings, entry);
    PyMem_Free(psc_container_of(entry, psb_numbering_t, entry));
}

void psb_worker_forget_numbering(psb_worker_t *self, uint32_t context)
{
    psc_entry_t *entry = psc_table_find(&self->numberings, context);

    if (entry)
        numbering_free(self, entry);
}

void psb_worker_forget_numberings(psb_worker_t *self)
{
    psc_list_for_each(entry, &self->numberings.all, psc_entry_t, link)
        numbering_free(self, entry);
    psc_table_clear(&self->numberings);
}
