/* The Connection object: its fields, and functions for operations on it. Its
 * methods are in connection_type.c. */
#pragma once

#include "operation.h"

struct psb_connection {
    PyObject_HEAD psb_worker_t *worker; /* NULL before _bind() */
    psc_conn_t *core;
    PyObject *keep; /* Python object that owns `core`, or NULL */
    uint32_t context;
    bool closed; /* psb_connection_unbind() was called */
    /* Worker.release() was called; psb_worker_let_go() drops the connection
     * after its last message */
    bool leaving;
    /* the module pickle is enough to send objects that have no long buffers */
    bool pickles;
    /* the last object that was sent had buffers that are not in its pickle */
    bool apart;
    /* the object of the class Objects (pscompy.parcel) that sends objects on
     * this connection; NULL before the first object */
    PyObject *objects;
    /* the connection to the same peer, with a context of its own, on which
     * objects are sent and received */
    struct psb_connection *heads;
};

/* Directs the call to this connection. Returns -1 with an exception if _bind()
 * was not called. */
int psb_connection_address(psb_connection_t *self, psb_call_t *call);
/* psb_connection_enter() of a connection that is lazy or closed. */
PSB_COLD psc_conn_t *psb_connection_open(psb_connection_t *self);

/* Returns the core's connection, and begins to open it if it is lazy (opened at
 * its first use). Returns NULL with an exception if it cannot be used. */
static inline psc_conn_t *psb_connection_enter(psb_connection_t *self)
{
    return PSB_LIKELY(self->core && !self->closed &&
                      self->worker->api->conn_state(self->core) !=
                          PSC_CONN_LAZY)
               ? self->core
               : psb_connection_open(self);
}

/* The connection's communicator is closed: let later calls on the connection
 * raise Closed. */
void psb_connection_unbind(psb_connection_t *self);

/* Returns the value of Status.source: a rank in a World, else the Connection,
 * or None if the Connection is not in use any more. */
PyObject *psb_worker_source(psb_worker_t *worker, uint64_t id, int rank);
/* Returns a new reference to the connection in use with this id, or NULL; the
 * id may be of a type that raises an exception. */
PyObject *psb_worker_connection(psb_worker_t *self, PyObject *id);
/* Drops the worker's reference to a connection that is not in use any more,
 * unless one of the connection's messages is still to be delivered. */
int psb_worker_let_go(psb_worker_t *worker, psb_connection_t *connection);

/* ---- group.c ---- */

typedef struct psb_communicator {
    PyObject_HEAD psb_worker_t *worker; /* NULL before the method _bind() */
    uint32_t context;
    bool renumbers; /* the method _renumber() was called */
    bool closed; /* the method _unbind() was called */
    Py_ssize_t size;
    /* number of ranks that a call can name: `size`, or 0 if closed */
    Py_ssize_t n_open;
    /* the connection to each rank; NULL if it was not used yet */
    psb_connection_t **peers;
    psc_group_t *group; /* NULL before the first collective */
    int rank; /* of this process; valid if there is a group */
    /* the collectives that _plain() does, as bits: _collective() was called for
     * them before, and nothing forces an algorithm */
    uint32_t plain;
} psb_communicator_t;

/* Returns the connection to a rank of the communicator, a borrowed reference;
 * NULL with an exception if it cannot be made. */
psb_connection_t *psb_communicator_peer(psb_communicator_t *self,
                                        Py_ssize_t rank);
/* Makes the core's group at the first collective; members, modules, check: see
 * psc_group_args_t. */
int psb_group_begin(psb_communicator_t *self, Py_ssize_t rank,
                    const int32_t *members, const int32_t *modules, bool check);
/* The communicator ends. Once the worker ends, in another thread perhaps, the
 * core frees its groups itself. */
void psb_group_end(psb_communicator_t *self);
/* Opens the connection that the collective's start has lacked. Returns -1 with
 * an exception if it cannot. */
PSB_COLD int psb_group_connect(psb_call_t *call);
/* Calls the function of the program that combines elements: a psc_combine_t,
 * whose argument is the memory of an op of kind PSB_COLLECTIVE. */
psc_status_t psb_group_combine(const void *in, void *inout, uint64_t n,
                               void *functions);
/* Has the operand of a persistent collective read before a start, by its
 * functions' read(). */
int psb_group_read(PyObject *functions);
/* Returns what finish() makes of the result of a collective. For a collective
 * of plain arrays that the core does not do, returns NotImplemented. */
PSB_COLD PyObject *psb_group_value(psb_op_t *op);

/* ---- collective.c ---- */

PyObject *psb_collective(psb_communicator_t *self, PyObject *const *args,
                         Py_ssize_t n_args, PyObject *kwnames);
PyObject *psb_collective_explain(psb_communicator_t *self,
                                 PyObject *const *args, Py_ssize_t n_args);
PyObject *psb_collective_differs(psb_communicator_t *self, PyObject *unused);

/* ---- numbers.c ---- */

/* Finds an operation by name. Returns false if there is none. */
bool psb_op_named(PyObject *name, psc_op_t *op_p);

/* A number as it travels. */
typedef struct psb_number {
    int64_t kind;
    union {
        int64_t i;
        double f;
        double parts[2];
    } value;
} psb_number_t;

/* Returns false, for a number that this file does not combine. */
bool psb_number_pack(psb_number_t *packed, PyObject *number);
/* Returns the numbers combined in their order. Returns NULL, mostly without an
 * exception, if that is not done here. */
PyObject *psb_numbers_combine(const psb_number_t *numbers, Py_ssize_t n,
                              psc_op_t op);

/* ---- plain.c ---- */

PyObject *psb_collective_plain(psb_communicator_t *self, PyObject *const *args,
                               Py_ssize_t n_args);

/* ---- access.c ---- */

/* Methods of Connection: put, get, _offer, _fetch, am_send. */

PyObject *psb_connection_put(psb_connection_t *self, PyObject *const *args,
                             Py_ssize_t n_args, PyObject *kwnames);
PyObject *psb_connection_get(psb_connection_t *self, PyObject *const *args,
                             Py_ssize_t n_args, PyObject *kwnames);
PyObject *psb_connection_offer(psb_connection_t *self, PyObject *buffers);
PyObject *psb_connection_fetch(psb_connection_t *self, PyObject *const *args,
                               Py_ssize_t n_args, PyObject *kwnames);
PyObject *psb_connection_am_send(psb_connection_t *self, PyObject *const *args,
                                 Py_ssize_t n_args, PyObject *kwnames);

/* ---- object.c ---- */

/* Methods of Connection that send and receive objects. */

/* Runs the method _set_objects(objects, heads, pickles) of Connection, which
 * sets the fields of the same names in psb_connection_t. */
int psb_object_bind(psb_connection_t *self, PyObject *const *args,
                    Py_ssize_t n_args);
PyObject *psb_object_send(psb_connection_t *self, PyObject *const *args,
                          Py_ssize_t n_args, PyObject *kwnames);
PyObject *psb_object_recv(psb_connection_t *self, PyObject *const *args,
                          Py_ssize_t n_args, PyObject *kwnames);
