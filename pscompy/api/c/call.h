/* A psb_call_t: what the program asked a method to do. It is filled from the
 * method's arguments, and handed to the core. */
#pragma once

#include "args.h"
#include "op.h"

typedef struct psb_connection psb_connection_t;

/* A call: an operation, and what only its start needs. The call borrows its
 * references until psb_call_take(); then the op has references to its
 * buffers. */
typedef struct psb_call {
    psb_op_t op; /* moves into a Request if the operation outlives the call */
    bool post;   /* the method returns a Request at once */
    /* of a send: the message is lent, so that the receiver reads it in the
     * sender's memory */
    bool lend;
    /* the subclass of Request to make; NULL for Request itself */
    PyTypeObject *type;
    psb_connection_t *connection; /* NULL for a receive from any source */
    /* the core's connection of `connection`, set by psb_call_enter */
    psc_conn_t *conn;
    PyObject *buf; /* the argument of the program; NULL: none */
    int64_t deadline;
    /* the timeout as the program gave it, if there is a deadline */
    PyObject *timeout;
    /* of an active message: number of the handler that is to run */
    uint32_t id;
    /* of a put or a get: offset in the peer's region of memory */
    uint64_t offset;
    const Py_buffer *blob; /* active message: the header; put and get:
                              the remote key; fetch: the offer */
    /* of an offer: memory for the packed offer that the peer needs, and where
     * the length of this packed offer is stored */
    uint8_t *offer;
    size_t *offer_len;
    /* of a PSB_RECV_VIEW: type and shape of the array; NULL: an array of
     * bytes */
    PyObject *dtype, *shape;
    psb_view_storage_t storage; /* for the view of `buf`, if it needs one */
} psb_call_t;

/* A method of Connection or Communicator. `roles` has one letter for each
 * argument, in this order: b buffer, D or S the rank of the peer (dest,
 * source), t tag; then d deadline, l lend, y dtype, s shape. */
typedef struct psb_verb {
    const char *name;
    const char *roles;
    int n, required; /* number of all arguments, and of required ones */
    psb_kind_t kind;
    bool post;
} psb_verb_t;

/* Defines the method `name` of a type in C. The method calls <prefix>_run(),
 * which parses the arguments and calls the function `run`. */
#define PSB_VERB(prefix, type, name, run, roles, required, kind, post)         \
    static PyObject *prefix##_##name(type *self, PyObject *const *args,        \
                                     Py_ssize_t n_args, PyObject *kwnames)     \
    {                                                                          \
        static const psb_verb_t verb = {#name,    roles, sizeof(roles) - 1,    \
                                        required, kind,  post};                \
                                                                               \
        return prefix##_run(self, &verb, run, args, n_args, kwnames);          \
    }

/* Begins a call without buffer and deadline. The caller sets op.worker. */
void psb_call_begin(psb_call_t *call, psb_kind_t kind);
/* Begins a call, and fills it from a method's arguments. *peer_p becomes the
 * argument of role D or S (the peer's rank), or NULL. */
int psb_verb_parse(const psb_verb_t *verb, PyObject *const *args,
                   Py_ssize_t n_args, PyObject *kwnames, psb_call_t *call,
                   PyObject **peer_p);
/* Gets the memory of the operation: that of `buf`, or a Room (recv_buffer.h)
 * for a message that is received into new memory. A PSB_RECV_INTO without
 * buffer becomes a PSB_RECV_NEW. */
int psb_call_take(psb_call_t *call);
/* Hands the operation to the core. Returns 0 if the core took it; op.done then
 * says whether it has completed already. Otherwise returns -1 with an
 * exception. */
int psb_call_start(psb_call_t *call, uint32_t flags, void *owner);
/* Returns the number of polls to make before the GIL is released; they are
 * enough for a short round trip. */
unsigned psb_op_polls(const psb_op_t *op);
