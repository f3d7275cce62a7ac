/* One queue pair with reliable connection: its states, and the requests that
 * are posted to it. */
#include <errno.h>
#include <stdlib.h>
#include <sys/random.h>

#include "driver.h"

/* maximum number of requests in a row that are posted without
 * IBV_SEND_SIGNALED */
#define IB_SILENT_MAX 8u

/* ---- life ---- */

static bool ib_queue_init(ib_queue_t *queue, const ib_device_t *device)
{
    bool windows = device->attr.device_cap_flags & IBV_DEVICE_MEM_WINDOW;
    struct ibv_qp_attr attr = {
        .qp_state = IBV_QPS_INIT,
        .port_num = device->port,
        .qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
                           (windows ? IBV_ACCESS_MW_BIND : 0u),
    };

    return ibv_modify_qp(queue->qp, &attr,
                         IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
                             IBV_QP_ACCESS_FLAGS) == 0;
}

static bool ib_queue_make(ib_queue_t *queue, ib_device_t *device)
{
    struct ibv_pd *pd = device->td_pd ? device->td_pd : device->pd;
    struct ibv_qp_init_attr init = {
        .send_cq = device->send_cq,
        .recv_cq = device->recv_cq,
        .srq = device->srq,
        .cap = {.max_send_wr = queue->size,
                .max_send_sge = IB_PIECES_MAX,
                .max_inline_data = IB_INLINE_MAX},
        .qp_type = IBV_QPT_RC,
    };

    /* Some devices refuse a high limit of inline bytes without reporting their
     * maximum, so halve the limit until it is accepted. */
    do {
        queue->qp = ibv_create_qp(pd, &init);
        if (queue->qp || init.cap.max_inline_data == 0)
            break;
        init.cap.max_inline_data /= 2;
    } while (true);
    /* the device may grant more than ib_am_short has room for */
    queue->inline_max = init.cap.max_inline_data < IB_INLINE_MAX
                            ? init.cap.max_inline_data
                            : IB_INLINE_MAX;
    return queue->qp != NULL;
}

bool ib_queue_open(ib_queue_t *queue, ib_device_t *device, uint32_t size,
                   void *owner)
{
    *queue = (ib_queue_t){.size = size, .owner = owner};
    queue->posts = calloc(size, sizeof(*queue->posts));
    if (!queue->posts)
        return false;
    if (getrandom(&queue->psn, sizeof(queue->psn), 0) != sizeof(queue->psn) ||
        !ib_queue_make(queue, device) || !ib_queue_init(queue, device)) {
        ib_queue_close(queue);
        return false;
    }
    queue->psn &= IB_PSN_MASK;
    return true;
}

void ib_queue_close(ib_queue_t *queue)
{
    if (queue->qp)
        ibv_destroy_qp(queue->qp);
    free(queue->posts);
    queue->qp = NULL;
    queue->posts = NULL;
}

/* ---- connecting ---- */

static uint8_t ib_device_reads(const ib_device_t *device)
{
    int most = device->attr.max_qp_rd_atom < device->attr.max_qp_init_rd_atom
                   ? device->attr.max_qp_rd_atom
                   : device->attr.max_qp_init_rd_atom;

    return (uint8_t)(most < (int)IB_RD_ATOMIC ? most : (int)IB_RD_ATOMIC);
}

void ib_queue_address(const ib_queue_t *queue, const ib_device_t *device,
                      ib_qp_address_t *address_p)
{
    *address_p = (ib_qp_address_t){
        .gid = device->gid,
        .qpn = queue->qp->qp_num,
        .psn = queue->psn,
        .lid = device->port_attr.lid,
        .mtu = (uint8_t)device->mtu,
        .rd_atomic = ib_device_reads(device),
    };
}

/* Returns true if packets need a global route header. They do on Ethernet,
 * which has no LIDs, and on InfiniBand if the peer is in another subnet. */
static bool ib_path_global(const ib_device_t *device,
                           const ib_qp_address_t *peer)
{
    return ib_device_ethernet(device) || peer->lid == 0 ||
           device->port_attr.flags & IBV_QPF_GRH_REQUIRED ||
           peer->gid.global.subnet_prefix != device->gid.global.subnet_prefix;
}

static bool ib_queue_to_receive(ib_queue_t *queue, const ib_device_t *device,
                                const ib_qp_address_t *peer,
                                const ib_path_t *path)
{
    struct ibv_qp_attr attr = {
        .qp_state = IBV_QPS_RTR,
        .path_mtu =
            peer->mtu < device->mtu ? (enum ibv_mtu)peer->mtu : device->mtu,
        .dest_qp_num = peer->qpn,
        .rq_psn = peer->psn,
        .max_dest_rd_atomic = ib_device_reads(device),
        .min_rnr_timer = IB_MIN_RNR_TIMER,
        .ah_attr = {.dlid = peer->lid,
                    .sl = (uint8_t)path->service_level,
                    .port_num = device->port},
    };

    if (ib_path_global(device, peer)) {
        attr.ah_attr.is_global = 1;
        attr.ah_attr.grh.dgid = peer->gid;
        attr.ah_attr.grh.sgid_index = device->gid_index;
        attr.ah_attr.grh.hop_limit = 64;
    }
    return ibv_modify_qp(queue->qp, &attr,
                         IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU |
                             IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                             IBV_QP_MAX_DEST_RD_ATOMIC |
                             IBV_QP_MIN_RNR_TIMER) == 0;
}

static bool ib_queue_to_send(ib_queue_t *queue, const ib_device_t *device,
                             const ib_qp_address_t *peer, const ib_path_t *path)
{
    uint8_t reads = ib_device_reads(device);
    struct ibv_qp_attr attr = {
        .qp_state = IBV_QPS_RTS,
        .sq_psn = queue->psn,
        .max_rd_atomic = peer->rd_atomic < reads ? peer->rd_atomic : reads,
        .timeout = (uint8_t)path->timeout,
        .retry_cnt = (uint8_t)path->retry_count,
        /* 7: retry without limit, because a peer that computes posts no receive
         * buffers */
        .rnr_retry = 7,
    };

    return ibv_modify_qp(queue->qp, &attr,
                         IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT |
                             IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                             IBV_QP_MAX_QP_RD_ATOMIC) == 0;
}

bool ib_queue_connect(ib_queue_t *queue, const ib_device_t *device,
                      const ib_qp_address_t *peer, const ib_path_t *path)
{
    queue->connected = ib_queue_to_receive(queue, device, peer, path) &&
                       ib_queue_to_send(queue, device, peer, path);
    return queue->connected;
}

bool ib_queue_reset(ib_queue_t *queue, const ib_device_t *device)
{
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RESET};

    queue->connected = queue->broken = false;
    queue->done = queue->posted;
    queue->silent = 0;
    return ibv_modify_qp(queue->qp, &attr, IBV_QP_STATE) == 0 &&
           ib_queue_init(queue, device);
}

/* ---- posting ---- */

bool ib_queue_post(ib_queue_t *queue, const ib_post_t *post)
{
    bool signal = post->signal || queue->silent >= IB_SILENT_MAX;
    struct ibv_send_wr *bad,
        wr = {
            .wr_id = queue->posted,
            .sg_list = (struct ibv_sge *)post->pieces,
            .num_sge = post->n_pieces,
            .opcode = post->opcode,
            .send_flags = (post->copy ? IBV_SEND_INLINE : 0u) |
                          (signal ? IBV_SEND_SIGNALED : 0u),
            .wr.rdma = {.remote_addr = post->address, .rkey = post->rkey},
        };
    int error = ibv_post_send(queue->qp, &wr, &bad);

    if (error != 0) {
        errno = error;
        return false;
    }
    queue->posts[queue->posted++ % queue->size] = *post;
    queue->silent = signal ? 0 : queue->silent + 1;
    return true;
}

bool ib_queue_bind(ib_queue_t *queue, struct ibv_mw *window,
                   const struct ibv_mw_bind_info *info, const ib_job_t *job)
{
    struct ibv_mw_bind bind = {
        .wr_id = queue->posted,
        .send_flags = IBV_SEND_SIGNALED,
        .bind_info = *info,
    };

    if (!queue->connected || queue->broken || ib_queue_room(queue) <= 1 ||
        ibv_bind_mw(queue->qp, window, &bind) != 0)
        return false;
    queue->posts[queue->posted++ % queue->size] =
        (ib_post_t){.signal = true, .job = *job};
    queue->silent = 0;
    return true;
}

/* The marker that is posted here completes after all other requests. Without
 * it, unsignalled requests that had succeeded would never be reported. */
void ib_queue_abort(ib_queue_t *queue)
{
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};
    ib_post_t marker = {
        .opcode = IBV_WR_RDMA_WRITE,
        .signal = true,
        .job = {.buffer = IB_NO_BUFFER},
    };

    if (queue->broken || !queue->connected) {
        queue->broken = true;
        return;
    }
    queue->broken = true;
    if (ibv_modify_qp(queue->qp, &attr, IBV_QP_STATE) == 0 &&
        !ib_queue_idle(queue))
        ib_queue_post(queue, &marker);
}

/* ---- the table of queues ---- */

static ib_queue_t **ib_queue_bucket(ib_queues_t *queues, uint32_t number)
{
    return &queues->buckets[number % IB_BUCKETS];
}

void ib_queue_enlist(ib_queues_t *queues, ib_queue_t *queue)
{
    ib_queue_t **bucket = ib_queue_bucket(queues, queue->qp->qp_num);

    queue->next = *bucket;
    *bucket = queue;
}

void ib_queue_strike(ib_queues_t *queues, ib_queue_t *queue)
{
    ib_queue_t **at = ib_queue_bucket(queues, queue->qp->qp_num);

    while (*at && *at != queue)
        at = &(*at)->next;
    if (*at)
        *at = queue->next;
}

ib_queue_t *ib_queue_find(ib_queues_t *queues, uint32_t number)
{
    ib_queue_t *queue = *ib_queue_bucket(queues, number);

    while (queue && queue->qp->qp_num != number)
        queue = queue->next;
    return queue;
}
