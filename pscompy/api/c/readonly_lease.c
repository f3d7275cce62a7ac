/* Leases: a numpy array that is lent is read-only until the last send that
 * lends it has completed. */
#include "buffers.h"
#include "memory.h"

struct psb_lease {
    /* links in psb_state_t.leases, the list of all leases */
    psb_lease_t *next, **prev;
    PyObject *array; /* each loan has a reference */
    unsigned loans;
};

/* Returns the lease of an array that is already lent, or NULL. */
static psb_lease_t *lease_find(psb_state_t *state, PyObject *array)
{
    psb_lease_t *lease = state->leases;

    while (lease && lease->array != array)
        lease = lease->next;
    return lease;
}

static psb_lease_t *lease_new(psb_state_t *state, PyObject *array)
{
    psb_lease_t *lease = PyMem_Malloc(sizeof *lease);

    if (!lease) {
        PyErr_NoMemory();
        return NULL;
    }
    *lease = (psb_lease_t){state->leases, &state->leases, array, 0};
    if (lease->next)
        lease->next->prev = &lease->next;
    state->leases = lease;
    return lease;
}

int psb_lease_begin(psb_state_t *state, PyObject *object, psb_lease_t **lease_p)
{
    psb_lease_t *lease;

    if (psb_array_set_writable(object, false)) {
        lease = lease_new(state, object);
        if (!lease) {
            psb_array_set_writable(object, true);
            return -1;
        }
    } else {
        lease = lease_find(state, object);
    }
    if (lease) {
        lease->loans++;
        Py_INCREF(object);
    }
    *lease_p = lease;
    return 0;
}

void psb_lease_end(psb_lease_t *lease)
{
    PyObject *array = lease->array;

    if (--lease->loans == 0) {
        *lease->prev = lease->next;
        if (lease->next)
            lease->next->prev = lease->prev;
        psb_array_set_writable(array, true);
        PyMem_Free(lease);
    }
    Py_DECREF(array);
}

PyObject *psb_lease_array(const psb_lease_t *lease)
{
    return lease->array;
}
