/* Groups of the core for a communicator, and what its collectives need while
 * they are under way. The op's `memory` is then a tuple: finish(), combine(),
 * the bytes of an element; and read() of a persistent one, or None. Of a
 * collective of plain arrays (plain.c) it has two items: the operand, and the
 * value that the call returns; of numbers three: their memory, and the name of
 * the operation. */
#include "connection.h"

enum { OF_FINISH, OF_COMBINE, OF_SIZE, OF_READ, OF_FUNCTIONS };
enum { PLAIN_OPERAND, PLAIN_VALUE, PLAIN_OP };

/* ---- peers ---- */

/* Asks the Python method _peer() for the connection to a rank and stores it. If
 * another thread has stored a connection meanwhile, keeps the stored one. */
static psb_connection_t *comm_make_peer(psb_communicator_t *self,
                                        Py_ssize_t rank)
{
    PyObject *peer = PyObject_CallMethod((PyObject *)self, "_peer", "n", rank);
    psb_connection_t *connection = (psb_connection_t *)peer;

    if (!peer)
        return NULL;
    if (!PyObject_TypeCheck(peer, self->worker->state->connection_type) ||
        !connection->worker || rank >= self->size) {
        psb_refuse(PyExc_TypeError, peer, "_peer(%zd) returned %%U", rank);
        Py_DECREF(peer);
        return NULL;
    }
    if (self->peers[rank])
        Py_DECREF(peer);
    else
        self->peers[rank] = connection;
    return self->peers[rank];
}

psb_connection_t *psb_communicator_peer(psb_communicator_t *self,
                                        Py_ssize_t rank)
{
    return self->peers[rank] ? self->peers[rank] : comm_make_peer(self, rank);
}

/* ---- functions of the program ---- */

/* Calls combine(in, inout), which combines elements, with two memoryviews.
 * Called by the core, in a thread that has called coll_call with the GIL. An
 * exception is kept by combine() itself for finish(). */
psc_status_t psb_group_combine(const void *in, void *inout, uint64_t n,
                               void *functions)
{
    Py_ssize_t nbytes =
        (Py_ssize_t)n * PyLong_AsSsize_t(PyTuple_GET_ITEM(functions, OF_SIZE));
    PyObject *from = PyMemoryView_FromMemory((char *)in, nbytes, PyBUF_READ);
    PyObject *to = PyMemoryView_FromMemory(inout, nbytes, PyBUF_WRITE);
    PyObject *done = NULL;
    psc_status_t status;

    if (from && to)
        done = PyObject_CallFunctionObjArgs(
            PyTuple_GET_ITEM(functions, OF_COMBINE), from, to, NULL);
    if (!done)
        PyErr_WriteUnraisable(functions);
    status = done == Py_True ? PSC_OK : PSC_ERR_CANCELLED;
    Py_XDECREF(done);
    Py_XDECREF(from);
    Py_XDECREF(to);
    return status;
}

int psb_group_read(PyObject *functions)
{
    PyObject *read = PyTuple_GET_ITEM(functions, OF_READ);
    PyObject *done =
        read == Py_None ? Py_NewRef(read) : PyObject_CallNoArgs(read);

    Py_XDECREF(done);
    return done ? 0 : -1;
}

/* ---- the group ---- */

int psb_group_begin(psb_communicator_t *self, Py_ssize_t rank,
                    const int32_t *members, const int32_t *modules, bool check)
{
    psc_group_args_t args = {.context = self->context,
                             .rank = (int)rank,
                             .size = (int)self->size,
                             .members = members,
                             .modules = modules,
                             .check = check};
    psc_status_t status;

    if (self->group)
        return 0;
    self->rank = (int)rank;
    status = self->worker->api->group_create(self->worker->core, &args,
                                             &self->group);
    if (status == PSC_OK)
        return 0;
    psb_raise(self->worker->state, (PyObject *)self, status, 0);
    return -1;
}

int psb_group_connect(psb_call_t *call)
{
    psb_communicator_t *self = call->communicator;
    int rank = call->op.worker->api->group_wanted(self->group);
    psb_connection_t *peer;
    psc_conn_t *conn;

    if (rank < 0) {
        PyErr_SetString(PyExc_RuntimeError, "the collective cannot start");
        return -1;
    }
    peer = psb_communicator_peer(self, rank);
    conn = peer ? psb_connection_enter(peer) : NULL;
    if (!conn)
        return -1;
    self->worker->api->group_connect(self->group, rank, conn);
    return 0;
}

/* ---- end ---- */

/* Returns the numbers of all ranks combined. */
static PyObject *group_number(PyObject *origin, PyObject *numbers,
                              PyObject *name)
{
    Py_ssize_t n = PyBytes_GET_SIZE(numbers) / (Py_ssize_t)sizeof(psb_number_t);
    psc_op_t op = PSC_OP_COUNT;
    PyObject *value;

    psb_op_named(name, &op);
    value = psb_numbers_combine(
        (const psb_number_t *)(void *)PyBytes_AS_STRING(numbers), n, op);
    if (value || PyErr_Occurred())
        return value;
    return PyObject_CallMethod(origin, "_folded", "OO", name, numbers);
}

static PyObject *group_plain_value(psb_op_t *op, const psc_result_t *result)
{
    PyObject *value = PyTuple_GET_ITEM(op->memory, PLAIN_VALUE);
    PyObject *error;

    if (result->status == PSC_OK && PyTuple_GET_SIZE(op->memory) > PLAIN_OP)
        return group_number(op->origin, value,
                            PyTuple_GET_ITEM(op->memory, PLAIN_OP));
    if (result->status == PSC_OK)
        return Py_NewRef(value);
    if (result->status == PSC_ERR_UNSUPPORTED && result->rank < 0)
        Py_RETURN_NOTIMPLEMENTED;
    error = PyObject_CallMethod(
        op->origin, "_failed", "iiKi", (int)op->tag, result->status,
        (unsigned long long)result->nbytes, result->rank);
    if (error)
        PyErr_SetObject((PyObject *)Py_TYPE(error), error);
    Py_XDECREF(error);
    return NULL;
}

PyObject *psb_group_value(psb_op_t *op)
{
    psc_result_t result = *psb_op_result(op);

    if (!op->memory)
        Py_RETURN_NONE;
    if (PyTuple_GET_SIZE(op->memory) != OF_FUNCTIONS)
        return group_plain_value(op, &result);
    return PyObject_CallFunction(
        PyTuple_GET_ITEM(op->memory, OF_FINISH), "iKi", result.status,
        (unsigned long long)result.nbytes, result.rank);
}

void psb_group_end(psb_communicator_t *self)
{
    self->plain = 0;
    if (self->group && self->worker && self->worker->status == PSC_OK)
        self->worker->api->group_destroy(self->group);
    self->group = NULL;
}
