/* The type Sleeper: a descriptor for a thread that sleeps outside the core, for
 * example in an event loop. core/api.h says when the core makes the descriptor
 * readable. */
#include "request.h"

typedef struct psb_sleeper {
    PyObject_HEAD psb_worker_t *worker;
    /* the core's sleeper, released with this object, which may outlive the
     * worker */
    psc_sleeper_t *core;
} psb_sleeper_t;

static void sleeper_release(const psb_worker_t *worker, psc_sleeper_t *core)
{
    worker->api->sleeper_release(worker->status == PSC_OK ? worker->core : NULL,
                                 core);
}

PyObject *psb_sleeper_create(psb_worker_t *worker)
{
    PyTypeObject *type = worker->state->sleeper_type;
    psc_sleeper_t *core = NULL;
    psb_sleeper_t *self;
    psc_status_t status;

    worker->n_inside++;
    Py_BEGIN_ALLOW_THREADS status =
        worker->api->sleeper_create(worker->core, &core);
    Py_END_ALLOW_THREADS worker->n_inside--;
    if (status == PSC_ERR_NO_MEMORY)
        return PyErr_SetFromErrno(PyExc_OSError);
    if (status != PSC_OK)
        return psb_raise(worker->state, NULL, status, 0);
    self = (psb_sleeper_t *)type->tp_alloc(type, 0);
    if (!self) {
        sleeper_release(worker, core);
        return NULL;
    }
    Py_INCREF(worker);
    self->worker = worker;
    self->core = core;
    return (PyObject *)self;
}

static void sleeper_dealloc(psb_sleeper_t *self)
{
    PyTypeObject *type = Py_TYPE(self);

    PyObject_GC_UnTrack(self);
    sleeper_release(self->worker, self->core);
    Py_CLEAR(self->worker);
    type->tp_free(self);
    Py_DECREF(type);
}

static int sleeper_traverse(psb_sleeper_t *self, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(self->worker);
    return 0;
}

static PyObject *sleeper_fileno(psb_sleeper_t *self, PyObject *unused)
{
    (void)unused;
    return PyLong_FromLong(self->worker->api->sleeper_descriptor(self->core));
}

static PyObject *sleeper_arm(psb_sleeper_t *self, PyObject *unused)
{
    psb_worker_t *worker = self->worker;
    psc_status_t status;

    (void)unused;
    if (worker->status != PSC_OK)
        return psb_raise(worker->state, NULL, worker->status, 0);
    worker->n_inside++;
    Py_BEGIN_ALLOW_THREADS status = worker->api->sleeper_arm(self->core);
    Py_END_ALLOW_THREADS worker->n_inside--;
    return PyBool_FromLong(status == PSC_OK);
}

static PyObject *sleeper_progress(psb_sleeper_t *self, PyObject *unused)
{
    psb_worker_t *worker = self->worker;
    unsigned events;

    (void)unused;
    if (psb_worker_enter(worker, NULL) < 0)
        return NULL;
    worker->n_inside++;
    Py_BEGIN_ALLOW_THREADS events = worker->api->sleeper_progress(self->core);
    Py_END_ALLOW_THREADS worker->n_inside--;
    psb_worker_drain(worker);
    return PyLong_FromUnsignedLong(events);
}

static PyObject *sleeper_wait(psb_sleeper_t *self, PyObject *const *args,
                              Py_ssize_t n_args, PyObject *kwnames)
{
    static const psb_signature_t signature = {
        "wait", 1, 2, {"request", "timeout"}};
    PyTypeObject *type = self->worker->state->request_type;
    int64_t deadline = PSC_FOREVER;
    psb_request_t *request;
    PyObject *given[2];

    if (psb_args_parse(&signature, args, n_args, kwnames, given) < 0 ||
        psb_arg_deadline(given[1], &deadline) < 0)
        return NULL;
    request = (psb_request_t *)given[0];
    if (!PyObject_TypeCheck(given[0], type) ||
        request->op.worker != self->worker) {
        psb_refuse(PyExc_TypeError, given[0],
                   "a Request of this worker, not %%U");
        return NULL;
    }
    switch (psb_request_wait_in_background(request, self->core, deadline)) {
    case PSB_DONE:
        return psb_request_result(request);
    case PSB_TIMEOUT:
        return psb_raise_timeout(&request->op, given[1], given[0]);
    default:
        return NULL;
    }
}

static PyMethodDef sleeper_methods[] = {
    {"fileno", PSB_FUNCTION(sleeper_fileno), METH_NOARGS,
     "fileno($self)\n--\n\n"
     "The descriptor to sleep on after `arm` has returned True. It stays\n"
     "readable once the worker has ended."},
    {"arm", PSB_FUNCTION(sleeper_arm), METH_NOARGS,
     "arm($self)\n--\n\n"
     "Returns True if the thread may sleep on the descriptor. Returns False\n"
     "if something has happened since the last progress(): call progress()\n"
     "and check the requests."},
    {"progress", PSB_FUNCTION(sleeper_progress), METH_NOARGS,
     "progress($self)\n--\n\n"
     "Like Worker.progress, for the thread that sleeps on this descriptor:\n"
     "this pass does not wake it."},
    {"wait", PSB_FUNCTION(sleeper_wait), PSB_FAST,
     "wait($self, request, timeout=None)\n--\n\n"
     "Like request.wait(timeout), for a thread that makes background progress "
     "for the\n"
     "program: it makes progress and runs call-backs while no other thread\n"
     "waits."},
    {NULL, NULL, 0, NULL}};

static PyType_Slot sleeper_slots[] = {
    {Py_tp_doc,
     "A descriptor that one thread sleeps on; see Worker.sleeper()."},
    {Py_tp_dealloc, sleeper_dealloc},
    {Py_tp_traverse, sleeper_traverse},
    {Py_tp_methods, sleeper_methods},
    {0, NULL}};

PyType_Spec psb_sleeper_spec = {
    .name = "pscompy.api.c._binding.Sleeper",
    .basicsize = sizeof(psb_sleeper_t),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC |
             Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = sleeper_slots,
};
