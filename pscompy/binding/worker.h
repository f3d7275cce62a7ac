/* The Worker object: one worker of the core as Python sees it. */
#pragma once

#include "pscompy/transport/kit/list.h"
#include "state.h"

#define PSB_ROOMS_KEPT 16u

typedef struct psb_numbering psb_numbering_t;

/* Whether an await polls before it suspends; see await.c. */
typedef struct psb_patience {
    int64_t turn; /* when a task last yielded to the loop, or began to await
                     without suspending; 0 after an await has suspended */
    unsigned backoff; /* awaits that skip polling after a poll found nothing */
    unsigned skip; /* how many of the next awaits skip polling */
} psb_patience_t;

typedef struct psb_worker {
    PyObject_HEAD psb_state_t *state;
    const psc_api_t *api;
    psc_worker_t *core;
    psc_status_t status; /* PSC_OK; CLOSED or FORKED once it has ended */
    psc_list_t ops; /* psb_op_t that the core knows */
    unsigned n_unnotified; /* requests that complete without notification */
    unsigned n_inside; /* threads in a call of the core without the GIL */
    unsigned n_draining; /* calls of psb_worker_drain, nested or not */
    psb_patience_t patience;
    PyObject *connections; /* id -> Connection, for connections in use */
    PyObject *handlers; /* id -> handler of active messages */
    PyObject *status_kept; /* the Status made last in a World, or NULL */
    psc_result_t status_result; /* the result that status_kept shows */
    PyObject *rooms[PSB_ROOMS_KEPT]; /* free Rooms, see recv_buffer.h */
    unsigned n_rooms; /* how many rooms are free */
    unsigned n_rooms_out; /* how many rooms are in use */
    psb_numbering_t *numberings;
} psb_worker_t;
