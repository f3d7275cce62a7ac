/* Worlds that have some of the ranks of another World and number them anew. */
#pragma once

#include "worker.h"

/* Returns the rank that the World with this context (the number that separates
 * its messages) gives to the peer that the core knows as `rank`. */
int psb_worker_rank(const psb_worker_t *self, uint16_t context, int rank);
PyObject *psb_worker_renumber(psb_worker_t *self, PyObject *const *args,
                              Py_ssize_t n_args, PyObject *kwnames);
void psb_worker_forget_numberings(psb_worker_t *self);
