/* Describes awaited operations in words, for messages of errors; the words are
 * made in pscompy/api/awaited.py. */
#include "operation.h"

/* Returns the name of a kind of operation. The switch has no default, so that
 * the compiler reports a missing kind. */
static const char *kind_name(const psb_op_t *op)
{
    static const char *const collectives[PSC_COLL_COUNT] = {
        "barrier",        "bcast",  "reduce",  "allreduce", "scan",    "exscan",
        "reduce_scatter", "gather", "scatter", "allgather", "alltoall"};

    switch ((psb_kind_t)op->kind) {
    case PSB_SEND:
    case PSB_OFFER:
        return "send";
    case PSB_RECV_INTO:
    case PSB_RECV_NEW:
    case PSB_RECV_ROOM:
    case PSB_RECV_STATUS:
    case PSB_RECV_VIEW:
    case PSB_RECV_MEMORY:
    case PSB_FETCH:
        return "receive";
    case PSB_PROBE:
    case PSB_MATCH:
        return "probe";
    case PSB_PUT:
        return "put";
    case PSB_GET:
        return "get";
    case PSB_AM:
        return "am_send";
    case PSB_COLLECTIVE:
        return collectives[op->tag];
    case PSB_EVENT:
    case PSB_KINDS:
        break;
    }
    return "event";
}

static PyObject *origin_or_none(const psb_op_t *op)
{
    return op->origin ? op->origin : Py_None;
}

PyObject *psb_op_operation(const psb_op_t *op)
{
    PyObject *describe = psb_import_once(&op->worker->state->operation,
                                         "pscompy.api.awaited", "operation");

    return describe ? PyObject_CallFunction(describe, "sOIi", kind_name(op),
                                            origin_or_none(op), op->context,
                                            (int)op->tag)
                    : NULL;
}

PyObject *psb_raise_timeout(const psb_op_t *op, PyObject *timeout,
                            PyObject *request)
{
    PyObject *make = psb_import_once(&op->worker->state->timed_out,
                                     "pscompy.api.awaited", "timed_out");
    PyObject *raised =
        make ? PyObject_CallFunction(make, "OsOIiOO", op->worker, kind_name(op),
                                     origin_or_none(op), op->context,
                                     (int)op->tag, timeout ? timeout : Py_None,
                                     request ? request : Py_None)
             : NULL;

    if (raised)
        PyErr_SetObject((PyObject *)Py_TYPE(raised), raised);
    Py_XDECREF(raised);
    return NULL;
}
