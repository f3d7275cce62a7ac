/* Fills a psb_call_t from a method's arguments, and hands it to the core. The
 * methods for messages differ only in which roles their arguments have, and
 * each has a table entry (psb_verb_t) that gives these roles. */
#include "connection.h"
#include "memory.h"

/* Upper bound of the polls that an operation makes with the GIL held; the core
 * stops earlier if the processor is crowded (progress/spin.c). */
#define CALL_SPIN_POLLS 250u
/* Longest message that may be copied with the GIL held; a longer one takes too
 * long. */
#define CALL_SPIN_BYTES (16u << 10)

/* ---- arguments ---- */

static bool call_sends(const psb_call_t *call)
{
    return call->op.kind == PSB_SEND;
}

static int verb_take_lend(PyObject *object, psb_call_t *call)
{
    int lends = object ? PyObject_IsTrue(object) : 0;

    if (lends > 0)
        call->send_flags |= PSC_FLAG_LEND;
    return lends < 0 ? -1 : 0;
}

/* Takes an argument of one of the roles that stand behind the tag. */
static int verb_take_option(char role, PyObject *object, psb_call_t *call)
{
    switch (role) {
    case 'l':
        return verb_take_lend(object, call);
    case 'y':
        call->dtype = object == Py_None ? NULL : object;
        return 0;
    case 's':
        call->shape = object == Py_None ? NULL : object;
        return 0;
    default:
        call->timeout = object;
        return psb_arg_deadline(object, &call->deadline);
    }
}

/* Takes the arguments, which have the order of psb_verb_t.roles. */
static int verb_take(const char *roles, PyObject *const *args,
                     Py_ssize_t n_args, psb_call_t *call, PyObject **peer_p)
{
    Py_ssize_t i = 0;

    if (i < n_args && roles[i] == 'b') {
        call->buf = call_sends(call) || args[i] != Py_None ? args[i] : NULL;
        i++;
    }
    if (i < n_args && (roles[i] == 'D' || roles[i] == 'S'))
        *peer_p = args[i++];
    if (i < n_args && roles[i] == 't') {
        if (psb_arg_tag(args[i], !call_sends(call), &call->op.tag) < 0)
            return -1;
        i++;
    }
    for (; i < n_args; i++) {
        if (verb_take_option(roles[i], args[i], call) < 0)
            return -1;
    }
    return 0;
}

/* Parses the arguments of a method if some are given by name, or if they are
 * too few or too many. */
static int verb_parse_names(const psb_verb_t *verb, PyObject *const *args,
                            Py_ssize_t n_args, PyObject *kwnames,
                            PyObject **given)
{
    static const char *const names[] = {
        ['b'] = "buf",     ['D'] = "dest", ['S'] = "source", ['t'] = "tag",
        ['d'] = "timeout", ['l'] = "lend", ['y'] = "dtype",  ['s'] = "shape"};
    psb_signature_t signature;

    signature.function = verb->name;
    signature.required = verb->required;
    signature.n = verb->n;
    for (int i = 0; i < verb->n; i++)
        signature.names[i] = names[(unsigned char)verb->roles[i]];
    return psb_args_parse(&signature, args, n_args, kwnames, given);
}

/* Initializes the call field by field, because compilers clear a structure of
 * this size by a loop that costs more than the rest of the function. The fields
 * of particular kinds of operations are set by the methods for them. */
void psb_call_begin(psb_call_t *call, psb_kind_t kind)
{
    psb_op_t *op = &call->op;

    op->origin = NULL;
    op->core = NULL;
    op->memory = NULL;
    op->kind = (uint8_t)kind;
    op->polls = 0;
    op->context = 0;
    op->waiters = op->awaits = 0;
    op->tag = 1u << kind & PSB_MATCHES ? PSC_ANY_TAG : 0;
    op->done = op->listed = op->in_room = op->matched = false;
    op->in_request = op->finished = op->failed = false;
    op->in_flight = op->self_reference = op->awaitable = false;
    op->takes = op->told = false;
    op->unnotified = op->cancelled = op->persistent = false;
    op->seen = op->giving_back = false;
    psb_buffers_init(&op->buffers);
    call->post = false;
    call->send_flags = 0;
    call->type = NULL;
    call->connection = NULL;
    call->conn = NULL;
    call->buf = NULL;
    call->deadline = PSC_FOREVER;
    call->timeout = NULL;
    call->dtype = call->shape = NULL;
}

int psb_verb_parse(const psb_verb_t *verb, PyObject *const *args,
                   Py_ssize_t n_args, PyObject *kwnames, psb_call_t *call,
                   PyObject **peer_p)
{
    PyObject *given[PSB_ARGS_MAX];

    psb_call_begin(call, verb->kind);
    call->post = verb->post;
    call->send_flags = verb->send_flags;
    *peer_p = NULL;
    if (PSB_UNLIKELY(kwnames || n_args < verb->required || n_args > verb->n)) {
        if (verb_parse_names(verb, args, n_args, kwnames, given) < 0)
            return -1;
        args = given;
        n_args = verb->n;
    }
    return verb_take(verb->roles, args, n_args, call, peer_p);
}

/* ---- memory ---- */

int psb_call_take(psb_call_t *call)
{
    psb_op_t *op = &call->op;
    unsigned kind = 1u << op->kind;
    psb_needs_t needs = {.writable = kind & PSB_WRITES,
                         .contiguous = !(kind & PSB_STRIDES)};

    if (call->buf) {
        if (psb_buffers_get(&op->buffers, call->buf, needs, &call->storage) < 0)
            return -1;
        return call->send_flags & PSC_FLAG_LEND
                   ? psb_buffers_lend(&op->buffers, op->worker->state)
                   : 0;
    }
    if (op->kind == PSB_RECV_INTO)
        op->kind = PSB_RECV_NEW;
    if (1u << op->kind & PSB_FILLS_ROOM) {
        op->memory = psb_room_take(op->worker);
        op->in_room = op->memory != NULL;
    }
    return 0;
}

/* ---- start ---- */

static const psc_api_t *call_api(const psb_call_t *call)
{
    return call->op.worker->api;
}

typedef psc_status_t (*starter_t)(psb_call_t *call, uint32_t flags,
                                  void *owner);

unsigned psb_op_polls(const psb_op_t *op)
{
    return psb_buffers_nbytes(&op->buffers) <= CALL_SPIN_BYTES ? CALL_SPIN_POLLS
                                                               : 0;
}

static psc_send_args_t start_send_args(const psb_call_t *call, uint32_t flags,
                                       void *owner)
{
    return (psc_send_args_t){.context = call->op.context,
                             .tag = call->op.tag,
                             .iov = psb_buffers_iov(&call->op.buffers),
                             .n_iov = psb_buffers_n(&call->op.buffers),
                             .flags = flags,
                             .owner = owner};
}

static psc_recv_args_t start_recv_args(const psb_call_t *call, uint32_t flags,
                                       void *owner)
{
    return (psc_recv_args_t){.source = call->conn,
                             .context = call->op.context,
                             .tag = call->op.tag,
                             .iov = psb_buffers_iov(&call->op.buffers),
                             .n_iov = psb_buffers_n(&call->op.buffers),
                             .flags = flags,
                             .owner = owner};
}

/* Sends memory that is not contiguous. A long message is copied into one piece
 * without the GIL. */
static psc_status_t start_send_strided(psb_call_t *call,
                                       const psc_send_args_t *args)
{
    if (args->flags & PSC_FLAG_TRY &&
        psb_buffers_nbytes(&call->op.buffers) > CALL_SPIN_BYTES)
        return PSC_ERR_NO_RESOURCE;
    return call_api(call)->send_strided(call->conn, args, &call->op.core);
}

static psc_status_t start_send(psb_call_t *call, uint32_t flags, void *owner)
{
    psc_send_args_t args =
        start_send_args(call, flags | call->send_flags, owner);

    if (PSB_UNLIKELY(psb_buffers_strided(&call->op.buffers)))
        return start_send_strided(call, &args);
    return call_api(call)->send(call->conn, &args, &call->op.core);
}

static psc_status_t start_receive(psb_call_t *call, psc_recv_args_t *args)
{
    if (!call->post)
        args->polls = call->op.polls = (uint8_t)psb_op_polls(&call->op);
    return call_api(call)->recv(call->op.worker->core, args,
                                &call->op.phase.result, &call->op.core);
}

static psc_status_t start_recv(psb_call_t *call, uint32_t flags, void *owner)
{
    psc_recv_args_t args = start_recv_args(call, flags, owner);

    return start_receive(call, &args);
}

/* Starts a receive into new memory. A short message arrives in the Room
 * (memory.h). If the message is longer, the core reports its length when it has
 * matched, and memory is allocated then. */
static psc_status_t start_recv_new(psb_call_t *call, uint32_t flags,
                                   void *owner)
{
    psc_recv_args_t args =
        start_recv_args(call, flags | PSC_FLAG_NO_BUFFER, owner);
    psc_iov_t piece;

    if (call->op.in_room) {
        piece = psb_room_piece(call->op.memory);
        args.iov = &piece;
        args.n_iov = 1;
    }
    return start_receive(call, &args);
}

static psc_status_t start_probe(psb_call_t *call, uint32_t flags, void *owner)
{
    psc_recv_args_t args = start_recv_args(call, flags, owner);

    return call_api(call)->probe(call->op.worker->core, &args,
                                 &call->op.phase.result, &call->op.core);
}

static psc_status_t start_put(psb_call_t *call, uint32_t flags, void *owner)
{
    psc_send_args_t args = start_send_args(call, flags, owner);

    return call_api(call)->put(call->conn, &args, call->blob->buf,
                               (size_t)call->blob->len, call->offset,
                               &call->op.core);
}

static psc_status_t start_get(psb_call_t *call, uint32_t flags, void *owner)
{
    psc_send_args_t args = start_send_args(call, flags, owner);

    return call_api(call)->get(call->conn, &args, call->blob->buf,
                               (size_t)call->blob->len, call->offset,
                               &call->op.core);
}

static psc_status_t start_offer(psb_call_t *call, uint32_t flags, void *owner)
{
    psc_send_args_t args = start_send_args(call, flags, owner);

    return call_api(call)->offer(call->conn, &args, call->offer,
                                 call->offer_len, &call->op.core);
}

static psc_status_t start_fetch(psb_call_t *call, uint32_t flags, void *owner)
{
    psc_send_args_t args = start_send_args(call, flags, owner);

    return call_api(call)->fetch(call->conn, &args, call->blob->buf,
                                 (size_t)call->blob->len, &call->op.core);
}

static psc_status_t start_am(psb_call_t *call, uint32_t flags, void *owner)
{
    psc_send_args_t args = start_send_args(call, flags, owner);

    return call_api(call)->am_send(call->conn, call->id, call->blob->buf,
                                   (size_t)call->blob->len, &args,
                                   &call->op.core);
}

static psc_status_t start_event(psb_call_t *call, uint32_t flags, void *owner)
{
    psc_status_t status = call_api(call)->event_create(
        call->op.worker->core, flags & ~PSC_FLAG_TRY, owner, &call->op.core);

    return status == PSC_OK ? PSC_INPROGRESS : status;
}

static psc_status_t start_collective(psb_call_t *call, uint32_t flags,
                                     void *owner)
{
    call->collective->flags = flags;
    call->collective->owner = owner;
    return call_api(call)->coll_start(call->communicator->group,
                                      call->collective, &call->op.core);
}

static const starter_t starters[PSB_KINDS] = {
    [PSB_SEND] = start_send,
    [PSB_RECV_INTO] = start_recv,
    [PSB_RECV_NEW] = start_recv_new,
    [PSB_RECV_ROOM] = start_recv_new,
    [PSB_RECV_STATUS] = start_recv_new,
    [PSB_RECV_VIEW] = start_recv_new,
    [PSB_RECV_MEMORY] = start_recv_new,
    [PSB_PROBE] = start_probe,
    [PSB_MATCH] = start_recv_new,
    [PSB_PUT] = start_put,
    [PSB_GET] = start_get,
    [PSB_OFFER] = start_offer,
    [PSB_FETCH] = start_fetch,
    [PSB_AM] = start_am,
    [PSB_EVENT] = start_event,
    [PSB_COLLECTIVE] = start_collective,
};

/* Raises the error of a put or a get that exceeds the peer's region. */
static int start_out_of_bounds(const psb_call_t *call)
{
    const psc_iov_t *iov = psb_buffers_iov(&call->op.buffers);
    psb_bounds_t bounds = {.offset = call->offset,
                           .size = call_api(call)->region_size(
                               call->blob->buf, (size_t)call->blob->len)};

    for (size_t i = 0; i < psb_buffers_n(&call->op.buffers); i++)
        bounds.nbytes += iov[i].len;
    psb_raise_bounds(call->op.worker->state, call->op.origin, &bounds);
    return -1;
}

static psc_status_t call_start_without_gil(psb_call_t *call, uint32_t flags,
                                           void *owner)
{
    psb_worker_t *worker = call->op.worker;
    psc_status_t status;

    worker->n_inside++;
    Py_BEGIN_ALLOW_THREADS status = starters[call->op.kind](call, flags, owner);
    Py_END_ALLOW_THREADS worker->n_inside--;
    return status;
}

/* Starts what could not start at once: waits for the core's lock, and opens the
 * connections that a collective lacks. Returns -1 with an exception if one
 * cannot be opened. */
PSB_COLD static int call_start_later(psb_call_t *call, uint32_t flags,
                                     void *owner, psc_status_t *status_p)
{
    for (;;) {
        *status_p = call_start_without_gil(call, flags, owner);
        if (*status_p != PSC_ERR_NO_RESOURCE || call->op.kind != PSB_COLLECTIVE)
            return 0;
        if (psb_group_connect(call) < 0)
            return -1;
    }
}

int psb_call_start(psb_call_t *call, uint32_t flags, void *owner)
{
    psb_op_t *op = &call->op;
    psb_worker_t *worker = op->worker;
    psc_status_t status;

    if (PSB_UNLIKELY(worker->status != PSC_OK)) {
        psb_raise(worker->state, op->origin, worker->status, 0);
        return -1;
    }
    op->phase.result = (psc_result_t){.status = PSC_OK, .rank = -1};
    status = starters[op->kind](call, flags | PSC_FLAG_TRY, owner);
    if (PSB_UNLIKELY(status == PSC_ERR_NO_RESOURCE) &&
        call_start_later(call, flags, owner, &status) < 0)
        return -1;
    if (PSB_UNLIKELY(status == PSC_ERR_BOUNDS))
        return start_out_of_bounds(call);
    if (status == PSC_INPROGRESS) {
        psb_op_flight(op)->target =
            !call->post && psb_op_goes_out(op) ? call->conn : NULL;
    } else {
        op->phase.result.status = status;
        psb_op_set_done(op, op->phase.result);
    }
    return 0;
}
