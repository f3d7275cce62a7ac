/* The core's connection to which an operation goes, and the table of
 * connections in use. */
#include "connection.h"

/* ---- the target of an operation ---- */

int psb_connection_address(psb_connection_t *self, psb_call_t *call)
{
    if (PSB_UNLIKELY(!self->worker)) {
        PyErr_SetString(PyExc_TypeError,
                        "this connection belongs to no session: connections "
                        "come from connect(), accept() or a World");
        return -1;
    }
    call->connection = self;
    call->op.worker = self->worker;
    call->op.origin = (PyObject *)self;
    call->op.context = self->context;
    return 0;
}

psc_conn_t *psb_connection_open(psb_connection_t *self)
{
    PyObject *begun;

    if (!self->core || self->closed) {
        psb_raise(self->worker->state, (PyObject *)self, PSC_ERR_CLOSED, 0);
        return NULL;
    }
    if (self->worker->api->conn_call(self->core, PSC_FLAG_TRY) != PSC_OK) {
        begun = PyObject_CallMethod((PyObject *)self, "_begin_open", NULL);
        if (!begun)
            return NULL;
        Py_DECREF(begun);
    }
    return self->core;
}

void psb_connection_unbind(psb_connection_t *self)
{
    self->closed = true;
    if (self->heads)
        self->heads->closed = true;
}

/* ---- connections in use ---- */

PyObject *psb_worker_source(psb_worker_t *self, uint64_t id, int rank)
{
    PyObject *key, *connection;

    if (rank >= 0)
        return PyLong_FromLong(rank);
    key = PyLong_FromUnsignedLongLong(id);
    if (!key)
        return NULL;
    connection = psb_worker_connection(self, key);
    Py_DECREF(key);
    if (!connection && PyErr_Occurred())
        return NULL;
    return connection ? connection : Py_NewRef(Py_None);
}

PyObject *psb_worker_connection(psb_worker_t *self, PyObject *id)
{
    PyObject *connections = psb_worker_held(self->connections), *found;

    if (!connections)
        return NULL;
    found = Py_XNewRef(PyDict_GetItemWithError(connections, id));
    Py_DECREF(connections);
    return found;
}

int psb_worker_let_go(psb_worker_t *self, psb_connection_t *connection)
{
    PyObject *id, *connections;
    int failed;

    if (self->api->conn_messages(connection->core) > 0 ||
        !(connections = psb_worker_held(self->connections)))
        return 0;
    id = PyLong_FromUnsignedLongLong(self->api->conn_id(connection->core));
    failed = !id || PyDict_DelItem(connections, id) < 0;
    Py_XDECREF(id);
    Py_DECREF(connections);
    return failed ? -1 : 0;
}
