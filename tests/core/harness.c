#include "harness.h"

#include <pthread.h>
#include <unistd.h>

#include "pscompy/core/types/connection.h"
#include "pscompy/core/wire.h"
#include "pscompy/core/worker.h"

const psc_api_t *api;
options_t options;

static psc_setting_t settings[64];
static uint32_t n_settings;
static uint64_t next_id = 1;

void fail_at(const char *file, int line, const char *what)
{
    fprintf(stderr, "%s:%d: %s\n", file, line, what);
    exit(1);
}

/* argument: NAME=number:text. Later settings of a name replace earlier ones. */
void harness_setting(char *argument)
{
    char *equals = strchr(argument, '=');
    char *colon = equals ? strchr(equals, ':') : NULL;
    uint32_t at = 0;

    check(colon && n_settings < 64);
    *equals = *colon = 0;
    while (at < n_settings && strcmp(settings[at].name, argument) != 0)
        at++;
    settings[at] =
        (psc_setting_t){argument, colon + 1, strtoll(equals + 1, NULL, 10)};
    n_settings = at == n_settings ? n_settings + 1 : n_settings;
}

uint64_t harness_number(const char *name)
{
    for (uint32_t i = 0; i < n_settings; i++) {
        if (strcmp(settings[i].name, name) == 0)
            return (uint64_t)settings[i].number;
    }
    return 0;
}

uintptr_t TRANSPORT(void);

bool harness_one_worker(void)
{
#ifdef ONE_WORKER
    return true;
#else
    return false;
#endif
}

uintptr_t harness_transport(void)
{
    return TRANSPORT();
}

void side_open(side_t *side, uint32_t index)
{
    psc_worker_config_t config = {.index = index,
                                  .spin_ns =
                                      options.spin_ns ? options.spin_ns : 50000,
                                  .unexpected_max = options.unexpected_max,
                                  .eager_window = 256 << 10,
                                  .rts_max = options.rts_max,
                                  .tuple_min = options.tuple_min,
                                  .tuple_am = options.tuple_am,
                                  .pool_max = options.pool_max};
    char reason[PSC_REASON_MAX];

    side->worker = psc_worker_create(&config);
    check(side->worker);
    psc_worker_log_to(side->worker, 2, 1);
    if (options.idle_iface)
        check(psc_worker_open(side->worker, TRANSPORT(), 0, settings,
                              n_settings, reason) == 0);
    side->iface = psc_worker_open(side->worker, TRANSPORT(), 0, settings,
                                  n_settings, reason);
    if (side->iface < 0) {
        fprintf(stderr, "%s\n", reason);
        exit(1);
    }
}

int pair_open_more(pair_t *pair, uintptr_t ops, char *reason)
{
    return psc_worker_open(pair->a.worker, ops, 0, settings, n_settings,
                           reason);
}

static psc_lane_t *lane_open(side_t *side, uint8_t *address, size_t *len_p)
{
    psc_lane_t *lane = psc_lane_create(side->worker, side->iface, next_id++);

    check(lane);
    *len_p = PSC_ADDRESS_MAX;
    check(psc_lane_address(lane, address, len_p) == PSC_OK);
    return lane;
}

static psc_conn_t *conn_install(side_t *side, psc_lane_t **lanes, uint32_t n)
{
    psc_proto_params_t params = {.eager_max = options.eager_max,
                                 .zcopy_min = 16384,
                                 .scheme = options.scheme,
                                 .fragment = 512 << 10};
    psc_conn_t *conn = psc_conn_create(side->worker, next_id++, -1, true);

    check(conn && psc_conn_connecting(conn) == PSC_OK);
    check(psc_conn_install(conn, lanes, n, &params) == PSC_OK);
    return conn;
}

void pair_lanes(pair_t *pair, psc_lane_t **a, psc_lane_t **b)
{
    static const uint8_t token[PSC_TOKEN_SIZE] = {1, 2, 3};
    uint8_t at_a[PSC_ADDRESS_MAX], at_b[PSC_ADDRESS_MAX];
    size_t len_a, len_b;
    psc_lane_t *lane_a = lane_open(&pair->a, at_a, &len_a);
    psc_lane_t *lane_b = lane_open(&pair->b, at_b, &len_b);

    check(psc_lane_connect(lane_b, 0, PSC_ROLE_ACCEPTOR, token, at_a, len_a) >=
          0);
    check(psc_lane_connect(lane_a, 0, PSC_ROLE_CONNECTOR, token, at_b, len_b) >=
          0);
    until(pair, psc_lane_state(lane_a) >= PSC_LANE_UP &&
                    psc_lane_state(lane_b) >= PSC_LANE_UP);
    check(psc_lane_state(lane_a) == PSC_LANE_UP);
    *a = lane_a;
    *b = lane_b;
}

void lane_fail(psc_lane_t *lane)
{
    psc_iface_t *iface = lane->slot->iface;

    check(psc_worker_enter(lane->worker, 0) == PSC_OK);
    if (lane->state == PSC_LANE_UP)
        iface->up->ep_failed(lane->ep, PSC_ERR_TRANSPORT, "the test says so");
    psc_worker_leave(lane->worker);
}

psc_conn_t *side_install(side_t *side, psc_lane_t *lane)
{
    return conn_install(side, &lane, 1);
}

static int side_open_unlike(const side_t *side, bool unable)
{
    char reason[PSC_REASON_MAX];
    int iface = psc_worker_open(side->worker, TRANSPORT(), 0, settings,
                                n_settings, reason);
    psc_iface_attr_t *attr;

    check(iface > side->iface);
    attr = &psc_iface_slot(&side->worker->interfaces, iface)->attr;
    attr->max_bcopy = 2048;
    if (unable)
        attr->caps &= ~(uint64_t)(PSC_CAP_PUT | PSC_CAP_GET);
    return iface;
}

pair_t pair_unlike(const pair_t *pair)
{
    pair_t unlike = *pair;
    bool two = pair->b.worker != pair->a.worker;

    if (!options.unlike)
        return unlike;
    unlike.a.iface = side_open_unlike(&pair->a, !options.unlike_b || !two);
    unlike.b.iface = two ? side_open_unlike(&pair->b, true) : unlike.a.iface;
    return unlike;
}

void pair_join_by(pair_t *pair, uint32_t n_lanes, psc_conn_t **a,
                  psc_conn_t **b)
{
    psc_lane_t *lanes_a[LANES], *lanes_b[LANES];
    pair_t unlike = pair_unlike(pair);

    for (uint32_t i = 0; i < n_lanes; i++)
        pair_lanes(options.unlike & 1u << i ? &unlike : pair, &lanes_a[i],
                   &lanes_b[i]);
    *a = conn_install(&pair->a, lanes_a, n_lanes);
    *b = conn_install(&pair->b, lanes_b, n_lanes);
}

void pair_join(pair_t *pair, psc_conn_t **a, psc_conn_t **b)
{
    pair_join_by(pair, 1, a, b);
}

void pair_open(pair_t *pair)
{
    memset(pair, 0, sizeof *pair);
    side_open(&pair->a, 0);
#ifdef ONE_WORKER
    pair->b = pair->a;
#else
    side_open(&pair->b, 0);
#endif
    pair_join(pair, &pair->a.conn, &pair->b.conn);
}

void *side_close(void *arg)
{
    side_t *side = arg;

    psc_worker_destroy(side->worker);
    return NULL;
}

/* Close both sides at the same time, because each waits for the other's
 * CLOSE_ACK, for a limited time. */
void pair_close(pair_t *pair)
{
    pthread_t other;
    bool two = pair->b.worker != pair->a.worker;

    if (two)
        check(pthread_create(&other, NULL, side_close, &pair->b) == 0);
    side_close(&pair->a);
    if (two)
        check(pthread_join(other, NULL) == 0);
}

void pair_progress(pair_t *pair)
{
    api->progress(pair->a.worker, 0);
    api->progress(pair->b.worker, 0);
}

void lane_fills(psc_lane_t *lane)
{
    static char junk[32768];
    const psc_wire_credit_t wire = {0};

    for (int idle = 0; idle < 50; idle++) {
        psc_iov_t iov = {junk, 2 * sizeof junk};

        check(psc_worker_enter(lane->worker, 0) == PSC_OK);
        while (iov.len > 0) {
            iov.len /= 2;
            while (lane->slot->ops->am_bcopy(lane->ep, PSC_WIRE_CREDIT, &wire,
                                             sizeof wire, &iov, 1) == PSC_OK)
                idle = 0;
        }
        psc_worker_leave(lane->worker);
        api->progress(lane->worker, 0);
        usleep(1000);
    }
}

uint64_t count(psc_worker_t *worker, psc_counter_t counter)
{
    uint64_t values[PSC_COUNTER_COUNT];

    psc_worker_counters(worker, values);
    return values[counter];
}

/* Byte i of a filled buffer is i * 31 + i / 256 + seed. Its pieces of 256 bytes
 * are those of this ring, so that a sanitizer sees accesses to pieces, not to
 * each byte. */
enum { PIECE = 256 };
static uint8_t ring[2 * PIECE];

__attribute__((constructor)) static void ring_make(void)
{
    for (size_t i = 0; i < sizeof ring; i++)
        ring[i] = (uint8_t)(i * 31);
}

static const uint8_t *piece(unsigned seed)
{
    return ring + seed * 223 % PIECE; /* 223 * 31 is 1 modulo 256 */
}

static size_t piece_len(size_t left)
{
    return left < PIECE ? left : PIECE;
}

void fill(void *buffer, size_t len, unsigned seed)
{
    for (size_t at = 0; at < len; at += PIECE)
        memcpy((uint8_t *)buffer + at, piece(seed++), piece_len(len - at));
}

bool filled(const void *buffer, size_t len, unsigned seed)
{
    for (size_t at = 0; at < len; at += PIECE) {
        if (memcmp((const uint8_t *)buffer + at, piece(seed++),
                   piece_len(len - at)) != 0)
            return false;
    }
    return true;
}

psc_request_t *post_send(side_t *side, const void *buffer, size_t len,
                         int32_t tag)
{
    psc_iov_t iov = {(void *)buffer, len};
    psc_send_args_t args = {
        .context = CONTEXT, .tag = tag, .iov = &iov, .n_iov = 1};
    psc_request_t *request = NULL;
    psc_status_t status = api->send(side->conn, &args, &request);

    check(status == PSC_OK || status == PSC_INPROGRESS);
    return request;
}

psc_request_t *post_recv(side_t *side, psc_conn_t *source, void *buffer,
                         size_t len, int32_t tag, psc_result_t *result)
{
    psc_iov_t iov = {buffer, len};
    psc_recv_args_t args = {.source = source,
                            .context = CONTEXT,
                            .tag = tag,
                            .iov = &iov,
                            .n_iov = 1};
    psc_request_t *request = NULL;

    memset(result, 0, sizeof *result);
    result->status = api->recv(side->worker, &args, result, &request);
    return request;
}

psc_result_t finish(pair_t *pair, psc_request_t *request)
{
    psc_result_t result;

    until(pair, done(request));
    result = request->result;
    api->request_free(request);
    return result;
}

void sent(pair_t *pair, psc_request_t *send)
{
    if (send)
        check(finish(pair, send).status == PSC_OK);
}

void settle(pair_t *pair)
{
    int64_t end = psc_clock_now() + 20000000;

    for (int passes = 0; passes < 1000 || psc_clock_now() < end; passes++) {
        pair_progress(pair);
        if (passes >= 1000)
            usleep(1000);
    }
}
