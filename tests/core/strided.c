/* Messages from and into memory that is not contiguous, against a copy that
 * goes byte by byte. */
#include "harness.h"
#include "pscompy/core/pieces.h"

enum { DIMS = 4, EXTENT = 64 << 10 };

/* A layout whose runs do not overlap, in memory of its own. */
typedef struct strided {
    psc_layout_t layout;
    psc_dim_t dims[DIMS];
    psc_iov_t pieces[2];
    size_t nbytes, extent;
    char *memory;
} strided_t;

static unsigned seed = 1;

static unsigned below(unsigned n)
{
    seed = seed * 1103515245u + 12345u;
    return (seed >> 8) % n;
}

/* Exchange the dimensions at random, so that any may have the longest
 * stride. */
static void strided_mix(strided_t *it)
{
    for (size_t i = it->layout.n_dims; i-- > 1;) {
        size_t other = below((unsigned)i + 1);
        psc_dim_t dim = it->dims[i];

        it->dims[i] = it->dims[other];
        it->dims[other] = dim;
    }
}

/* Each dimension strides over the extent of all before it; every second one
 * goes backwards. */
static void strided_make(strided_t *it, size_t run, size_t n_dims,
                         unsigned most)
{
    size_t extent = run, first = 0;

    it->nbytes = run;
    for (size_t i = 0; i < n_dims; i++) {
        size_t n = 1 + below(most), step = extent + below(5);

        it->dims[i] = (psc_dim_t){n, (int64_t)step};
        extent += step * (n - 1);
        it->nbytes *= n;
        if (below(2)) {
            it->dims[i].stride = -(int64_t)step;
            first += step * (n - 1);
        }
    }
    it->extent = extent;
    it->memory = malloc(extent);
    memset(it->memory, 0xee, extent);
    it->layout = (psc_layout_t){it->memory + first, run, n_dims, it->dims};
    strided_mix(it);
    psc_layout_pieces(&it->layout, it->pieces);
    check(psc_layout_nbytes(&it->layout) == it->nbytes);
}

static void strided_random(strided_t *it)
{
    static const size_t runs[] = {1, 2, 3, 4, 8, 16, 24, 100};

    strided_make(it, runs[below(8)], 1 + below(DIMS), 5);
}

/* The address of the run that begins with this byte of the message. */
static char *strided_run(const strided_t *it, size_t index)
{
    size_t rest = index / it->layout.run;
    char *at = it->layout.base;

    for (size_t i = it->layout.n_dims; i-- > 0; rest /= it->dims[i].n)
        at += (int64_t)(rest % it->dims[i].n) * it->dims[i].stride;
    return at;
}

static void strided_fill(strided_t *it)
{
    for (size_t i = 0; i < it->nbytes; i += it->layout.run) {
        char *at = strided_run(it, i);

        for (size_t k = i; k < i + it->layout.run; k++)
            *at++ = (char)(k * 7 + (k >> 8) * 3);
    }
}

/* How many bytes differ from what strided_make() has filled the memory with. */
static size_t strided_written(const char *memory, size_t len)
{
    size_t written = 0;

    for (size_t i = 0; i < len; i++)
        written += memory[i] != (char)0xee;
    return written;
}

/* The first `n` bytes of the message are there, and no other byte of the memory
 * was written. */
static bool strided_has(const strided_t *it, const char *flat, size_t n)
{
    for (size_t i = 0, run = it->layout.run; i < it->nbytes; i += run) {
        size_t left = i < n ? n - i : 0, part = left < run ? left : run;
        const char *at = strided_run(it, i);

        if (memcmp(at, flat + i, part) ||
            strided_written(at + part, run - part))
            return false;
    }
    return strided_written(it->memory, it->extent) == strided_written(flat, n);
}

static char *strided_flat(const strided_t *it)
{
    char *flat = malloc(it->nbytes);

    for (size_t i = 0; i < it->nbytes; i += it->layout.run)
        memcpy(flat + i, strided_run(it, i), it->layout.run);
    return flat;
}

/* ---- copies ---- */

/* In parts of random lengths, so that runs and rows are cut everywhere. */
CASE(strided_copies)
{
    for (unsigned round = 0; round < 100; round++) {
        strided_t from, to;
        char *flat, *copy;
        size_t done;

        strided_random(&from);
        strided_fill(&from);
        flat = strided_flat(&from);
        copy = malloc(from.nbytes);
        to = from;
        to.memory = malloc(from.extent);
        memset(to.memory, 0xee, from.extent);
        to.layout.base = to.memory + ((char *)from.layout.base - from.memory);
        to.layout.dims = to.dims;
        for (size_t at = 0; at < from.nbytes; at += done) {
            size_t len = 1 + below((unsigned)from.nbytes);
            size_t left = from.nbytes - at;

            done = psc_layout_pack(&from.layout, at, copy + at,
                                   len < left ? len : left);
            check(done == (len < left ? len : left));
            check(psc_layout_unpack(&to.layout, at, copy + at, done) == done);
        }
        check(memcmp(flat, copy, from.nbytes) == 0);
        check(strided_has(&to, flat, from.nbytes));
        check(psc_layout_pack(&from.layout, from.nbytes, NULL, 1) == 0);
        check(psc_layout_unpack(&from.layout, from.nbytes + 1, flat, 1) == 0);
        free(from.memory);
        free(to.memory);
        free(flat);
        free(copy);
    }
}

/* ---- messages ---- */

static psc_request_t *strided_send(pair_t *pair, const strided_t *it)
{
    psc_send_args_t args = {
        .context = CONTEXT, .tag = 7, .iov = it->pieces, .n_iov = 2};
    psc_request_t *request = NULL;
    psc_status_t status = api->send_strided(pair->a.conn, &args, &request);

    check(status == (request ? PSC_INPROGRESS : PSC_OK));
    return request;
}

static psc_request_t *strided_recv(pair_t *pair, const strided_t *it,
                                   psc_result_t *result)
{
    psc_recv_args_t args = {.source = pair->b.conn,
                            .context = CONTEXT,
                            .tag = 7,
                            .iov = it->pieces,
                            .n_iov = 2};
    psc_request_t *request = NULL;

    api->recv(pair->b.worker, &args, result, &request);
    return request;
}

/* Both ends are strided, differently, or one of them is contiguous. */
static void exchange(pair_t *pair, strided_t *from, strided_t *to,
                     bool recv_first)
{
    char *flat = strided_flat(from);
    psc_request_t *send, *recv = NULL;
    psc_result_t result;
    size_t n = from->nbytes < to->nbytes ? from->nbytes : to->nbytes;
    uint64_t before = count(pair->b.worker, PSC_COUNTER_unexpected);

    if (recv_first)
        recv = strided_recv(pair, to, &result);
    if (below(2)) {
        send = strided_send(pair, from);
        memset(from->memory, 0x11, from->extent); /* it was copied */
    } else {
        send = post_send(&pair->a, flat, from->nbytes, 7);
    }
    if (!recv_first) {
        until(pair, count(pair->b.worker, PSC_COUNTER_unexpected) > before);
        recv = strided_recv(pair, to, &result);
    }
    if (recv)
        result = finish(pair, recv);
    sent(pair, send);
    check(result.nbytes == from->nbytes && result.tag == 7);
    check(result.status == (n < from->nbytes ? PSC_ERR_TRUNCATED : PSC_OK));
    check(strided_has(to, flat, n));
    free(flat);
    free(from->memory);
    free(to->memory);
}

static void exchange_long(pair_t *pair, size_t run)
{
    strided_t from, to;

    strided_make(&from, run, 2, (unsigned)(EXTENT / run));
    strided_fill(&from);
    strided_make(&to, run, 2, (unsigned)(EXTENT / run));
    exchange(pair, &from, &to, below(2));
}

static void messages(psc_rndv_scheme_t scheme)
{
    pair_t pair;

    options.scheme = scheme;
    pair_open(&pair);
    for (unsigned round = 0; round < 60; round++) {
        strided_t from, to;

        strided_random(&from);
        strided_fill(&from);
        strided_random(&to);
        exchange(&pair, &from, &to, below(2));
    }
    for (unsigned round = 0; round < 6; round++)
        exchange_long(&pair, round % 2 ? 1000 : 8000);
    pair_close(&pair);
}

CASE(strided_messages)
{
    messages(PSC_RNDV_AUTO);
    messages(PSC_RNDV_PUT);
    messages(PSC_RNDV_GET);
    messages(PSC_RNDV_AM);
}

/* ---- ends ---- */

static void strided_rows(strided_t *it, size_t rows)
{
    it->dims[0] = (psc_dim_t){rows, 24};
    it->nbytes = rows * 8;
    it->extent = rows * 24;
    it->memory = malloc(it->extent);
    memset(it->memory, 0xee, it->extent);
    it->layout = (psc_layout_t){it->memory, 8, 1, it->dims};
    psc_layout_pieces(&it->layout, it->pieces);
}

CASE(strided_truncation)
{
    static const size_t rows[] = {10, 4000, 200000};
    pair_t pair;

    pair_open(&pair);
    for (unsigned i = 0; i < 6; i++) {
        strided_t from, to;

        strided_rows(&from, rows[i / 2]);
        strided_fill(&from);
        strided_rows(&to, rows[i / 2] / 2 + 1);
        exchange(&pair, &from, &to, i % 2);
    }
    pair_close(&pair);
}

/* A message that was received into a layout is put back, and received again. */
CASE(strided_given_back)
{
    static const size_t rows[] = {10, 4000, 200000};

    for (unsigned i = 0; i < 3; i++) {
        psc_request_t *send, *recv;
        strided_t from, to;
        psc_result_t result;
        pair_t pair;
        char *flat;

        pair_open(&pair);
        strided_rows(&from, rows[i]);
        strided_rows(&to, rows[i]);
        strided_fill(&from);
        flat = strided_flat(&from);
        recv = strided_recv(&pair, &to, &result);
        check(api->cancel(recv) == PSC_OK);
        api->request_free(recv);
        recv = strided_recv(&pair, &to, &result);
        send = strided_send(&pair, &from);
        result = finish(&pair, recv);
        check(strided_has(&to, flat, to.nbytes));
        check(api->recv_return(pair.b.worker, CONTEXT, &result, to.pieces, 2) ==
              PSC_OK);
        memset(to.memory, 0xee, to.extent);
        recv = strided_recv(&pair, &to, &result);
        check(!recv && result.status == PSC_OK);
        check(strided_has(&to, flat, to.nbytes));
        sent(&pair, send);
        pair_close(&pair);
        free(from.memory);
        free(to.memory);
        free(flat);
    }
}

/* A receive is given up after the first bytes have arrived. */
CASE(strided_given_up)
{
    psc_request_t *send, *recv, *again;
    psc_result_t result;
    strided_t from, to, other;
    psc_status_t status;
    pair_t pair;
    char *flat;

    pair_open(&pair);
    strided_rows(&from, 500000);
    strided_rows(&to, 500000);
    strided_rows(&other, 500000);
    strided_fill(&from);
    flat = strided_flat(&from);
    recv = strided_recv(&pair, &to, &result);
    send = strided_send(&pair, &from);
    until(&pair, to.memory[0] != (char)0xee);
    status = api->recv_give_up(recv);
    if (status == PSC_ERR_INVALID) { /* all has arrived in one pass */
        result = finish(&pair, recv);
        check(api->recv_return(pair.b.worker, CONTEXT, &result, to.pieces, 2) ==
              PSC_OK);
    }
    again = strided_recv(&pair, &other, &result);
    if (status != PSC_ERR_INVALID)
        check(finish(&pair, recv).status == PSC_ERR_CANCELLED);
    if (again)
        result = finish(&pair, again);
    check(result.status == PSC_OK && strided_has(&other, flat, other.nbytes));
    sent(&pair, send);
    pair_close(&pair);
    free(from.memory);
    free(to.memory);
    free(other.memory);
    free(flat);
}

/* A send that nobody receives gives its copy back with the connection. */
CASE(strided_left_in_flight)
{
    psc_request_t *send;
    strided_t from;
    pair_t pair;

    pair_open(&pair);
    strided_rows(&from, 500000);
    strided_fill(&from);
    send = strided_send(&pair, &from);
    check(send);
    settle(&pair);
    free(from.memory);
    api->request_free(send);
    pair_close(&pair);
}
