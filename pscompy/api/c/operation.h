/* Operations: the psb_op_t, which the core may know, on the stack of a blocking
 * call or inside a Request; and the psb_call_t by which a method begins one. */
#pragma once

#include "buffers.h"
#include "worker.h"
#include "pscompy/transport/kit/check.h"

/* ---- operation.c ---- */

typedef enum psb_kind {
    PSB_SEND,
    PSB_RECV_INTO, /* the method returns a Status */
    PSB_RECV_NEW, /* the method returns a bytearray */
    /* the method returns a Room (memory.h), or a bytearray if the message is
     * long */
    PSB_RECV_ROOM,
    PSB_RECV_STATUS, /* the method returns (bytearray, Status) */
    PSB_RECV_VIEW, /* the method returns a read-only array */
    /* the method returns a Memory (memory.h), which is writable unless the
     * message was lent (PSC_FLAG_LEND) */
    PSB_RECV_MEMORY,
    PSB_PROBE, /* the method returns a Status */
    PSB_MATCH, /* the method returns a Message (request.h) */
    PSB_PUT,
    PSB_GET,
    PSB_OFFER,
    PSB_FETCH, /* the method returns the list of buffers */
    PSB_AM,
    /* an event, which the methods _complete() or _fail() of its Request
     * complete */
    PSB_EVENT,
    PSB_COLLECTIVE, /* the method returns what psb_group_value makes */
    PSB_KINDS
} psb_kind_t;

/* the kinds that take a message off the queue, as bits */
#define PSB_RECEIVES                                                           \
    (1u << PSB_RECV_INTO | 1u << PSB_RECV_NEW | 1u << PSB_RECV_ROOM |          \
     1u << PSB_RECV_STATUS | 1u << PSB_RECV_VIEW | 1u << PSB_RECV_MEMORY)
/* the kinds that look for a message, whose tag may be ANY_TAG */
#define PSB_MATCHES (PSB_RECEIVES | 1u << PSB_PROBE | 1u << PSB_MATCH)
/* the kinds whose short messages arrive in a Room (memory.h) */
#define PSB_FILLS_ROOM                                                         \
    (1u << PSB_RECV_NEW | 1u << PSB_RECV_ROOM | 1u << PSB_RECV_STATUS)
/* the kinds that write into the program's buffer */
#define PSB_WRITES (1u << PSB_RECV_INTO | 1u << PSB_GET | 1u << PSB_FETCH)
/* the kinds whose buffer need not be contiguous */
#define PSB_STRIDES (1u << PSB_SEND | 1u << PSB_RECV_INTO)

/* The state of an operation that the core has and that has not completed. */
typedef struct psb_flight {
    psc_link_t link; /* in the list `ops` of the worker, if `listed` */
    /* The connection of a blocking operation that sends or accesses the peer's
     * memory. If it is closed locally the operation fails with Closed. NULL for
     * all other operations. */
    psc_conn_t *target;
} psb_flight_t;

typedef struct psb_op {
    psb_worker_t *worker;
    /* the object whose method _exception() makes exceptions for errors, or
     * NULL */
    PyObject *origin;
    /* the core's request for this operation; NULL: none was needed, or it was
     * freed */
    psc_request_t *core;
    /* Of a receive without buffer: the Room for a short message, if `in_room`,
     * else memory that was made for the message, or NULL. Of an active message:
     * the owner of its header's memory. Of a fetch: the list of its buffers. Of
     * a collective: its functions, or its arrays (group.c). */
    PyObject *memory;
    /* `flight` until the operation is done, and of a `matched` op; else
     * `result`. Use psb_op_flight() and psb_op_result(), which check that. */
    union {
        psb_flight_t flight;
        psc_result_t result;
    } phase;
    /* number of polls that a blocking receive made when it started */
    uint8_t polls;
    uint8_t kind : 5; /* a psb_kind_t */
    bool done : 1;
    bool listed : 1;
    bool in_room : 1;
    /* the op is a PSB_MATCH that has completed; `core` holds the message that
     * was found */
    bool matched : 1;
    /* the op is the member `op` of a psb_request_t, which uses the bits
     * below */
    bool in_request : 1;
    /* the outcome of the request is set and does not change any more */
    bool finished : 1;
    bool failed : 1; /* the request's outcome is an exception */
    bool in_flight : 1; /* the Request is kept alive until the op completes */
    /* the request holds a reference to itself, because the program has dropped
     * its last reference to the request */
    bool self_reference : 1;
    /* asyncio may have made a task that awaits the request */
    bool awaitable : 1;
    /* a PSB_EVENT that completes with an object that was received */
    bool takes : 1;
    /* a call-back of the program has told it, or is to tell it, of the
     * completion */
    bool told : 1;
    /* the core does not report the completion, so psb_worker_drain() looks for
     * it */
    bool unnotified : 1;
    bool cancelled : 1; /* a PSB_EVENT that was cancelled */
    /* the op of a PersistentRequest, which keeps the buffers for the next
     * start */
    bool persistent : 1;
    /* The program has seen that the request completed. Until then a receive can
     * requeue its message to the queue of arrived messages. */
    bool seen : 1;
    /* a receive whose message goes back to the queue when it completes */
    bool giving_back : 1;
    /* number of threads that wait for `core`; see psb_op_hold */
    uint16_t waiters;
    /* number of suspended awaits, which wait for the Request to complete */
    uint16_t awaits;
    uint32_t context;
    int32_t tag;
    psb_buffers_t buffers;
} psb_op_t;

_Static_assert(PSB_KINDS <= 1 << 5, "the kinds of operations have 5 bits");

/* Looks whether the operation has completed, and returns true if it has.
 * Supplies memory to a receive without buffer that has matched a message. */
bool psb_op_advance(psb_op_t *op);
/* Completes, with `status`, an op that the core does not know any more. */
void psb_op_abandon(psb_op_t *op, psc_status_t status);
/* Withdraws an op that has not begun. Returns false if it is still in
 * flight. */
bool psb_op_withdraw(psb_op_t *op);
/* Like psb_op_withdraw(), for an op that no thread waits for any more: a
 * receive also requeues a message that is still arriving. */
bool psb_op_give_up(psb_op_t *op);
/* Returns true for a receive, which takes a message off the queue of arrived
 * messages. */
static inline bool psb_op_receives(const psb_op_t *op)
{
    return 1u << op->kind & PSB_RECEIVES;
}
/* Returns true for an operation that sends, or accesses the peer's memory. */
static inline bool psb_op_goes_out(const psb_op_t *op)
{
    return op->kind == PSB_SEND || op->kind == PSB_AM || op->kind == PSB_PUT ||
           op->kind == PSB_GET;
}
static inline psb_flight_t *psb_op_flight(psb_op_t *op)
{
    psc_assert(!op->done || op->matched);
    return &op->phase.flight;
}
/* Returns the result of an op whose operation has completed. */
static inline const psc_result_t *psb_op_result(const psb_op_t *op)
{
    psc_assert(op->done);
    return op->matched ? &op->core->result : &op->phase.result;
}
/* Marks the operation as done, with this result. */
static inline void psb_op_set_done(psb_op_t *op, psc_result_t result)
{
    psc_assert(!op->listed);
    op->done = true;
    op->matched = false;
    op->phase.result = result;
}
/* The message of a completed receive has gone back to the queue. */
static inline void psb_op_set_cancelled(psb_op_t *op)
{
    psc_assert(op->done && !op->matched);
    op->phase.result.status = PSC_ERR_CANCELLED;
}
/* Sets op->memory, and takes over the reference. A Room (memory.h) that was
 * there before is given back to the worker. */
void psb_op_set_memory(psb_op_t *op, PyObject *memory);
void psb_op_drop_memory(psb_op_t *op);
void psb_op_clear(psb_op_t *op);
void psb_op_link(psb_op_t *op);
void psb_op_unlink(psb_op_t *op);
/* Frees op->core, the core's request, unless a thread waits for it. */
void psb_op_free_core(psb_op_t *op);
/* Returns op->core, or NULL if there is none, and keeps it alive until
 * psb_op_let_go(): for a thread that waits for it without the GIL. Meanwhile
 * the op may complete, and begin again with another request of the core. */
psc_request_t *psb_op_hold(psb_op_t *op);
void psb_op_let_go(psb_op_t *op, psc_request_t *held);
/* Sets op->core to NULL before the op begins again. The threads that wait for
 * the old request of the core free it. */
void psb_op_leave_core(psb_op_t *op);

static inline psb_op_t *psb_op_of(psc_link_t *link)
{
    return psc_container_of(link, psb_op_t, phase.flight.link);
}

/* ---- call.c ---- */

/* A psb_call_t: what the program asked a method to do. It is filled from the
 * method's arguments, and handed to the core. */

typedef struct psb_connection psb_connection_t;
typedef struct psb_communicator psb_communicator_t;

/* A call: an operation, and what only its start needs. The call borrows its
 * references until psb_call_take(); then the op has references to its
 * buffers. */
typedef struct psb_call {
    psb_op_t op; /* moves into a Request if the operation outlives the call */
    bool post; /* the method returns a Request at once */
    uint8_t send_flags; /* of a send: PSC_FLAG_LEND, PSC_FLAG_SYNC */
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
    /* of a collective: the communicator, and what the core is to do */
    psb_communicator_t *communicator;
    psc_coll_args_t *collective;
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
    uint8_t send_flags;
} psb_verb_t;

/* Defines the method `name` of a type in C. The method calls <prefix>_run(),
 * which parses the arguments and calls the function `run`. The last arguments
 * are the members of psb_verb_t from `kind` on; those left out are 0. */
#define PSB_VERB(prefix, type, name_, run, roles_, required_, ...)             \
    static PyObject *prefix##_##name_(type *self, PyObject *const *args,       \
                                      Py_ssize_t n_args, PyObject *kwnames)    \
    {                                                                          \
        static const psb_verb_t verb = {.name = #name_,                        \
                                        .roles = roles_,                       \
                                        .n = sizeof(roles_) - 1,               \
                                        .required = required_,                 \
                                        .kind = __VA_ARGS__};                  \
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
/* Gets the memory of the operation: that of `buf`, or a Room (memory.h) for a
 * message that is received into new memory. A PSB_RECV_INTO without buffer
 * becomes a PSB_RECV_NEW. */
int psb_call_take(psb_call_t *call);
/* Hands the operation to the core. Returns 0 if the core took it; op.done then
 * says whether it has completed already. Otherwise returns -1 with an
 * exception. */
int psb_call_start(psb_call_t *call, uint32_t flags, void *owner);
/* Returns the number of polls to make before the GIL is released; they are
 * enough for a short round trip. */
unsigned psb_op_polls(const psb_op_t *op);

/* ---- run.c ---- */

/* Runs a call (psb_call_t, a method's arguments) and makes the value that the
 * method returns. */

typedef PyObject *(*psb_runner_t)(psb_call_t *call);

/* Begins to open a lazy connection (one that is opened at its first use) and
 * delivers what has completed, before anything is handed to the core, because
 * both may run Python code. */
int psb_call_enter(psb_call_t *call);
PyObject *psb_call_run(psb_call_t *call);
/* Receives a message as an array (PSB_RECV_VIEW). If the call names a type or
 * shape, checks that the length of the message fits. */
PyObject *psb_call_view(psb_call_t *call);
PyObject *psb_call_iprobe(psb_call_t *call);
PyObject *psb_call_improbe(psb_call_t *call);
/* Sends and receives at the same time. The deadline of `send` applies to both
 * operations. */
PyObject *psb_call_sendrecv(psb_call_t *send, psb_call_t *recv);

/* ---- requeue.c ---- */

/* Gives the message of a receive that no thread waits for any more back to the
 * queue of arrived messages. */

/* Returns true if the op is a completed receive that holds a message. */
bool psb_op_has_message(const psb_op_t *op);
/* Returns the message of a completed receive to the queue of arrived messages;
 * the result of the receive is Cancelled then. Does nothing if the op has no
 * message. */
void psb_op_return(psb_op_t *op);

/* ---- result.c ---- */

/* Converts the result of a completed operation to Python. */

/* Returns what a blocking call returns for this op, or NULL with its error. For
 * a PSB_MATCH see psb_message_new() instead. */
PyObject *psb_op_value(psb_op_t *op);
/* Returns the Status of the message that was received. */
PyObject *psb_op_status(psb_op_t *op);

/* ---- timeout.c ---- */

/* Raises the Timeout of an operation, and describes an operation in words. */

/* Returns a text that describes the operation, such as "receive from 1 with tag
 * 3": a new reference, or NULL. */
PyObject *psb_op_operation(const psb_op_t *op);
/* Raises the Timeout of `op` after `timeout` seconds. `request` is the Request
 * if it is still in flight, else NULL. It becomes the attribute `request` of
 * the Timeout (None for NULL). Always returns NULL. */
PyObject *psb_raise_timeout(const psb_op_t *op, PyObject *timeout,
                            PyObject *request);
