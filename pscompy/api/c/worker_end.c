/* Ends a Worker: close(), and forked() in a child process. */
#include "request.h"

#include <time.h>

/* Completes all operations of a worker that has ended. If `reached` is set, a
 * peer may still write into the buffers of these operations, so the buffers are
 * never freed. */
static void worker_abandon_ops(psb_worker_t *self, bool reached)
{
    while (!psc_list_empty(&self->ops)) {
        psb_op_t *op = psb_op_of(self->ops.next);

        if (reached) {
            psb_buffers_init(&op->buffers);
            Py_XINCREF(op->memory);
        }
        if (op->in_request)
            psb_request_abandon(psb_request_of(op), self->status);
        else
            psb_op_abandon(op, self->status);
    }
}

/* Forgets the requests of the core that threads still wait for although their
 * ops have begun again; they end together with the core's worker. */
static void worker_forget_left(psb_worker_t *self)
{
    psc_list_for_each(left, &self->left, psb_left_t, link) {
        psc_list_remove(&left->link);
        PyMem_Free(left);
    }
}

/* Advances completed operations, so that their results are not lost when the
 * core's worker is destroyed. */
static void worker_harvest_ops(psb_worker_t *self)
{
    psc_link_t *link = self->ops.next;

    while (link != &self->ops) {
        psb_op_t *op = psb_op_of(link);
        bool ended = op->in_request ? psb_request_advance(psb_request_of(op))
                                    : psb_op_advance(op) && !op->matched;

        link = ended ? self->ops.next : link->next;
    }
}

/* Waits until no thread is inside the core. These threads read `status` when
 * they are woken. A thread that has read `status` just before it changed, and
 * has not begun to wait yet, is woken by the next turn of this loop. */
static int worker_wait_for_leavers(psb_worker_t *self)
{
    static const struct timespec pause = {.tv_nsec = 1000000};

    while (self->n_inside) {
        self->api->wake(self->core);
        Py_BEGIN_ALLOW_THREADS nanosleep(&pause, NULL);
        Py_END_ALLOW_THREADS if (PyErr_CheckSignals() < 0) return -1;
    }
    return 0;
}

static void worker_forget(PyObject *held)
{
    PyObject *dictionary = psb_worker_held(held);

    if (dictionary)
        PyDict_Clear(dictionary);
    Py_XDECREF(dictionary);
}

PyObject *psb_worker_close(psb_worker_t *self, PyObject *destroy)
{
    PyObject *result;
    bool reached;

    if (self->core == NULL)
        Py_RETURN_FALSE;
    if (self->status == PSC_OK)
        psb_worker_drain(self);
    self->status = PSC_ERR_CLOSED;
    if (worker_wait_for_leavers(self) < 0)
        return NULL;
    if (self->core == NULL) /* another thread has closed the worker meanwhile */
        Py_RETURN_FALSE;
    worker_harvest_ops(self);
    result = PyObject_CallNoArgs(destroy);
    reached = !result || result == Py_True;
    self->core = NULL;
    worker_forget_left(self);
    worker_abandon_ops(self, reached);
    worker_forget(self->connections);
    worker_forget(self->handlers);
    return result;
}

PyObject *psb_worker_forked(psb_worker_t *self, PyObject *unused)
{
    (void)unused;
    self->status = PSC_ERR_FORKED;
    self->n_inside = 0;
    self->core = NULL;
    worker_forget_left(self);
    worker_abandon_ops(self, false);
    Py_RETURN_NONE;
}
