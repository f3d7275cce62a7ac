/* Withdraws requests, because the program asks for it or because an await was
 * cancelled. An operation that has not begun is withdrawn. A receive gives its
 * message back to the queue of arrived messages, even after it has completed,
 * as long as the program has not seen its completion. */
#include "request.h"

PyObject *psb_request_cancel(psb_request_t *self, PyObject *unused)
{
    (void)unused;
    if (!psb_request_advance(self)) {
        if (self->op.kind == PSB_EVENT)
            psb_request_complete(self, NULL, NULL, PSC_ERR_CANCELLED);
        else
            psb_request_withdraw(self);
        psb_request_advance(self);
    }
    return PyBool_FromLong(self->op.finished &&
                           psb_op_result(&self->op)->status ==
                               PSC_ERR_CANCELLED);
}

/* Replaces the result of a completed request by the exception `cancelled`. */
static void cancel_forget(psb_request_t *self, PyObject *cancelled)
{
    psb_op_set_cancelled(&self->op);
    Py_CLEAR(*psb_request_status(self));
    Py_XSETREF(self->outcome, cancelled);
    self->op.failed = true;
    psb_request_mark_seen(self);
}

static PyObject *cancel_exception(psb_request_t *self)
{
    return psb_exception(self->op.worker->state, self->op.origin,
                         PSC_ERR_CANCELLED, 0);
}

static int cancel_ended(psb_request_t *self)
{
    PyObject *cancelled = cancel_exception(self);

    if (!cancelled)
        return -1;
    psb_op_return(&self->op);
    if (psb_op_result(&self->op)->status == PSC_ERR_CANCELLED)
        cancel_forget(self, cancelled);
    else
        Py_DECREF(cancelled);
    return 0;
}

PyObject *psb_request_requeue(psb_request_t *self, PyObject *const *args,
                              Py_ssize_t n_args, PyObject *kwnames)
{
    static const psb_signature_t signature = {"_requeue", 0, 1, {"anyway"}};
    PyObject *given[1];

    if (psb_args_parse(&signature, args, n_args, kwnames, given) < 0)
        return NULL;
    if (self->op.kind == PSB_EVENT)
        Py_RETURN_FALSE;
    if (!self->op.finished && psb_op_give_up(&self->op))
        psb_request_advance(self);
    if (!self->op.finished) {
        self->op.giving_back = psb_op_receives(&self->op);
        return PyBool_FromLong(self->op.giving_back);
    }
    if ((!self->op.seen || (given[0] && given[0] == Py_True)) &&
        psb_op_has_message(&self->op) && cancel_ended(self) < 0)
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
    if (self->op.seen)
        Py_RETURN_FALSE;
    cancelled = cancel_exception(self);
    if (!cancelled)
        return NULL;
    cancel_forget(self, cancelled);
    Py_RETURN_TRUE;
}
