/* Hands an operation to the core, with a function per kind of operation. */
#include "start.h"

#include "errors.h"
#include "recv_buffer.h"

/* Upper bound of the polls that an operation makes with the GIL held; the core
 * stops earlier if the processor is crowded (progress/spin.c). */
#define START_SPIN_POLLS 250u
/* Longest message that may be copied with the GIL held; a longer one takes too
 * long. */
#define START_SPIN_BYTES (16u << 10)

typedef psc_status_t (*starter_t)(psb_op_t *op, const psb_call_t *call,
                                  uint32_t flags, void *owner);

static psc_send_args_t start_send_args(const psb_op_t *op,
                                       const psb_call_t *call, uint32_t flags,
                                       void *owner)
{
    return (psc_send_args_t){.context = call->context,
                             .tag = call->tag,
                             .iov = psb_buffers_iov(&op->buffers),
                             .n_iov = psb_buffers_n(&op->buffers),
                             .flags = flags,
                             .owner = owner};
}

static psc_recv_args_t start_recv_args(const psb_op_t *op,
                                       const psb_call_t *call, uint32_t flags,
                                       void *owner)
{
    return (psc_recv_args_t){.source = call->conn,
                             .context = call->context,
                             .tag = call->tag,
                             .iov = psb_buffers_iov(&op->buffers),
                             .n_iov = psb_buffers_n(&op->buffers),
                             .flags = flags,
                             .owner = owner};
}

/* Sends memory that is not contiguous. A long message is copied into one piece
 * without the GIL. */
static psc_status_t start_send_strided(psb_op_t *op, const psb_call_t *call,
                                       const psc_send_args_t *args)
{
    if (args->flags & PSC_FLAG_TRY &&
        psb_buffers_nbytes(&op->buffers) > START_SPIN_BYTES)
        return PSC_ERR_NO_RESOURCE;
    return op->worker->api->send_strided(call->conn, args, &op->core);
}

static psc_status_t start_send(psb_op_t *op, const psb_call_t *call,
                               uint32_t flags, void *owner)
{
    psc_send_args_t args = start_send_args(op, call, flags, owner);

    if (PSB_UNLIKELY(psb_buffers_strided(&op->buffers)))
        return start_send_strided(op, call, &args);
    if (PSB_UNLIKELY(call->lend))
        args.flags |= PSC_FLAG_LEND;
    return op->worker->api->send(call->conn, &args, &op->core);
}

unsigned psb_op_polls(const psb_op_t *op)
{
    return psb_buffers_nbytes(&op->buffers) <= START_SPIN_BYTES
               ? START_SPIN_POLLS
               : 0;
}

static psc_status_t start_receive(psb_op_t *op, const psb_call_t *call,
                                  psc_recv_args_t *args)
{
    if (!call->post)
        args->polls = op->polls = (uint8_t)psb_op_polls(op);
    return op->worker->api->recv(op->worker->core, args, &op->phase.result,
                                 &op->core);
}

static psc_status_t start_recv(psb_op_t *op, const psb_call_t *call,
                               uint32_t flags, void *owner)
{
    psc_recv_args_t args = start_recv_args(op, call, flags, owner);

    return start_receive(op, call, &args);
}

/* Starts a receive into new memory. A short message arrives in the Room
 * (recv_buffer.h). If the message is longer, the core reports its length when
 * it has matched, and memory is allocated then. */
static psc_status_t start_recv_new(psb_op_t *op, const psb_call_t *call,
                                   uint32_t flags, void *owner)
{
    psc_recv_args_t args =
        start_recv_args(op, call, flags | PSC_FLAG_NO_BUFFER, owner);
    psc_iov_t piece;

    if (op->in_room) {
        piece = psb_room_piece(op->memory);
        args.iov = &piece;
        args.n_iov = 1;
    }
    return start_receive(op, call, &args);
}

static psc_status_t start_probe(psb_op_t *op, const psb_call_t *call,
                                uint32_t flags, void *owner)
{
    psc_recv_args_t args = start_recv_args(op, call, flags, owner);

    return op->worker->api->probe(op->worker->core, &args, &op->phase.result,
                                  &op->core);
}

static psc_status_t start_put(psb_op_t *op, const psb_call_t *call,
                              uint32_t flags, void *owner)
{
    psc_send_args_t args = start_send_args(op, call, flags, owner);

    return op->worker->api->put(call->conn, &args, call->blob->buf,
                                (size_t)call->blob->len, call->offset,
                                &op->core);
}

static psc_status_t start_get(psb_op_t *op, const psb_call_t *call,
                              uint32_t flags, void *owner)
{
    psc_send_args_t args = start_send_args(op, call, flags, owner);

    return op->worker->api->get(call->conn, &args, call->blob->buf,
                                (size_t)call->blob->len, call->offset,
                                &op->core);
}

static psc_status_t start_offer(psb_op_t *op, const psb_call_t *call,
                                uint32_t flags, void *owner)
{
    psc_send_args_t args = start_send_args(op, call, flags, owner);

    return op->worker->api->offer(call->conn, &args, call->offer,
                                  call->offer_len, &op->core);
}

static psc_status_t start_fetch(psb_op_t *op, const psb_call_t *call,
                                uint32_t flags, void *owner)
{
    psc_send_args_t args = start_send_args(op, call, flags, owner);

    return op->worker->api->fetch(call->conn, &args, call->blob->buf,
                                  (size_t)call->blob->len, &op->core);
}

static psc_status_t start_am(psb_op_t *op, const psb_call_t *call,
                             uint32_t flags, void *owner)
{
    psc_send_args_t args = start_send_args(op, call, flags, owner);

    return op->worker->api->am_send(call->conn, call->id, call->blob->buf,
                                    (size_t)call->blob->len, &args, &op->core);
}

static psc_status_t start_event(psb_op_t *op, const psb_call_t *call,
                                uint32_t flags, void *owner)
{
    psc_status_t status = op->worker->api->event_create(
        op->worker->core, flags & ~PSC_FLAG_TRY, owner, &op->core);

    (void)call;
    return status == PSC_OK ? PSC_INPROGRESS : status;
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
};

/* Raises the error of a put or a get that exceeds the peer's region. */
static int start_out_of_bounds(const psb_op_t *op, const psb_call_t *call)
{
    const psc_iov_t *iov = psb_buffers_iov(&op->buffers);
    psb_bounds_t bounds = {.offset = call->offset,
                           .size = op->worker->api->region_size(
                               call->blob->buf, (size_t)call->blob->len)};

    for (size_t i = 0; i < psb_buffers_n(&op->buffers); i++)
        bounds.nbytes += iov[i].len;
    psb_raise_bounds(op->worker->state, op->origin, &bounds);
    return -1;
}

int psb_op_start(psb_op_t *op, psb_call_t *call, uint32_t flags, void *owner)
{
    starter_t start = starters[op->kind];
    psb_worker_t *worker = op->worker;
    psc_status_t status;

    if (PSB_UNLIKELY(worker->status != PSC_OK)) {
        psb_raise(worker->state, op->origin, worker->status, 0);
        return -1;
    }
    op->phase.result = (psc_result_t){.status = PSC_OK, .rank = -1};
    status = start(op, call, flags | PSC_FLAG_TRY, owner);
    if (PSB_UNLIKELY(status == PSC_ERR_NO_RESOURCE)) {
        worker->n_inside++;
        Py_BEGIN_ALLOW_THREADS status = start(op, call, flags, owner);
        Py_END_ALLOW_THREADS worker->n_inside--;
    }
    if (PSB_UNLIKELY(status == PSC_ERR_BOUNDS))
        return start_out_of_bounds(op, call);
    if (status == PSC_INPROGRESS) {
        psb_op_flight(op)->target =
            !call->post && psb_op_goes_out(op) ? call->conn : NULL;
    } else {
        op->phase.result.status = status;
        psb_op_set_done(op, op->phase.result);
    }
    return 0;
}
