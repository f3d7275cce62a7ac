/* What verbs can do, without any library above them: `verbs TEST SIZE COUNT`
 * runs two processes over the first active port and prints seconds.
 *
 *   latency  COUNT messages of SIZE bytes there and back. Each is written into
 *            the other's memory, behind it the number of the round, which the
 *            other polls for, offering the processor between two looks
 *   stream   COUNT writes of SIZE bytes, all into the same memory, in windows
 *            of WINDOW: each has ended when the next begins
 *
 * Where two processes share one processor, waiting for events costs more than
 * offering it does; elsewhere nobody takes the offer. */
#include <infiniband/verbs.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { WINDOW = 64, IN_FLIGHT = 16, SIGNAL_EACH = 8, WARM_UP = 100, LINE = 64 };

typedef struct {
    union ibv_gid gid;
    uint64_t address;
    uint32_t qpn, rkey;
    uint16_t lid;
} place_t;

typedef struct {
    int fd; /* to the other process */
    struct ibv_context *context;
    struct ibv_pd *pd;
    struct ibv_cq *cq;
    struct ibv_qp *qp;
    struct ibv_mr *mr;
    struct ibv_port_attr port;
    uint32_t gid_index, inline_max;
    uint8_t *out, *in; /* SIZE bytes each, then the number of a round */
    size_t size;
    unsigned posted, ended;
    place_t own, peer;
} side_t;

static void fail(const char *what)
{
    perror(what);
    exit(1);
}

static double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* ---- connecting ---- */

/* RoCE v2 over IPv4 where there is such an entry, else the last one. */
static void choose_gid(side_t *me)
{
    static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};
    struct ibv_gid_entry entry;

    for (uint32_t i = 0; i < (uint32_t)me->port.gid_tbl_len; i++) {
        if (ibv_query_gid_ex(me->context, 1, i, &entry, 0))
            continue;
        me->gid_index = i;
        me->own.gid = entry.gid;
        if (!memcmp(entry.gid.raw, mapped, sizeof mapped) &&
            entry.gid_type == IBV_GID_TYPE_ROCE_V2)
            return;
    }
}

static void open_device(side_t *me)
{
    struct ibv_device **list = ibv_get_device_list(NULL);
    size_t room = 2 * (me->size + LINE);

    if (!list || !*list || !(me->context = ibv_open_device(*list)))
        fail("no device");
    if (ibv_query_port(me->context, 1, &me->port))
        fail("port 1");
    choose_gid(me);
    me->pd = ibv_alloc_pd(me->context);
    me->cq = ibv_create_cq(me->context, 2 * WINDOW, NULL, NULL, 0);
    me->out = mmap(NULL, room, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (!me->pd || !me->cq || me->out == MAP_FAILED)
        fail("protection domain");
    memset(me->out, 0, room);
    me->in = me->out + me->size + LINE;
    me->mr = ibv_reg_mr(me->pd, me->out, room,
                        IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
    if (!me->mr)
        fail("ibv_reg_mr");
}

static void open_queue(side_t *me)
{
    struct ibv_qp_init_attr init = {
        .send_cq = me->cq,
        .recv_cq = me->cq,
        .cap = {.max_send_wr = WINDOW,
                .max_send_sge = 1,
                .max_recv_wr = 1,
                .max_recv_sge = 1,
                .max_inline_data = 256},
        .qp_type = IBV_QPT_RC,
    };
    struct ibv_qp_attr attr = {
        .qp_state = IBV_QPS_INIT,
        .port_num = 1,
        .qp_access_flags = IBV_ACCESS_REMOTE_WRITE,
    };

    me->qp = ibv_create_qp(me->pd, &init);
    if (!me->qp || ibv_modify_qp(me->qp, &attr,
                                 IBV_QP_STATE | IBV_QP_PKEY_INDEX |
                                     IBV_QP_PORT | IBV_QP_ACCESS_FLAGS))
        fail("queue pair");
    me->inline_max = init.cap.max_inline_data;
}

static void connect_queue(side_t *me)
{
    struct ibv_qp_attr attr = {
        .qp_state = IBV_QPS_RTR,
        .path_mtu = me->port.active_mtu,
        .dest_qp_num = me->peer.qpn,
        .max_dest_rd_atomic = 1,
        .min_rnr_timer = 12,
        .ah_attr = {.is_global = 1,
                    .port_num = 1,
                    .dlid = me->peer.lid,
                    .grh = {.dgid = me->peer.gid,
                            .hop_limit = 64,
                            .sgid_index = (uint8_t)me->gid_index}},
    };

    if (ibv_modify_qp(me->qp, &attr,
                      IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU |
                          IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                          IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER))
        fail("ready to receive");
    attr.qp_state = IBV_QPS_RTS;
    attr.timeout = 14;
    attr.retry_cnt = 7;
    attr.rnr_retry = 7;
    attr.max_rd_atomic = 1;
    if (ibv_modify_qp(me->qp, &attr,
                      IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT |
                          IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                          IBV_QP_MAX_QP_RD_ATOMIC))
        fail("ready to send");
}

/* Both sides have come so far. */
static void meet(side_t *me, const void *own, void *peer, size_t len)
{
    if (write(me->fd, own, len) != (ssize_t)len ||
        recv(me->fd, peer, len, MSG_WAITALL) != (ssize_t)len)
        fail("the other process");
}

static void join(side_t *me)
{
    char here = 0, there;

    open_device(me);
    open_queue(me);
    me->own.address = (uintptr_t)me->in;
    me->own.rkey = me->mr->rkey;
    me->own.qpn = me->qp->qp_num;
    me->own.lid = me->port.lid;
    meet(me, &me->own, &me->peer, sizeof me->own);
    connect_queue(me);
    meet(me, &here, &there, 1);
}

/* ---- moving ---- */

static void drain(side_t *me, unsigned most)
{
    struct ibv_wc wc;

    while (me->posted - me->ended > most) {
        int n = ibv_poll_cq(me->cq, 1, &wc);

        if (n < 0 || (n && wc.status != IBV_WC_SUCCESS))
            fail(n < 0 ? "ibv_poll_cq" : ibv_wc_status_str(wc.status));
        if (n)
            me->ended = (unsigned)wc.wr_id;
        else
            sched_yield();
    }
}

static void post(side_t *me, size_t len, unsigned signal_each)
{
    struct ibv_sge piece = {(uintptr_t)me->out, (uint32_t)len, me->mr->lkey};
    struct ibv_send_wr *bad, wr = {
                                 .wr_id = ++me->posted,
                                 .sg_list = &piece,
                                 .num_sge = 1,
                                 .opcode = IBV_WR_RDMA_WRITE,
                                 .wr.rdma = {me->peer.address, me->peer.rkey},
                             };

    if (len <= me->inline_max)
        wr.send_flags |= IBV_SEND_INLINE;
    if (me->posted % signal_each == 0)
        wr.send_flags |= IBV_SEND_SIGNALED;
    if (ibv_post_send(me->qp, &wr, &bad))
        fail("ibv_post_send");
}

static void say(side_t *me, uint8_t round)
{
    me->out[me->size] = round;
    drain(me, IN_FLIGHT);
    post(me, me->size + 1, SIGNAL_EACH);
}

static void hear(side_t *me, uint8_t round)
{
    while (__atomic_load_n(&me->in[me->size], __ATOMIC_ACQUIRE) != round)
        sched_yield();
}

static double latency(side_t *me, int first, long count)
{
    double start = 0;

    for (long i = -WARM_UP; i < count; i++) {
        uint8_t round = (uint8_t)(i & 0x7f) + 1;

        if (i == 0)
            start = now();
        if (first)
            say(me, round);
        hear(me, round);
        if (!first)
            say(me, round);
    }
    return now() - start;
}

static double stream(side_t *me, int first, long count)
{
    double start = now();

    if (!first)
        return 0;
    for (long i = 0; i < count; i++) {
        if (i % WINDOW == 0)
            drain(me, 0);
        post(me, me->size, 1);
    }
    drain(me, 0);
    return now() - start;
}

int main(int argc, char **argv)
{
    side_t me = {.size = argc == 4 ? strtoul(argv[2], NULL, 10) : 0};
    long count = argc == 4 ? strtol(argv[3], NULL, 10) : 0;
    int fds[2], first, status;
    double seconds;
    char here = 0, there;

    if (me.size == 0 || count <= 0)
        return fprintf(stderr, "verbs latency|stream SIZE COUNT\n"), 2;
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, fds))
        fail("socketpair");
    first = fork() != 0;
    me.fd = fds[first];
    close(fds[!first]);
    join(&me);
    seconds = strcmp(argv[1], "stream") == 0 ? stream(&me, first, count)
                                             : latency(&me, first, count);
    meet(&me, &here, &there, 1);
    if (!first)
        return 0;
    printf("%.9f\n", seconds);
    wait(&status);
    return status != 0;
}
