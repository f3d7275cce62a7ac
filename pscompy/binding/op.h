/* One operation that the core may know, on the stack of a blocking call or
 * inside a Request. */
#pragma once

#include "buffers.h"
#include "call.h"

typedef struct psb_op {
    psb_worker_t *worker;
    /* the object whose _exception() makes the errors, or NULL */
    PyObject *origin;
    /* the core's request; NULL: none was needed, or it was freed */
    psc_request_t *core;
    /* Of a receive without buffer: the Room for a short message, if `in_room`,
     * else memory that was made for the message, or NULL. The owner of an
     * active message's header. */
    PyObject *memory;
    union {
        struct { /* in flight */
            psc_link_t link; /* `listed`: in the worker's ops */
            /* The connection of a blocking send. If it is closed locally the
             * send fails with Closed. NULL for all other operations. */
            psc_conn_t *target;
        };
        psc_result_t result; /* once done; see psb_op_result */
    };
    uint8_t kind; /* psb_kind_t */
    uint8_t polls; /* polls that a blocking receive made when it started */
    uint16_t context;
    uint16_t waiters; /* threads that wait on `core` without the GIL */
    uint16_t awaits; /* awaits that are suspended until its Request completes */
    int32_t tag;
    bool done : 1;
    bool listed : 1;
    bool in_room : 1;
    bool matched : 1; /* a probe that is done: `core` has its message */
    /* part of a psb_request_t, which uses the bits below */
    bool in_request : 1;
    bool finished : 1; /* the request's outcome is set, for good */
    bool failed : 1; /* the request's outcome is an exception */
    bool in_flight : 1; /* the object is kept alive until the op completes */
    /* the request holds a reference to itself, because the program has dropped
     * its last one */
    bool self_reference : 1;
    bool offered : 1; /* asyncio may have wrapped the request in a task */
    bool unnotified : 1; /* the core does not report its completion */
    bool cancelled : 1; /* an event that its consumer cancelled */
    bool persistent : 1; /* keeps its buffers for the next start */
    /* The program has seen that the request completed. Until then a receive can
     * give its message back. */
    bool seen : 1;
    bool giving_back : 1; /* a receive whose message is given back on
                             completion */
    psb_buffers_t buffers;
} psb_op_t;

/* Fills `op` for the call and gets its buffers; references are borrowed. The
 * room lives as long as `op`, unless that becomes a Request. */
int psb_op_init(psb_op_t *op, const psb_call_t *call, psb_view_room_t *room);
/* Returns true once the operation has completed; supplies memory to a receive
 * without buffer that has matched. */
bool psb_op_advance(psb_op_t *op);
/* Completes an op that the core does not know any more. */
void psb_op_abandon(psb_op_t *op, psc_status_t status);
/* Cancels an op that has not begun. Returns false if it is still in flight. */
bool psb_op_withdraw(psb_op_t *op);
/* Like psb_op_withdraw(), for an op that nobody waits for any more: a receive
 * also gives back a message that is still arriving. */
bool psb_op_give_up(psb_op_t *op);
/* True for a receive, which takes a message off the queue. */
bool psb_op_receives(const psb_op_t *op);
/* True for an operation that sends, or accesses the peer's memory. */
static inline bool psb_op_goes_out(const psb_op_t *op)
{
    return op->kind == PSB_SEND || op->kind == PSB_AM || op->kind == PSB_PUT ||
           op->kind == PSB_GET;
}
/* Returns the result of an op that is done. */
static inline const psc_result_t *psb_op_result(const psb_op_t *op)
{
    return op->matched ? &op->core->result : &op->result;
}
/* Sets op->memory, and takes over the reference; an earlier Room is given
 * back. */
void psb_op_set_memory(psb_op_t *op, PyObject *memory);
void psb_op_drop_memory(psb_op_t *op);
void psb_op_clear(psb_op_t *op);
void psb_op_link(psb_op_t *op);
void psb_op_unlink(psb_op_t *op);
/* Frees the core's request, unless a thread waits on it. */
void psb_op_free_core(psb_op_t *op);

static inline psb_op_t *psb_op_of(psc_link_t *link)
{
    return psc_container_of(link, psb_op_t, link);
}
