/* A psb_call_t: what the program asked a method to do. It is filled from the
 * method's arguments, and an operation (op.h) is made of it. */
#pragma once

#include "args.h"
#include "worker.h"

typedef enum psb_kind {
    PSB_SEND,
    PSB_RECV_INTO,   /* the method returns a Status */
    PSB_RECV_NEW, /* the method returns a bytearray */
    /* the method returns a Room (recv_buffer.h), or a bytearray for a long
     * message */
    PSB_RECV_ROOM,
    PSB_RECV_STATUS, /* the method returns (bytearray, Status) */
    PSB_RECV_VIEW, /* the method returns a read-only array */
    /* the method returns a Memory (memory.h), which is writable unless the
     * message was lent (see psb_call_t.lend) */
    PSB_RECV_MEMORY,
    PSB_PROBE, /* the method returns a Status */
    PSB_MATCH, /* the method returns a Message (message.h) */
    PSB_PUT,
    PSB_GET,
    PSB_OFFER,
    PSB_FETCH, /* the method returns the list of buffers */
    PSB_AM,
    /* an event, which the methods _complete() or _fail() of its Request
     * complete */
    PSB_EVENT,
    PSB_KINDS
} psb_kind_t;

/* the kinds that take a message off the queue, as bits */
#define PSB_RECEIVES                                                           \
    (1u << PSB_RECV_INTO | 1u << PSB_RECV_NEW | 1u << PSB_RECV_ROOM |          \
     1u << PSB_RECV_STATUS | 1u << PSB_RECV_VIEW | 1u << PSB_RECV_MEMORY)

typedef struct psb_connection psb_connection_t;

/* A call: what the program asked a method to do. The call borrows its
 * references. */
typedef struct psb_call {
    psb_kind_t kind;
    bool post; /* the method returns a Request at once */
    /* of a send: the message is lent, so that the receiver reads it in the
     * sender's memory */
    bool lend;
    /* the subclass of Request to make; NULL for Request itself */
    PyTypeObject *type;
    psb_worker_t *worker;
    /* the object whose method _exception() makes exceptions for errors */
    PyObject *origin;
    psb_connection_t *connection; /* NULL for a receive from any source */
    /* the core's connection of `connection`, set by psb_call_enter */
    psc_conn_t *conn;
    uint32_t context;
    int32_t tag;
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
    /* of an active message: owner of the header's memory; of a fetch: the list
     * of buffers */
    PyObject *keep;
    /* of an offer: memory for the packed offer that the peer needs, and where
     * the length of this packed offer is stored */
    uint8_t *offer;
    size_t *offer_len;
    /* of a PSB_RECV_VIEW: type and shape of the array; NULL: an array of
     * bytes */
    PyObject *dtype, *shape;
} psb_call_t;

/* A method of Connection or Communicator. `roles` has one letter for each
 * argument: b buffer, D or S the rank of the peer (dest, source), t tag, d
 * deadline, l lend, y dtype, s shape. */
typedef struct psb_verb {
    const char *name;
    const char *roles;
    int n, required; /* number of all arguments, and of required ones */
    /* kind of the call; a PSB_RECV_INTO without a buffer becomes
     * PSB_RECV_NEW */
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

/* Fills the fields of `call` that messages use, except worker, origin, context
 * and conn. *peer_p becomes the argument of role D or S (the peer's rank), or
 * NULL. */
int psb_verb_parse(const psb_verb_t *verb, PyObject *const *args,
                   Py_ssize_t n_args, PyObject *kwnames, psb_call_t *call,
                   PyObject **peer_p);
/* Makes `call` a receive into buf, or into new memory if buf is None or
 * NULL. */
void psb_call_receive(psb_call_t *call, PyObject *buf);
