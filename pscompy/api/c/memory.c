/* The type Memory: memory that the core lends. It is a block of a worker's
 * pool, a view of a message in its sender's memory, or heap memory if the pool
 * is exhausted. A Memory may outlive its worker, and any thread may free it
 * without waiting. */
#include "memory.h"

typedef struct psb_memory {
    PyObject_HEAD const psc_api_t *api;
    psc_block_t *block; /* at most one of block, view and plain is set */
    psc_view_t *view;
    void *plain;
    PyObject *session; /* kept alive by its memory; NULL without a session */
    void *base;
    Py_ssize_t nbytes;
    bool readonly;
} psb_memory_t;

/* Returns NULL with an exception without memory, or if the worker has ended:
 * the collector may have run a finalizer that has closed it. */
static psb_memory_t *memory_new(psb_worker_t *worker, bool readonly)
{
    PyTypeObject *type = worker->state->memory_type;
    psb_memory_t *self = (psb_memory_t *)type->tp_alloc(type, 0);

    if (!self)
        return NULL;
    self->api = worker->api;
    self->session = psb_worker_held(worker->owner);
    self->readonly = readonly;
    if (PSB_UNLIKELY(worker->status != PSC_OK)) {
        psb_raise(worker->state, NULL, worker->status, 0);
        Py_CLEAR(self);
    }
    return self;
}

static bool memory_take_plain(psb_memory_t *self, size_t nbytes)
{
    self->plain = self->base = PyMem_RawMalloc(nbytes ? nbytes : 1);
    return self->plain;
}

static PyObject *memory_finish(psb_memory_t *self, psc_status_t status,
                               size_t nbytes)
{
    if (status == PSC_OK) {
        self->base = self->block->base;
    } else if (!memory_take_plain(self, nbytes)) {
        Py_DECREF(self);
        return PyErr_Format(PyExc_MemoryError, "%zu bytes cannot be allocated",
                            nbytes);
    }
    self->nbytes = (Py_ssize_t)nbytes;
    return (PyObject *)self;
}

PyObject *psb_memory_alloc(psb_worker_t *worker, size_t nbytes, uint32_t flags)
{
    psb_memory_t *self = memory_new(worker, false);
    psc_status_t status;

    if (!self)
        return NULL;
    worker->n_inside++;
    Py_BEGIN_ALLOW_THREADS status =
        worker->api->block_alloc(worker->core, nbytes, flags, &self->block);
    Py_END_ALLOW_THREADS worker->n_inside--;
    return memory_finish(self, status, nbytes);
}

PyObject *psb_memory_receive(psb_worker_t *worker, size_t nbytes, bool readonly)
{
    psb_memory_t *self = memory_new(worker, readonly);
    psc_status_t status;

    if (!self)
        return NULL;
    status = worker->api->block_alloc(
        worker->core, nbytes, PSC_FLAG_TRY | PSC_FLAG_PRIVATE, &self->block);
    return memory_finish(self, status, nbytes);
}

PyObject *psb_memory_empty(psb_worker_t *worker)
{
    return (PyObject *)memory_new(worker, true);
}

bool psb_memory_show(PyObject *memory, psc_request_t *matched)
{
    psb_memory_t *self = (psb_memory_t *)memory;

    if (self->api->recv_view(matched, &self->view) != PSC_OK)
        return false;
    self->base = (void *)(uintptr_t)self->view->base;
    self->nbytes = (Py_ssize_t)self->view->nbytes;
    return true;
}

void *psb_memory_base(PyObject *object, Py_ssize_t *nbytes_p)
{
    psb_memory_t *self = (psb_memory_t *)object;

    *nbytes_p = self->nbytes;
    return self->base;
}

static int memory_getbuffer(psb_memory_t *self, Py_buffer *view, int flags)
{
    return PyBuffer_FillInfo(view, (PyObject *)self, self->base, self->nbytes,
                             self->readonly, flags);
}

static int memory_traverse(psb_memory_t *self, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(self->session);
    return 0;
}

static int memory_clear(psb_memory_t *self)
{
    Py_CLEAR(self->session);
    return 0;
}

static void memory_dealloc(psb_memory_t *self)
{
    PyTypeObject *type = Py_TYPE(self);

    PyObject_GC_UnTrack(self);
    if (self->block)
        self->api->block_free(self->block);
    if (self->view)
        self->api->view_free(self->view);
    PyMem_RawFree(self->plain);
    memory_clear(self);
    type->tp_free(self);
    Py_DECREF(type);
}

static PyType_Slot memory_slots[] = {
    {Py_tp_doc, "Bytes of a session's pool, or of a message that was lent."},
    {Py_tp_dealloc, memory_dealloc},
    {Py_tp_traverse, memory_traverse},
    {Py_tp_clear, memory_clear},
    {Py_bf_getbuffer, memory_getbuffer},
    {0, NULL}};

PyType_Spec psb_memory_spec = {
    .name = "pscompy.api.c._binding.Memory",
    .basicsize = sizeof(psb_memory_t),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC |
             Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = memory_slots,
};
