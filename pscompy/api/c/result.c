/* Converts the result of a completed operation to Python: a Status, memory, or
 * an error. */
#include "memory.h"
#include "connection.h"

/* Returns the value of Status.source. For a receive from one connection it is
 * that Connection, even if the Connection is not in use any more. */
static PyObject *value_source(psb_op_t *op, const psc_result_t *result)
{
    PyTypeObject *type = op->worker->state->connection_type;

    if (result->rank >= 0 || !op->origin ||
        !PyObject_TypeCheck(op->origin, type))
        return psb_worker_source(op->worker, result->source, result->rank);
    return Py_NewRef(op->origin);
}

/* Takes a copy of the result, because making objects may run Python code, which
 * may start the operation again. */
static PyObject *value_make_status(psb_op_t *op, psc_result_t result)
{
    PyTypeObject *type = op->worker->state->status_type;
    PyObject *source = value_source(op, &result);
    PyObject *tag = PyLong_FromLong(result.tag);
    PyObject *nbytes = PyLong_FromUnsignedLongLong(result.nbytes);
    PyObject *status = type->tp_alloc(type, 3);

    if (!source || !tag || !nbytes || !status) {
        Py_XDECREF(source);
        Py_XDECREF(tag);
        Py_XDECREF(nbytes);
        Py_XDECREF(status);
        return NULL;
    }
    PyTuple_SET_ITEM(status, 0, source);
    PyTuple_SET_ITEM(status, 1, tag);
    PyTuple_SET_ITEM(status, 2, nbytes);
    return status;
}

static bool value_like_last(const psb_worker_t *worker,
                            const psc_result_t *result, int rank)
{
    const psc_result_t *last = &worker->status_result;

    return worker->status_kept && last->rank == rank &&
           last->tag == result->tag && last->nbytes == result->nbytes;
}

/* Makes a Status with the source `rank`, and keeps it for messages that
 * follow. */
static PyObject *value_new_status(psb_op_t *op, int rank)
{
    psb_worker_t *worker = op->worker;
    psc_result_t result = *psb_op_result(op);
    PyObject *status;

    result.rank = rank;
    status = value_make_status(op, result);
    if (!status)
        return NULL;
    worker->status_result = result;
    Py_XSETREF(worker->status_kept, Py_NewRef(status));
    return status;
}

/* In a World the worker keeps the last Status, and messages with equal results
 * share it. A Status outside a World is not kept, because it would keep the
 * Connection in Status.source alive. */
PyObject *psb_op_status(psb_op_t *op)
{
    psb_worker_t *worker = op->worker;
    const psc_result_t *result = psb_op_result(op);
    int rank = result->rank;

    if (rank < 0)
        return value_make_status(op, *result);
    if (worker->numberings.n)
        rank = psb_worker_rank(worker, op->context, rank);
    return value_like_last(worker, result, rank)
               ? Py_NewRef(worker->status_kept)
               : value_new_status(op, rank);
}

/* Returns the bytearray or Memory into which the message was received. */
static PyObject *value_fresh(psb_op_t *op)
{
    const char *bytes = NULL;
    Py_ssize_t nbytes = 0; /* an empty message needs no memory */
    PyObject *fresh;

    if (op->memory && !op->in_room)
        return Py_NewRef(op->memory);
    if (op->in_room) {
        psb_room_fill(op->memory, psb_op_result(op)->nbytes);
        bytes = psb_room_bytes(op->memory, &nbytes);
    }
    fresh = PyByteArray_FromStringAndSize(bytes, nbytes);
    if (fresh)
        psb_op_set_memory(op, Py_NewRef(fresh));
    return fresh;
}

/* Returns the Room (memory.h) that holds a short message. The caller gives the
 * Room back to the worker. */
static PyObject *value_room(psb_op_t *op)
{
    PyObject *room = op->memory;

    if (!op->in_room)
        return value_fresh(op);
    psb_room_fill(room, psb_op_result(op)->nbytes);
    op->memory = NULL;
    op->in_room = false;
    return room;
}

PSB_COLD static PyObject *value_fresh_and_status(psb_op_t *op)
{
    PyObject *status = psb_op_status(op);
    PyObject *fresh = status ? value_fresh(op) : NULL;
    PyObject *pair = fresh ? PyTuple_Pack(2, fresh, status) : NULL;

    Py_XDECREF(status);
    Py_XDECREF(fresh);
    return pair;
}

/* Of a collective, or of an operation that has failed. */
PSB_COLD static PyObject *value_apart(psb_op_t *op)
{
    const psc_result_t *result = psb_op_result(op);

    if (op->kind == PSB_COLLECTIVE)
        return psb_group_value(op);
    return psb_raise(op->worker->state, op->origin, result->status,
                     result->nbytes);
}

PyObject *psb_op_value(psb_op_t *op)
{
    if (PSB_UNLIKELY(op->kind == PSB_COLLECTIVE ||
                     psb_op_result(op)->status != PSC_OK))
        return value_apart(op);
    switch (op->kind) {
    case PSB_RECV_INTO:
    case PSB_PROBE:
        return psb_op_status(op);
    case PSB_RECV_NEW:
    case PSB_RECV_MEMORY:
    case PSB_FETCH:
        return value_fresh(op);
    case PSB_RECV_ROOM:
        return value_room(op);
    case PSB_RECV_VIEW:
        return psb_array_view(op->memory);
    case PSB_RECV_STATUS:
        return value_fresh_and_status(op);
    default:
        Py_RETURN_NONE;
    }
}
