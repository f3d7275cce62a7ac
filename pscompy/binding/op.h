/* One operation that the core may know, on the stack of a blocking call or
 * inside a Request. */
#ifndef PSCOMPY_BINDING_OP_H
#define PSCOMPY_BINDING_OP_H

#include "buffers.h"
#include "call.h"

typedef struct psb_op {
    psc_link_t link;     /* link in the worker's ops, see psb_op_link */
    psb_worker_t *worker;
    PyObject *origin;    /* its _exception() makes the errors, or NULL */
    psc_request_t *core; /* NULL: none was needed, or it was freed */
    PyObject *fresh;     /* memory that a receive without buffer made; the
                            owner of an active message's header */
    union {
        PyObject *room; /* receives: Room for a short message, or NULL */
        psc_conn_t *target; /* psb_op_goes_out: The connection of a blocking
                               send. If it is closed locally the send fails with
                               Closed. NULL for all other operations. */
    };
    uint8_t kind; /* psb_kind_t */
    uint8_t polls; /* polls that a blocking receive made when it started */
    bool done;
    bool in_request; /* part of a psb_request_t */
    uint16_t context;
    uint16_t waiters; /* threads that wait on `core` without the GIL */
    int32_t tag;
    psc_result_t result; /* valid once done */
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
static inline PyObject *psb_op_room(const psb_op_t *op)
{
    return psb_op_goes_out(op) ? NULL : op->room;
}
/* True if the message that was received is in the op's Room. */
static inline bool psb_op_in_room(const psb_op_t *op)
{
    return psb_op_room(op) && !op->fresh;
}
void psb_op_drop_memory(psb_op_t *op); /* fresh and room */
void psb_op_clear(psb_op_t *op);
void psb_op_link(psb_op_t *op);
void psb_op_unlink(psb_op_t *op);
/* Frees the core's request, unless a thread waits on it. */
void psb_op_free_core(psb_op_t *op);

static inline psb_op_t *psb_op_of(psc_link_t *link)
{
    return psc_container_of(link, psb_op_t, link);
}

#endif
