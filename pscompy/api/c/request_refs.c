/* The references of a Request, for the garbage collector, and its end. */
#include "request.h"

int psb_request_traverse(PyObject *object, visitproc visit, void *arg)
{
    psb_request_t *self = (psb_request_t *)object;

    Py_VISIT(Py_TYPE(self));
    Py_VISIT(self->op.worker);
    Py_VISIT(self->op.origin);
    Py_VISIT(self->op.memory);
    Py_VISIT(self->outcome);
    Py_VISIT(self->either.callbacks); /* or the status */
    return psb_buffers_traverse(&self->op.buffers, visit, arg);
}

/* Clears the references that may form cycles, but not op.worker, op.memory and
 * the buffers, which psb_request_dealloc() needs. */
int psb_request_clear(PyObject *object)
{
    psb_request_t *self = (psb_request_t *)object;

    Py_CLEAR(self->op.origin);
    Py_CLEAR(self->outcome);
    Py_CLEAR(self->either.callbacks); /* or the status */
    return 0;
}

void psb_request_dealloc(PyObject *object)
{
    psb_request_t *self = (psb_request_t *)object;
    PyTypeObject *type = Py_TYPE(self);

    if (psb_request_survives(self))
        return;
    PyObject_GC_UnTrack(self);
    psb_op_clear(&self->op);
    psb_request_clear(object);
    Py_CLEAR(self->op.worker);
    type->tp_free(self);
    Py_DECREF(type);
}
