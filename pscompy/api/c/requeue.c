/* Returns the message of a completed receive to the queue of arrived messages,
 * if no thread waits for that receive any more. */
#include "operation.h"
#include "memory.h"

/* Returns the memory that holds the received message. */
static const psc_iov_t *requeue_memory(const psb_op_t *op, psc_iov_t *piece,
                                       size_t *n_p)
{
    Py_ssize_t nbytes;

    if (op->kind == PSB_RECV_INTO) {
        *n_p = psb_buffers_n(&op->buffers);
        return psb_buffers_iov(&op->buffers);
    }
    *n_p = op->memory ? 1 : 0;
    if (op->in_room) {
        *piece = psb_room_piece(op->memory);
        piece->len = (size_t)psb_op_result(op)->nbytes;
    } else if (op->memory && PyByteArray_Check(op->memory)) {
        piece->base = PyByteArray_AS_STRING(op->memory);
        piece->len = (size_t)PyByteArray_GET_SIZE(op->memory);
    } else if (op->memory) {
        piece->base = psb_memory_base(op->memory, &nbytes);
        piece->len = (size_t)nbytes;
    }
    return piece;
}

/* Returns true also for a truncated message, whose beginning, in the program's
 * buffer, can be requeued. */
bool psb_op_has_message(const psb_op_t *op)
{
    psc_status_t status = psb_op_result(op)->status;

    return op->worker->status == PSC_OK && psb_op_receives(op) &&
           (status == PSC_OK ||
            (status == PSC_ERR_TRUNCATED && op->kind == PSB_RECV_INTO));
}

void psb_op_return(psb_op_t *op)
{
    const psc_iov_t *iov;
    psc_iov_t piece;
    size_t n;

    if (!psb_op_has_message(op))
        return;
    iov = requeue_memory(op, &piece, &n);
    if (op->worker->api->recv_return(op->worker->core, op->context,
                                     psb_op_result(op), iov, n) == PSC_OK)
        psb_op_set_cancelled(op);
}
