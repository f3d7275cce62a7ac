/* Private header of the extension pscompy.binding._binding: the operations on the hot path
 * as CPython methods over psc_api_t, because a cffi call with a buffer costs
 * several times as much.
 *
 * Rules that hold for every file here:
 *  - All state of this extension is guarded by the GIL. psc_api_t is called
 *    with the GIL only where that never waits for the network; PSC_FLAG_TRY
 *    keeps a call from waiting for a lock that another thread holds.
 *  - The core never calls Python. What it has finished is picked up by
 *    psb_worker_drain, outside its lock.
 *  - An operation that does not end at once is a psb_op_t. Every op that the
 *    core knows is in its worker's list, so that closing the worker can end
 *    it. */
#ifndef PSCOMPY_HOT_HOT_H
#define PSCOMPY_HOT_HOT_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "pscompy/core/control.h"

#define PSB_UNLIKELY(x) __builtin_expect(!!(x), 0)
/* Not a number that comes out of `rank - 1`, which must be an IndexError. */
#define PSB_ANY_SOURCE INT32_MIN

typedef struct psb_worker psb_worker_t;
typedef struct psb_connection psb_connection_t;
typedef struct psb_request psb_request_t;
typedef struct psb_op psb_op_t;

/* ---- module.c ---- */

typedef struct psb_state {
    const psc_api_t *api; /* NULL before bind */
    PyTypeObject *worker_type, *connection_type, *communicator_type;
    PyTypeObject *request_type, *persistent_type, *message_type;
    PyTypeObject *memory_type, *room_type, *sleeper_type;
    struct psb_lease *leases;   /* arrays that are lent */
    PyTypeObject *ended_type;   /* what awaiting an ended request iterates */
    PyTypeObject *status_type;  /* a named tuple, given to bind */
    PyObject *from_status;      /* pscompy.errors.from_status, once needed */
    PyObject *dumps, *loads;    /* pickle's, once needed */
    PyObject *dumps_names;      /* of the keyword arguments of dumps */
    PyObject *leave;            /* append of an empty list, for the next dumps;
                                   NULL: in use */
    PyObject *await_request;    /* pscompy.api.aio.await_request, once needed */
    PyObject *loop_callback;    /* pscompy.api.aio.loop_callback, once needed */
    PyObject *cancelled_type;   /* pscompy.errors.Cancelled, once needed */
} psb_state_t;

/* *slot_p becomes module.name on first use; borrowed, or NULL. Late, because
 * asyncio and the error classes cost time at start-up. */
PyObject *psb_import_once(PyObject **slot_p, const char *module,
                          const char *name);

/* ---- errors.c ---- */

/* The exception for a status: origin._exception(status, nbytes), or without
 * origin the one that pscompy.errors makes. New reference, or NULL. */
PyObject *psb_exception(psb_state_t *state, PyObject *origin, int status,
                        uint64_t nbytes);
/* The default _exception(status, nbytes) of Connection and World. */
PyObject *psb_default_exception(psb_state_t *state, PyObject *const *args,
                                Py_ssize_t n_args);
/* Raise it; always NULL. */
PyObject *psb_raise(psb_state_t *state, PyObject *origin, int status,
                    uint64_t nbytes);
/* The range that a put or a get asked for, and the region's size. */
typedef struct psb_bounds {
    uint64_t offset, nbytes, size;
} psb_bounds_t;
PyObject *psb_raise_bounds(psb_state_t *state, PyObject *origin,
                           const psb_bounds_t *bounds);
/* Raise the Timeout of `origin`; request: what is still in flight, or NULL. */
PyObject *psb_raise_timeout(psb_state_t *state, PyObject *origin,
                            PyObject *request);
/* Set aside the exception that is being raised, and raise it again. */
typedef struct psb_raised {
    PyObject *type, *value, *traceback;
} psb_raised_t;
psb_raised_t psb_raised_take(void);
void psb_raised_restore(psb_raised_t raised);
/* The exception instance alone; the error indicator is cleared. */
PyObject *psb_raised_instance(void);

/* ---- array.c ---- */

/* The memory of a numpy array of plain numbers, if it is as it has to be; else
 * false, and the buffer protocol says why not. Only buf, len and obj are
 * filled. */
bool psb_array_get(Py_buffer *view, PyObject *object, bool writable);
/* A new array of bytes over a Memory that it keeps. Imports numpy. */
PyObject *psb_array_view(PyObject *memory);
/* numpy.empty in the pool of a worker. */
PyObject *psb_array_empty(psb_worker_t *worker, PyObject *shape,
                          PyObject *dtype);

/* Whether it was writable; false for what is no array. */
bool psb_array_set_writable(PyObject *object, bool writable);

/* ---- lease.c ---- */

/* An array that nobody is to write to, however often it is lent. */
typedef struct psb_lease psb_lease_t;
/* *lease_p: NULL for what is no array, or is read-only anyhow. */
int psb_lease_begin(psb_state_t *state, PyObject *object,
                    psb_lease_t **lease_p);
void psb_lease_end(psb_lease_t *lease);

/* ---- buffers.c ---- */

/* The memory of one message: one object with a buffer, or a list of them. */
typedef struct psb_buffers {
    Py_buffer view; /* n == 1 */
    psc_iov_t piece;
    Py_buffer *views; /* n != 1: arrays of n */
    psc_iov_t *pieces;
    size_t n;
    uint64_t nbytes;
    psb_lease_t *lease; /* lent: until they are released, or NULL */
} psb_buffers_t;

static inline void psb_buffers_init(psb_buffers_t *buffers)
{
    buffers->n = 0;
    buffers->nbytes = 0;
    buffers->views = NULL;
    buffers->pieces = NULL;
    buffers->lease = NULL;
}

static inline const psc_iov_t *psb_buffers_iov(const psb_buffers_t *buffers)
{
    return buffers->n == 1 ? &buffers->piece : buffers->pieces;
}

/* -1 with TypeError (no buffer, or Python objects in it) or BufferError (not
 * C-contiguous; writable is wanted and it is not). */
int psb_buffers_get(psb_buffers_t *buffers, PyObject *object, bool writable);
void psb_buffers_release(psb_buffers_t *buffers);
int psb_buffers_traverse(psb_buffers_t *buffers, visitproc visit, void *arg);
/* Any bytes-like object as it is; `what` names it in the TypeError. */
int psb_bytes_get(Py_buffer *view, PyObject *object, const char *what);

/* ---- args.c ---- */

#define PSB_ARGS_MAX 7

typedef struct psb_signature {
    const char *function;
    int required;
    int n;
    const char *names[PSB_ARGS_MAX];
} psb_signature_t;

/* Fill given[0 ... n-1] with borrowed references, NULL where not given. */
int psb_args_parse(const psb_signature_t *signature, PyObject *const *args,
                   Py_ssize_t n_args, PyObject *kwnames, PyObject **given);
/* Each leaves *p as it is when the argument is NULL (not given). */
int psb_arg_tag(PyObject *object, bool any, int32_t *tag_p);
int psb_arg_u64(PyObject *object, const char *name, uint64_t max,
                uint64_t *value_p);
/* A timeout (None, or seconds) as a deadline. */
int psb_arg_deadline(PyObject *object, int64_t *deadline_p);
int64_t psb_now(void); /* monotonic, ns */

/* ---- op.c: one operation ---- */

typedef enum psb_kind {
    PSB_SEND,
    PSB_RECV_INTO,   /* -> Status */
    PSB_RECV_NEW,    /* -> bytearray */
    PSB_RECV_ROOM,   /* -> Room, or bytearray if it is long */
    PSB_RECV_STATUS, /* -> (bytearray, Status) */
    PSB_RECV_VIEW,   /* -> read-only array */
    PSB_RECV_MEMORY, /* -> Memory, writable unless it was lent */
    PSB_PROBE,       /* -> Status */
    PSB_MATCH,       /* -> Message */
    PSB_PUT,
    PSB_GET,
    PSB_AM,
    PSB_EVENT, /* somebody completes it by hand */
    PSB_KINDS
} psb_kind_t;

struct psb_op {
    struct psb_op *prev, *next; /* worker's ops; both NULL: not listed */
    psb_worker_t *worker;
    PyObject *origin;    /* whose _exception makes its errors, or NULL */
    psc_request_t *core; /* NULL: none was needed, or it is given back */
    PyObject *fresh;     /* what a receive without buffer made, or was to use;
                            what an active message's header is in */
    psc_conn_t *target;  /* of a blocking send, which ends with Closed when
                            that is closed here; else NULL */
    psb_kind_t kind;
    bool done;
    bool in_request;     /* it is the op of a Request */
    uint16_t context;
    unsigned waiters;    /* threads that wait on `core` without the GIL */
    unsigned polls;      /* of a blocking receive, when it starts */
    psc_result_t result; /* when done */
    psb_buffers_t buffers;
};

/* What a method was asked to do. */
typedef struct psb_call {
    psb_kind_t kind;
    bool post;                    /* return a Request */
    bool lend;                    /* send: the pages themselves */
    PyTypeObject *type;           /* of that Request; NULL: Request itself */
    psb_worker_t *worker;
    PyObject *origin;
    psb_connection_t *connection; /* NULL: a receive from anybody */
    psc_conn_t *conn;             /* of connection, once it was entered */
    uint32_t context;
    int32_t tag;
    PyObject *buf;                /* NULL: none */
    int64_t deadline;
    uint32_t id;                  /* active messages */
    uint64_t offset;              /* put, get */
    const Py_buffer *blob;        /* am: header; put, get: the remote key */
    PyObject *keep;               /* am: what owns the header's memory; the
                                     Room of a receive */
} psb_call_t;

/* Fill op for call and get its buffers. The references are borrowed. */
int psb_op_init(psb_op_t *op, const psb_call_t *call);
/* Look whether it has ended, and give a matched receive its buffer. */
bool psb_op_advance(psb_op_t *op);
/* End an op without the core, which has forgotten it. */
void psb_op_abandon(psb_op_t *op, psc_status_t status);
/* Take it back. False: too late, it is still under way. */
bool psb_op_withdraw(psb_op_t *op);
/* The same for one that nobody waits for any more: a receive gives back its
 * message, also one that is still on its way. */
bool psb_op_give_up(psb_op_t *op);
/* Whether a message is taken off the queue by it, into its memory. */
bool psb_op_receives(const psb_op_t *op);
void psb_op_clear(psb_op_t *op);
void psb_op_link(psb_op_t *op);
void psb_op_unlink(psb_op_t *op);
/* Give the core's request back, unless somebody waits on it. */
void psb_op_free_core(psb_op_t *op);

/* ---- start.c, value.c ---- */

/* Hand it to the core. 0: op->done tells whether it has ended already. */
int psb_op_start(psb_op_t *op, psb_call_t *call, uint32_t flags, void *owner);
/* What the blocking call returns, or raises. */
PyObject *psb_op_value(psb_op_t *op);
PyObject *psb_op_status(psb_op_t *op); /* Status of what was received */

/* ---- waiting.c ---- */

typedef enum psb_outcome {
    PSB_DONE,
    PSB_AGAIN,   /* look at the requests again */
    PSB_TIMEOUT, /* the deadline has passed; nothing is raised */
    PSB_RAISED   /* a signal handler raised, or the worker was closed */
} psb_outcome_t;

/* With the GIL at first, which is what a short exchange needs: how often. */
unsigned psb_op_polls(const psb_op_t *op);
psb_outcome_t psb_op_wait(psb_op_t *op, int64_t deadline);
PyObject *psb_wait_all(psb_state_t *state, PyObject *requests,
                       int64_t deadline);
PyObject *psb_wait_any(psb_state_t *state, PyObject *requests,
                       int64_t deadline);

/* ---- await.c ---- */

extern PyType_Spec psb_ended_spec;
/* Request.__await__. */
PyObject *psb_request_await(psb_request_t *self);

/* ---- verb.c: from a method's arguments to a call ---- */

/* A method of Connection or World. roles has a letter per argument: b buffer,
 * p peer, t tag, d deadline, l lend. */
typedef struct psb_verb {
    psb_signature_t signature;
    const char *roles;
    psb_kind_t kind; /* RECV_INTO becomes RECV_NEW without a buffer */
    bool post;
} psb_verb_t;

/* Fill what the arguments say; *peer_p: the peer's, or NULL. */
int psb_verb_parse(const psb_verb_t *verb, PyObject *const *args,
                   Py_ssize_t n_args, PyObject *kwnames, psb_call_t *call,
                   PyObject **peer_p);
/* A receive into buf, or into new memory where that is None or NULL. */
void psb_verb_receive(psb_call_t *call, PyObject *buf);

/* ---- call.c: from a call to its result ---- */

typedef PyObject *(*psb_runner_t)(psb_call_t *call);

/* The connection starts to come up, and finished work is delivered, before
 * anything is handed to the core. Both may run Python code. */
int psb_call_enter(psb_call_t *call);
PyObject *psb_call_run(psb_call_t *call);
/* A PersistentRequest (persistent.c). */
PyObject *psb_call_init(psb_call_t *call);
PyObject *psb_call_iprobe(psb_call_t *call);
PyObject *psb_call_improbe(psb_call_t *call);
/* send's deadline holds for both. */
PyObject *psb_call_sendrecv(psb_call_t *send, psb_call_t *recv);
/* A receive that has matched already (Message). */
PyObject *psb_call_recv_matched(psb_op_t *matched, PyObject *buf);

/* ---- worker.c, delivery.c ---- */

/* Whether awaiting polls first; see await.c. */
typedef struct psb_patience {
    int64_t turn;  /* since when nothing has suspended; 0: not yet so */
    unsigned vain; /* polled in vain so often that this many do without */
    unsigned skip; /* of which these are left */
} psb_patience_t;

typedef struct psb_numbering psb_numbering_t;

struct psb_worker {
    PyObject_HEAD
    psb_state_t *state;
    const psc_api_t *api;
    psc_worker_t *core;
    psc_status_t status;    /* CLOSED or FORKED once it has ended */
    psb_op_t ops;           /* head of the list */
    unsigned n_late;        /* requests that end without notice */
    unsigned n_inside;      /* threads in the core without the GIL */
    unsigned n_draining;
    psb_patience_t patience;
    PyObject *connections;  /* id -> Connection, of those that are in use */
    PyObject *handlers;     /* id -> callable */
    PyObject *status_kept;  /* the Status made last in a World, or NULL */
    psc_result_t status_result; /* what that one says */
    PyObject *room;         /* for the next short object; NULL: in use */
    psb_numbering_t *numberings;
};

/* ---- numbering.c: Worlds that number the ranks of another anew ---- */

/* The rank that messages of this context name. */
int psb_worker_rank(const psb_worker_t *self, uint16_t context, int rank);
PyObject *psb_worker_renumber(psb_worker_t *self, PyObject *const *args,
                              Py_ssize_t n_args, PyObject *kwnames);
void psb_worker_forget_numberings(psb_worker_t *self);

extern PyType_Spec psb_worker_spec;
/* 0: the worker is open; what was finished meanwhile has been delivered. Else
 * -1, with the exception of origin (or NULL). */
int psb_worker_enter(psb_worker_t *self, PyObject *origin);
/* Deliver all that is finished: requests' call-backs, messages' handlers. */
void psb_worker_drain(psb_worker_t *self);
/* What Status.source says: a rank in a World, else the Connection; None for
 * one that is not in use. */
PyObject *psb_worker_source(psb_worker_t *self, uint64_t id, int rank);
/* Let go of a connection whose use has ended, unless a message of it is still
 * to be delivered: the last one delivered lets go of it then. */
int psb_worker_let_go(psb_worker_t *self, psb_connection_t *connection);

/* ---- sleeper.c ---- */

extern PyType_Spec psb_sleeper_spec;
PyObject *psb_sleeper_create(psb_worker_t *worker); /* of an open worker */

/* ---- view.c ---- */

extern PyType_Spec psb_memory_spec;
/* A writable block of the worker's pool, or memory like any other. */
PyObject *psb_memory_alloc(psb_worker_t *worker, size_t nbytes);
/* Room for the message that op has matched, to be read-only for others if it
 * is a view. */
PyObject *psb_memory_receive(psb_op_t *op, psc_iov_t *piece);
/* The message that op has matched becomes op->fresh where it is. False: it
 * has to be received. */
bool psb_memory_view(psb_op_t *op);
void *psb_memory_base(PyObject *memory, Py_ssize_t *nbytes_p);

/* ---- room.c ---- */

extern PyType_Spec psb_room_spec;
PyObject *psb_room_take(psb_worker_t *worker); /* new reference, or NULL */
/* Takes the reference; others who have one keep the room. */
void psb_room_give(psb_worker_t *worker, PyObject *room);
psc_iov_t psb_room_piece(PyObject *room);
void psb_room_fill(PyObject *room, uint64_t nbytes);
const char *psb_room_bytes(PyObject *room, Py_ssize_t *nbytes_p);

/* ---- request.c, flight.c ---- */

struct psb_request {
    PyObject_HEAD
    psb_op_t op; /* owns its worker and origin */
    bool flying; /* in flight: it lives until it lands, */
    bool held;   /* by a reference once the program has dropped it */
    bool offered; /* asyncio may have made a task of it */
    bool late;   /* flying without notice */
    bool finished;  /* value or error is there, for good */
    bool cancelled; /* an event, by its consumer */
    bool again;     /* persistent: its buffers stay for the next start */
    bool told;      /* the program knows that it has ended; a receive that has
                       can give its message back before */
    bool giving;    /* a receive whose message goes back when it ends */
    unsigned awaits; /* that are suspended for it */
    PyObject *value, *error, *status;
    PyObject *callbacks; /* list, or NULL */
};

extern PyType_Spec psb_request_spec, psb_persistent_spec;
PyObject *psb_request_post(psb_call_t *call, psb_op_t *op);
/* One that has not begun, and is to be started; both for persistent.c. */
psb_request_t *psb_request_idle(PyTypeObject *type, psb_op_t *op);
int psb_request_restart(psb_request_t *self, psb_call_t *call);
/* The program has dropped it. */
void psb_request_finalize(PyObject *self);
static inline bool psb_request_survives(psb_request_t *self)
{
    return PSB_UNLIKELY(self->flying || self->offered) &&
           PyObject_CallFinalizerFromDealloc((PyObject *)self) < 0;
}
/* A blocking op on the stack that could not be withdrawn becomes a Request,
 * which keeps the buffers until the core lets go of them. */
void psb_request_adopt(psb_op_t *op);
/* The program hears that it has ended, and may use its buffers. */
void psb_request_told(psb_request_t *self);
/* An event that somebody would have completed by hand; false: it has ended. */
bool psb_request_complete(psb_request_t *self, PyObject *value,
                          PyObject *error, psc_status_t status);
/* A call-back, whose exceptions go to sys.unraisablehook. */
void psb_request_call(psb_request_t *self, PyObject *callback);
/* True once it has ended; then its effects have taken place. */
bool psb_request_advance(psb_request_t *self);
/* Take it back, whatever exception is being raised. False: too late. */
bool psb_request_withdraw(psb_request_t *self);
psb_outcome_t psb_request_wait(psb_request_t *self, int64_t deadline);
PyObject *psb_request_result(psb_request_t *self);
/* Its worker ends: status is CLOSED or FORKED. */
void psb_request_abandon(psb_request_t *self, psc_status_t status);
static inline psb_request_t *psb_request_of(psb_op_t *op)
{
    return (psb_request_t *)((char *)op - offsetof(psb_request_t, op));
}

/* ---- outcome.c, giveback.c: methods of Request ---- */

PyObject *psb_request_done(psb_request_t *self, PyObject *unused);
PyObject *psb_request_cancelled(psb_request_t *self, PyObject *unused);
PyObject *psb_request_exception(psb_request_t *self, PyObject *const *args,
                                Py_ssize_t n_args, PyObject *kwnames);
PyObject *psb_request_on_done(psb_request_t *self, PyObject *fn);
PyObject *psb_request_add_done_callback(psb_request_t *self, PyObject *fn);
PyObject *psb_request_remove_done_callback(psb_request_t *self, PyObject *fn);
PyObject *psb_request_give_back(psb_request_t *self, PyObject *const *args,
                                Py_ssize_t n_args, PyObject *kwnames);
PyObject *psb_request_revoke(psb_request_t *self, PyObject *unused);
/* A receive that has ended gives its message back: then it was cancelled. */
void psb_request_return(psb_request_t *self);

/* ---- connection.c, communicator.c, message.c ---- */

struct psb_connection {
    PyObject_HEAD
    psb_worker_t *worker; /* NULL: not bound */
    psc_conn_t *core;
    PyObject *keep; /* what the core's connection lives as long as, or NULL */
    uint32_t context;
    bool leaving;   /* not in use any more */
    bool pickles;   /* objects: pickle does as it is */
    bool apart;     /* the last object was more than its pickle */
    PyObject *objects; /* those of pscompy.parcel, NULL before the first */
    struct psb_connection *heads; /* where they are matched */
};

extern PyType_Spec psb_connection_spec, psb_communicator_spec;
extern PyType_Spec psb_message_spec;
/* Fill in that the call goes to this connection; -1: it is not bound. */
int psb_connection_address(psb_connection_t *self, psb_call_t *call);
/* The core's connection, on its way up if it was lazy; NULL with an error. */
psc_conn_t *psb_connection_enter(psb_connection_t *self);
/* ---- object.c: methods of Connection ---- */

/* The objects of pscompy.parcel, their connection, whether pickle does. */
int psb_object_bind(psb_connection_t *self, PyObject *const *args,
                    Py_ssize_t n_args);
PyObject *psb_object_send(psb_connection_t *self, PyObject *const *args,
                          Py_ssize_t n_args, PyObject *kwnames);
PyObject *psb_object_recv(psb_connection_t *self, PyObject *const *args,
                          Py_ssize_t n_args, PyObject *kwnames);

/* Takes over the matched receive of op. */
PyObject *psb_message_new(psb_op_t *op);

#define PSB_FAST (METH_FASTCALL | METH_KEYWORDS)
#define PSB_FUNCTION(f) ((PyCFunction)(void (*)(void))(f))

#endif
