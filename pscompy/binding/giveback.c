/* Requests that nobody waits for any more, because an await was cancelled. What
 * has not begun is withdrawn. A receive gives its message back to the queue,
 * also after it has ended, unless the program knows that it has. */
#include "binding.h"

/* ---- receives that have ended ---- */

/* Where the message is. */
static const psc_iov_t *giveback_memory(const psb_op_t *op, psc_iov_t *piece,
                                        size_t *n_p)
{
    Py_ssize_t nbytes;

    if (op->kind == PSB_RECV_INTO) {
        *n_p = op->buffers.n;
        return psb_buffers_iov(&op->buffers);
    }
    *n_p = op->fresh ? 1 : 0;
    if (op->fresh && PyByteArray_Check(op->fresh)) {
        piece->base = PyByteArray_AS_STRING(op->fresh);
        piece->len = (size_t)PyByteArray_GET_SIZE(op->fresh);
    } else if (op->fresh) {
        piece->base = psb_memory_base(op->fresh, &nbytes);
        piece->len = (size_t)nbytes;
    }
    return piece;
}

/* A truncated message comes back from the buffer that was too short for it. */
static bool giveback_has_message(const psb_op_t *op)
{
    return op->worker->status == PSC_OK && psb_op_receives(op) &&
           (op->result.status == PSC_OK ||
            (op->result.status == PSC_ERR_TRUNCATED &&
             op->kind == PSB_RECV_INTO));
}

void psb_request_return(psb_request_t *self)
{
    psb_op_t *op = &self->op;
    const psc_iov_t *iov;
    psc_iov_t piece;
    size_t n;

    if (!giveback_has_message(op))
        return;
    iov = giveback_memory(op, &piece, &n);
    if (op->worker->api->recv_return(op->worker->core, op->context,
                                     &op->result, iov, n) != PSC_OK)
        return;
    op->result.status = PSC_ERR_CANCELLED;
}

/* The request's result is replaced by Cancelled. */
static void giveback_forget(psb_request_t *self, PyObject *cancelled)
{
    self->op.result.status = PSC_ERR_CANCELLED;
    Py_CLEAR(self->value);
    Py_CLEAR(self->status);
    Py_XSETREF(self->error, cancelled);
    psb_request_told(self);
}

static PyObject *giveback_cancelled(psb_request_t *self)
{
    return psb_exception(self->op.worker->state, self->op.origin,
                         PSC_ERR_CANCELLED, 0);
}

static int giveback_ended(psb_request_t *self)
{
    PyObject *cancelled = giveback_cancelled(self);

    if (!cancelled)
        return -1;
    psb_request_return(self);
    if (self->op.result.status == PSC_ERR_CANCELLED)
        giveback_forget(self, cancelled);
    else
        Py_DECREF(cancelled);
    return 0;
}

/* ---- methods ---- */

PyObject *psb_request_give_back(psb_request_t *self, PyObject *const *args,
                                Py_ssize_t n_args, PyObject *kwnames)
{
    static const psb_signature_t signature = {
        "_give_back", 0, 1, {"anyway"}};
    PyObject *given[1];

    if (psb_args_parse(&signature, args, n_args, kwnames, given) < 0)
        return NULL;
    if (self->op.kind == PSB_EVENT)
        Py_RETURN_FALSE;
    if (!self->finished && psb_op_give_up(&self->op))
        psb_request_advance(self);
    if (!self->finished) {
        self->giving = psb_op_receives(&self->op);
        return PyBool_FromLong(self->giving);
    }
    if ((!self->told || (given[0] && given[0] == Py_True)) &&
        giveback_has_message(&self->op) && giveback_ended(self) < 0)
        return NULL;
    Py_RETURN_FALSE;
}

PyObject *psb_request_revoke(psb_request_t *self, PyObject *unused)
{
    PyObject *cancelled;

    (void)unused;
    if (!psb_request_advance(self)) {
        psb_request_complete(self, NULL, NULL, PSC_ERR_CANCELLED);
        psb_request_advance(self);
        Py_RETURN_TRUE;
    }
    if (self->told)
        Py_RETURN_FALSE;
    cancelled = giveback_cancelled(self);
    if (!cancelled)
        return NULL;
    giveback_forget(self, cancelled);
    Py_RETURN_TRUE;
}
