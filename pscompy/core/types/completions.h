/* The completion queue; completion.h describes its use. */
#ifndef PSCOMPY_CORE_TYPES_COMPLETIONS_H
#define PSCOMPY_CORE_TYPES_COMPLETIONS_H

#include "request.h"

typedef struct psc_completions {
    _Atomic(psc_req_t *) added; /* newest first */
    psc_req_t *taken;           /* the consumer's part, oldest first */
    _Atomic(psc_req_t *) freed; /* for the pool to take when the lock is held */
    atomic_uint n; /* queued requests that a consumer holds */
    atomic_uint n_freed; /* queued requests that no consumer holds */
} psc_completions_t;

#endif
