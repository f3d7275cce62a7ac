/* Handing an operation to the core: a function per kind. */
#include "binding.h"

typedef psc_status_t (*starter_t)(hot_op_t *op, const hot_call_t *call,
                                     uint32_t flags, void *owner);

static psc_send_args_t start_send_args(const hot_op_t *op,
                                       const hot_call_t *call, uint32_t flags,
                                       void *owner)
{
    return (psc_send_args_t){.context = call->context,
                             .tag = call->tag,
                             .iov = hot_buffers_iov(&op->buffers),
                             .n_iov = op->buffers.n,
                             .flags = flags,
                             .owner = owner};
}

static psc_recv_args_t start_recv_args(const hot_op_t *op,
                                       const hot_call_t *call, uint32_t flags,
                                       void *owner)
{
    return (psc_recv_args_t){.source = call->conn,
                             .context = call->context,
                             .tag = call->tag,
                             .iov = hot_buffers_iov(&op->buffers),
                             .n_iov = op->buffers.n,
                             .flags = flags,
                             .owner = owner};
}

static psc_status_t start_send(hot_op_t *op, const hot_call_t *call,
                               uint32_t flags, void *owner)
{
    psc_send_args_t args = start_send_args(op, call, flags, owner);

    if (HOT_UNLIKELY(call->lend))
        args.flags |= PSC_FLAG_LEND;
    return op->worker->api->send(call->conn, &args, &op->core);
}

static psc_status_t start_receive(hot_op_t *op, const hot_call_t *call,
                                  psc_recv_args_t *args)
{
    if (!call->post)
        args->polls = op->polls = hot_op_polls(op);
    return op->worker->api->recv(op->worker->core, args, &op->result,
                                 &op->core);
}

static psc_status_t start_recv(hot_op_t *op, const hot_call_t *call,
                               uint32_t flags, void *owner)
{
    psc_recv_args_t args = start_recv_args(op, call, flags, owner);

    return start_receive(op, call, &args);
}

static psc_status_t start_recv_new(hot_op_t *op, const hot_call_t *call,
                                   uint32_t flags, void *owner)
{
    return start_recv(op, call, flags | PSC_FLAG_NO_BUFFER, owner);
}

/* A short message comes into the room. */
static psc_status_t start_recv_room(hot_op_t *op, const hot_call_t *call,
                                    uint32_t flags, void *owner)
{
    psc_recv_args_t args =
        start_recv_args(op, call, flags | PSC_FLAG_NO_BUFFER, owner);
    psc_iov_t piece = hot_room_piece(op->fresh);

    args.iov = &piece;
    args.n_iov = 1;
    return start_receive(op, call, &args);
}

static psc_status_t start_probe(hot_op_t *op, const hot_call_t *call,
                                uint32_t flags, void *owner)
{
    psc_recv_args_t args = start_recv_args(op, call, flags, owner);

    return op->worker->api->probe(op->worker->core, &args, &op->result,
                                  &op->core);
}

static psc_status_t start_put(hot_op_t *op, const hot_call_t *call,
                              uint32_t flags, void *owner)
{
    psc_send_args_t args = start_send_args(op, call, flags, owner);

    return op->worker->api->put(call->conn, &args, call->blob->buf,
                                (size_t)call->blob->len, call->offset,
                                &op->core);
}

static psc_status_t start_get(hot_op_t *op, const hot_call_t *call,
                              uint32_t flags, void *owner)
{
    psc_send_args_t args = start_send_args(op, call, flags, owner);

    return op->worker->api->get(call->conn, &args, call->blob->buf,
                                (size_t)call->blob->len, call->offset,
                                &op->core);
}

static psc_status_t start_am(hot_op_t *op, const hot_call_t *call,
                             uint32_t flags, void *owner)
{
    psc_send_args_t args = start_send_args(op, call, flags, owner);

    return op->worker->api->am_send(call->conn, call->id, call->blob->buf,
                                    (size_t)call->blob->len, &args, &op->core);
}

static psc_status_t start_event(hot_op_t *op, const hot_call_t *call,
                                uint32_t flags, void *owner)
{
    psc_status_t status = op->worker->api->event_create(
        op->worker->core, flags & ~PSC_FLAG_TRY, owner, &op->core);

    (void)call;
    return status == PSC_OK ? PSC_INPROGRESS : status;
}

static const starter_t starters[HOT_KINDS] = {
    [HOT_SEND] = start_send,
    [HOT_RECV_INTO] = start_recv,
    [HOT_RECV_NEW] = start_recv_new,
    [HOT_RECV_ROOM] = start_recv_room,
    [HOT_RECV_STATUS] = start_recv_new,
    [HOT_RECV_VIEW] = start_recv_new,
    [HOT_RECV_MEMORY] = start_recv_new,
    [HOT_PROBE] = start_probe,
    [HOT_MATCH] = start_recv_new,
    [HOT_PUT] = start_put,
    [HOT_GET] = start_get,
    [HOT_AM] = start_am,
    [HOT_EVENT] = start_event,
};

static bool start_goes_out(const hot_op_t *op)
{
    return op->kind == HOT_SEND || op->kind == HOT_AM || op->kind == HOT_PUT ||
           op->kind == HOT_GET;
}

/* A put or a get of more than the peer's region has. */
static int start_out_of_bounds(const hot_op_t *op, const hot_call_t *call)
{
    const psc_iov_t *iov = hot_buffers_iov(&op->buffers);
    hot_bounds_t bounds = {
        .offset = call->offset,
        .size = op->worker->api->region_size(call->blob->buf,
                                             (size_t)call->blob->len)};

    for (size_t i = 0; i < op->buffers.n; i++)
        bounds.nbytes += iov[i].len;
    hot_raise_bounds(op->worker->state, op->origin, &bounds);
    return -1;
}

int hot_op_start(hot_op_t *op, hot_call_t *call, uint32_t flags, void *owner)
{
    starter_t start = starters[op->kind];
    hot_worker_t *worker = op->worker;
    psc_status_t status;

    if (HOT_UNLIKELY(worker->status != PSC_OK)) {
        hot_raise(worker->state, op->origin, worker->status, 0);
        return -1;
    }
    status = start(op, call, flags | PSC_FLAG_TRY, owner);
    if (HOT_UNLIKELY(status == PSC_ERR_NO_RESOURCE)) {
        worker->n_inside++;
        Py_BEGIN_ALLOW_THREADS
        status = start(op, call, flags, owner);
        Py_END_ALLOW_THREADS
        worker->n_inside--;
    }
    if (HOT_UNLIKELY(status == PSC_ERR_BOUNDS))
        return start_out_of_bounds(op, call);
    if (status != PSC_INPROGRESS) {
        op->result.status = status;
        op->done = true;
    } else if (!call->post && start_goes_out(op)) {
        op->target = call->conn;
    }
    return 0;
}
