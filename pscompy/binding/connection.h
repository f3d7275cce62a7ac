/* The Connection object: its fields, and what operations need of it. Its
 * methods are in connection_type.c. */
#pragma once

#include "call.h"

struct psb_connection {
    PyObject_HEAD psb_worker_t *worker; /* NULL: not bound */
    psc_conn_t *core;
    PyObject *keep;    /* the owner of `core`, or NULL */
    uint32_t context;
    bool leaving;      /* not in use any more; psb_worker_let_go() drops it
                          after its last message */
    bool pickles;      /* pickle is enough for objects without long buffers */
    bool apart; /* the object sent last had buffers besides its pickle */
    /* the Objects of pscompy.parcel for this connection, NULL before the first
     * object */
    PyObject *objects;
    struct psb_connection *heads; /* the connection that carries objects */
};

/* Directs the call to this connection. Returns -1 if it is not bound. */
int psb_connection_address(psb_connection_t *self, psb_call_t *call);
/* Returns the core's connection, and begins to open a lazy one; NULL with an
 * exception. */
psc_conn_t *psb_connection_enter(psb_connection_t *self);

/* Returns the value of Status.source: a rank in a World, else the Connection,
 * or None if that is not in use any more. */
PyObject *psb_worker_source(psb_worker_t *worker, uint64_t id, int rank);
/* Drops the worker's reference to a connection that is not in use any more,
 * unless one of its messages is still to be delivered. */
int psb_worker_let_go(psb_worker_t *worker, psb_connection_t *connection);
