/* Delivers what the core has completed: runs the call-backs of requests, and
 * the handlers of active messages. Any thread may call psb_worker_drain(), with
 * the GIL and without a lock of the core. */
#include "connection.h"
#include "guard.h"
#include "request.h"

/* Maximum number of rounds of one psb_worker_drain(), each of which delivers a
 * completed request and a message, so that an endless stream of messages does
 * not delay a caller that waits for a request of its own. */
#define WORKER_DRAIN_MAX 256

/* ---- entering a worker ---- */

int psb_worker_enter(psb_worker_t *self, PyObject *origin)
{
    if (PSB_UNLIKELY(self->status == PSC_OK && !self->n_draining &&
                     (self->n_unnotified || self->api->pending(self->core))))
        psb_worker_drain(self);
    if (PSB_UNLIKELY(self->status != PSC_OK)) {
        psb_raise(self->state, origin, self->status, 0);
        return -1;
    }
    return 0;
}

/* ---- delivery ---- */

/* A collective that C has started, and whose function is to be called
 * (capi.drain). The request exists: C frees it with the GIL. */
static void worker_call_for_c(psb_worker_t *self, psc_request_t *core)
{
    if (psc_request_state(core) == PSC_REQUEST_MATCHED)
        self->api->coll_call(core);
}

static bool worker_deliver_request(psb_worker_t *self)
{
    psc_request_t *core = self->api->completion_poll(self->core);
    psb_request_t *request;

    if (!core)
        return false;
    if (!core->owner) {
        worker_call_for_c(self, core);
        return true;
    }
    request = core->owner;
    Py_INCREF(request);
    psb_request_advance(request);
    Py_DECREF(request);
    return true;
}

/* Returns the arguments of handler(source, header, payload). Header and payload
 * are copies, because the core frees the message. */
static PyObject *worker_handler_args(PyObject *source,
                                     const psc_message_t *message)
{
    return Py_BuildValue("(ONN)", source,
                         PyBytes_FromStringAndSize(
                             message->header, (Py_ssize_t)message->header_len),
                         PyByteArray_FromStringAndSize(
                             message->payload, (Py_ssize_t)message->len));
}

static PyObject *worker_handler(psb_worker_t *self, uint32_t id)
{
    PyObject *key = PyLong_FromUnsignedLong(id), *handler = NULL, *handlers;

    if (!key)
        return NULL;
    handlers = psb_worker_held(self->handlers);
    if (handlers)
        handler = Py_XNewRef(PyDict_GetItemWithError(handlers, key));
    Py_XDECREF(handlers);
    Py_DECREF(key);
    return handler;
}

/* Frees the message. If it was the last of a connection that is not in use any
 * more, the worker drops that connection. */
static void worker_free_message(psb_worker_t *self, PyObject *source,
                                psc_message_t *message)
{
    psb_raised_t raised = psb_raised_take();

    self->api->message_free(self->core, message);
    if (source && PyObject_TypeCheck(source, self->state->connection_type) &&
        ((psb_connection_t *)source)->leaving &&
        psb_worker_let_go(self, (psb_connection_t *)source) < 0)
        PyErr_WriteUnraisable(source);
    psb_raised_restore(raised);
}

static bool worker_deliver_message(psb_worker_t *self)
{
    psc_message_t *message = self->api->message_poll(self->core);
    PyObject *source, *handler, *args = NULL, *result = NULL;
    bool interrupted;

    if (!message)
        return false;
    interrupted = psb_interrupt_take();
    source = psb_worker_source(self, self->api->conn_id(message->source),
                               self->api->conn_rank(message->source));
    handler = source ? worker_handler(self, message->id) : NULL;
    if (handler)
        args = worker_handler_args(source, message);
    worker_free_message(self, source, message);
    if (args)
        result = PyObject_CallObject(handler, args);
    if (PyErr_Occurred())
        PyErr_WriteUnraisable(handler);
    Py_XDECREF(result);
    Py_XDECREF(args);
    Py_XDECREF(handler);
    Py_XDECREF(source);
    psb_interrupt_return(interrupted);
    return true;
}

/* Completes requests that the core has completed without a notification
 * (op->unnotified). Their call-backs may change the list of ops, so the search
 * starts again after each request. */
static void worker_sweep_late(psb_worker_t *self)
{
    psc_link_t *link = self->ops.next;

    while (self->n_unnotified && link != &self->ops) {
        psb_op_t *op = psb_op_of(link);
        bool unnotified = op->in_request && op->unnotified;

        if (unnotified && psb_request_advance(psb_request_of(op)))
            link = self->ops.next;
        else
            link = link->next;
    }
}

void psb_worker_drain(psb_worker_t *self)
{
    bool more = true;

    /* The call-backs may wait, or take a Lock that this thread holds. */
    if (!psb_guard_may_wait())
        return;
    if (Py_EnterRecursiveCall(" while delivering messages")) {
        PyErr_WriteUnraisable((PyObject *)self);
        return;
    }
    Py_INCREF(self);
    self->n_draining++;
    worker_sweep_late(self);
    for (int i = 0; more && i < WORKER_DRAIN_MAX; i++) {
        more = self->status == PSC_OK && worker_deliver_request(self);
        if (self->status == PSC_OK && worker_deliver_message(self))
            more = true;
    }
    self->n_draining--;
    Py_LeaveRecursiveCall();
    Py_DECREF(self);
}
