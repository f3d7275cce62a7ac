/* A call: what the program asked a method to do, filled from the method's
 * arguments, before an operation is made of it. */
#pragma once

#include "args.h"
#include "worker.h"

typedef enum psb_kind {
    PSB_SEND,
    PSB_RECV_INTO,   /* returns a Status */
    PSB_RECV_NEW,    /* returns a bytearray */
    /* returns its Room (recv_buffer.h), or a bytearray for a long message */
    PSB_RECV_ROOM,
    PSB_RECV_STATUS, /* returns (bytearray, Status) */
    PSB_RECV_VIEW, /* returns a read-only array */
    /* returns a Memory, writable unless the message was lent */
    PSB_RECV_MEMORY,
    PSB_PROBE, /* returns a Status */
    PSB_MATCH, /* returns a Message */
    PSB_PUT,
    PSB_GET,
    PSB_OFFER,
    PSB_FETCH, /* returns the list of buffers */
    PSB_AM,
    PSB_EVENT, /* completed by _complete() or _fail() */
    PSB_KINDS
} psb_kind_t;

typedef struct psb_connection psb_connection_t;

/* What a method was asked to do. References are borrowed. */
typedef struct psb_call {
    psb_kind_t kind;
    bool post; /* return a Request */
    bool lend; /* send: lend the sender's pages */
    PyTypeObject *type; /* type of the new request; NULL for Request */
    psb_worker_t *worker;
    PyObject *origin; /* the object whose _exception() makes the errors */
    psb_connection_t *connection; /* NULL: a receive from any source */
    psc_conn_t *conn; /* the core's connection, set by psb_call_enter */
    uint32_t context;
    int32_t tag;
    PyObject *buf; /* NULL: none */
    int64_t deadline;
    PyObject *timeout; /* as the program gave it, if there is a deadline */
    uint32_t id; /* active message: selects the handler */
    uint64_t offset; /* of a put or a get */
    const Py_buffer *blob; /* active message: the header; put and get:
                              the remote key; fetch: the offer */
    PyObject *keep; /* active message: owner of the header's memory;
                       fetch: the list of buffers */
    uint8_t *offer; /* offer: memory for the packed offer, and its length */
    size_t *offer_len;
    /* type and shape of a view; NULL: an array of bytes */
    PyObject *dtype, *shape;
} psb_call_t;

/* A method of Connection or Communicator. `roles` has a letter per argument,
 * for which call.c has the name: b buffer, D or S the rank of the peer (dest,
 * source), t tag, d deadline, l lend, y dtype, s shape. */
typedef struct psb_verb {
    const char *name;
    const char *roles;
    int n, required; /* arguments */
    psb_kind_t kind; /* PSB_RECV_INTO becomes RECV_NEW without a buffer */
    bool post;
} psb_verb_t;

/* Defines the method `name` of a type. Its <prefix>_run() parses the arguments,
 * and calls `run`. */
#define PSB_VERB(prefix, type, name, run, roles, required, kind, post)         \
    static PyObject *prefix##_##name(type *self, PyObject *const *args,        \
                                     Py_ssize_t n_args, PyObject *kwnames)     \
    {                                                                          \
        static const psb_verb_t verb = {#name,    roles, sizeof(roles) - 1,    \
                                        required, kind,  post};                \
                                                                               \
        return prefix##_run(self, &verb, run, args, n_args, kwnames);          \
    }

/* Fills all fields of `call` except worker, origin and context. *peer_p gets
 * the argument of role D or S, or NULL. */
int psb_verb_parse(const psb_verb_t *verb, PyObject *const *args,
                   Py_ssize_t n_args, PyObject *kwnames, psb_call_t *call,
                   PyObject **peer_p);
/* Makes the call a receive into buf, or into new memory if buf is None or
 * NULL. */
void psb_call_receive(psb_call_t *call, PyObject *buf);
