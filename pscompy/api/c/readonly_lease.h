/* Leases: numpy arrays are read-only while they are lent to a receiver. */
#pragma once

#include "state.h"

typedef struct psb_lease psb_lease_t;
/* Makes an array read-only until psb_lease_end() has been called as often as
 * this function. *lease_p becomes NULL if the object is no array, or is
 * read-only already and not lent. Returns -1 with an exception. */
int psb_lease_begin(psb_state_t *state, PyObject *object,
                    psb_lease_t **lease_p);
void psb_lease_end(psb_lease_t *lease);
/* Returns the array, for the garbage collector: each loan has a reference. */
PyObject *psb_lease_array(const psb_lease_t *lease);
