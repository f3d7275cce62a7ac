/* The harness's objects: sides, ends, pairs, and the upcalls that check the
 * messages that arrive. */
#include "harness.h"

#include <stdarg.h>
#include <unistd.h>

const psc_transport_ops_t *ct_ops;
const psc_setting_t *ct_settings;
uint32_t ct_n_settings;

const uint8_t ct_token[PSC_TOKEN_SIZE] = {1, 2, 3, 5, 8, 13, 21, 34, 55};

/* ---- judging ---- */

void ct_fail(const char *file, int line, const char *condition,
             const char *format, ...)
{
    va_list args;

    fprintf(stderr, "%s:%d: not so: %s: ", file, line, condition);
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    fputc('\n', stderr);
    _exit(1);
}

void ct_skip(const char *format, ...)
{
    va_list args;

    printf("skipped: ");
    va_start(args, format);
    vprintf(format, args);
    va_end(args);
    putchar('\n');
    exit(CT_SKIP);
}

int64_t ct_deadline(void)
{
    return psc_clock_deadline(CT_PATIENCE_S * CT_SECOND);
}

/* ---- upcalls ---- */

#define CT_TAKEN_BYTE 0x55

static void end_count(ct_end_t *end, const ct_header_t *header, bool begun)
{
    ct_check(header->seq == end->received, "message %llu came as number %llu",
             (unsigned long long)header->seq,
             (unsigned long long)end->received);
    end->received++;
    end->begun += begun;
    if (end->on_message)
        end->on_message(end);
}

static void end_check_header(const ct_end_t *end, uint8_t id,
                             const void *header, uint8_t header_len)
{
    ct_check(!end->failed, "a message after ep_failed");
    ct_check(!end->in_body, "a message inside another one's body");
    ct_check(id == CT_AM_ID, "id %d", id);
    ct_check(header_len == sizeof(ct_header_t), "header of %d", header_len);
    ct_check((uintptr_t)header % 8 == 0, "header not aligned");
}

static psc_status_t ct_am_recv(psc_ep_t *ep, const psc_am_t *am)
{
    ct_end_t *end = ep->user;
    ct_header_t header;

    end_check_header(end, am->id, am->header, am->header_len);
    memcpy(&header, am->header, sizeof(header));
    ct_check(am->len == header.len, "%zu bytes came", am->len);
    ct_check(ct_pattern_check(am->payload, am->len, header.seed), "payload");
    if (end->hold && am->desc) {
        ct_check(end->n_held < CT_HELD_MAX, "unbounded slots");
        end->held[end->n_held++] = am->desc;
        end_count(end, &header, false);
        return PSC_INPROGRESS;
    }
    end_count(end, &header, false);
    return PSC_OK;
}

/* Seven pieces of 1 to 7 bytes, then one piece with the rest. */
static size_t end_scatter(ct_end_t *end)
{
    size_t at = 0, n = 0;

    while (n < 7 && at + n + 1 <= end->body_room) {
        end->body_iov[n] = (psc_iov_t){end->body_buffer + at, n + 1};
        at += ++n;
    }
    end->body_iov[n] = (psc_iov_t){end->body_buffer + at, end->body_room - at};
    return n + 1;
}

static void ct_am_begin(psc_ep_t *ep, uint8_t id, const void *header,
                        uint8_t header_len, uint64_t len, psc_dest_t *dest_p)
{
    ct_end_t *end = ep->user;

    end_check_header(end, id, header, header_len);
    memcpy(&end->body, header, sizeof(end->body));
    ct_check(len == end->body.len, "%llu bytes announced",
             (unsigned long long)len);
    end->in_body = true;
    end->body_taken = false;
    end->body_room = end->landing == CT_NOWHERE ? 0
                     : end->landing == CT_HALF  ? len / 2
                                                : len;
    end->body_buffer = malloc(end->body_room + 1);
    end->body_iov[0] = (psc_iov_t){end->body_buffer, end->body_room};
    dest_p->iov = end->body_iov;
    dest_p->n_iov = end->landing == CT_NOWHERE   ? 0
                    : end->landing == CT_SCATTER ? end_scatter(end)
                                                 : 1;
    dest_p->cookie = end->body_buffer;
}

bool ct_end_take(ct_end_t *end)
{
    if (!end->in_body || end->body_taken)
        return false;
    for (size_t i = 0; i < 8; i++)
        end->body_iov[i].len = 0;
    memset(end->body_buffer, CT_TAKEN_BYTE, end->body_room);
    end->body_taken = true;
    return true;
}

/* True if memory that was withdrawn has not been written to since. */
static bool end_body_right(const ct_end_t *end)
{
    if (!end->body_taken)
        return ct_pattern_check(end->body_buffer, end->body_room,
                                end->body.seed);
    for (size_t i = 0; i < end->body_room; i++) {
        if ((unsigned char)end->body_buffer[i] != CT_TAKEN_BYTE)
            return false;
    }
    return true;
}

static void ct_am_end(psc_ep_t *ep, void *cookie)
{
    ct_end_t *end = ep->user;

    ct_check(end->in_body, "am_end without am_begin");
    ct_check(cookie == end->body_buffer, "wrong cookie");
    ct_check(end_body_right(end), "payload of message %llu",
             (unsigned long long)end->body.seq);
    free(end->body_buffer);
    end->body_buffer = NULL;
    end->in_body = false;
    end_count(end, &end->body, true);
}

/* The seed of the payload is the message's match bits. */
static void ct_tag_unexpected(psc_ep_t *ep, uint64_t bits, const void *payload,
                              size_t len)
{
    ct_end_t *end = ep->user;

    ct_check(ct_pattern_check(payload, len, bits), "payload of %llx",
             (unsigned long long)bits);
    end->unexpected_bits[end->unexpected++ % CT_UNEXPECTED_MAX] = bits;
}

static void ct_tag_missed(psc_ep_t *ep, uint64_t bits, size_t len,
                          uint32_t number)
{
    ct_end_t *end = ep->user;

    end->missed_len = len;
    end->missed_number = number;
    end->unexpected_bits[end->unexpected++ % CT_UNEXPECTED_MAX] = bits;
}

static void ct_ep_up(psc_ep_t *ep)
{
    ct_end_t *end = ep->user;

    ct_check(!end->up && !end->failed, "up twice or after a failure");
    end->up = true;
}

static void ct_ep_failed(psc_ep_t *ep, psc_status_t status, const char *reason)
{
    ct_end_t *end = ep->user;

    ct_check(!end->failed, "failed twice");
    ct_check(status < 0, "failed with %d", status);
    ct_check(reason && *reason && strlen(reason) < PSC_REASON_MAX, "reason");
    end->failed = true;
    end->status = status;
    strcpy(end->reason, reason);
    free(end->body_buffer);
    end->body_buffer = NULL;
    end->in_body = false;
}

static void ct_log(psc_iface_t *iface, int level, const char *line)
{
    (void)iface;
    fprintf(stderr, "log %d: %s\n", level, line);
}

static void ct_holding(psc_iface_t *iface, int holding)
{
    ct_side_t *side = iface->user;

    ct_check(holding != side->holding, "told %d twice", holding);
    side->holding = holding;
}

static const psc_upcalls_t ct_upcalls = {
    .abi = PSC_TRANSPORT_ABI,
    .size = sizeof(psc_upcalls_t),
    .am_recv = ct_am_recv,
    .am_begin = ct_am_begin,
    .am_end = ct_am_end,
    .ep_up = ct_ep_up,
    .ep_failed = ct_ep_failed,
    .log = ct_log,
    .tag_unexpected = ct_tag_unexpected,
    .tag_missed = ct_tag_missed,
    .holding = ct_holding,
};

/* ---- sides ---- */

void ct_set(const char *name, int64_t number, const char *text)
{
    psc_setting_t *settings = (psc_setting_t *)(uintptr_t)ct_settings;

    for (uint32_t i = 0; i < ct_n_settings; i++) {
        if (strcmp(settings[i].name, name) == 0) {
            settings[i].number = number;
            settings[i].text = text;
            return;
        }
    }
    ct_check(false, "no setting %s", name);
}

void ct_side_refused(const char *word)
{
    char reason[PSC_REASON_MAX] = "";
    psc_open_params_t params = {
        .abi = PSC_TRANSPORT_ABI,
        .up = &ct_upcalls,
        .settings = ct_settings,
        .n_settings = ct_n_settings,
        .reason = reason,
    };
    psc_iface_t *iface;

    ct_check(ct_ops->open(&params, &iface) < 0, "opened");
    ct_check(strstr(reason, word), "the reason does not say %s: %s", word,
             reason);
    printf("%s\n", reason);
}

void ct_side_open(ct_side_t *side)
{
    char reason[PSC_REASON_MAX] = "";
    psc_open_params_t params = {
        .abi = PSC_TRANSPORT_ABI,
        .up = &ct_upcalls,
        .user = side,
        .settings = ct_settings,
        .n_settings = ct_n_settings,
        .reason = reason,
    };
    psc_status_t status;

    side->holding = 0;
    status = ct_ops->open(&params, &side->iface);
    ct_check(status == PSC_OK, "open: %s: %s", psc_status_string(status),
             reason);
    ct_check(side->iface->ops == ct_ops, "ops not set");
    ct_check(side->iface->up == &ct_upcalls, "up not set");
    ct_check(side->iface->user == side, "user not set");
    side->ops = ct_ops;
    side->ops->query(side->iface, &side->attr);
}

void ct_side_close(ct_side_t *side)
{
    int64_t deadline = ct_deadline();

    side->ops->close(side->iface);
    while (side->ops->stop(side->iface) == PSC_INPROGRESS) {
        side->ops->progress(side->iface);
        ct_check(psc_clock_now() < deadline, "the interface does not stop");
    }
    side->ops->fini(side->iface);
    side->iface = NULL;
}

bool ct_side_can(const ct_side_t *side, uint64_t caps)
{
    return (side->attr.caps & caps) == caps;
}

unsigned ct_side_progress(ct_side_t *side)
{
    return side->ops->progress(side->iface);
}

/* ---- ends ---- */

void ct_end_create(ct_end_t *end, ct_side_t *side)
{
    memset(end, 0, sizeof(*end));
    end->side = side;
    ct_check(side->ops->ep_create(side->iface, end, &end->ep) == PSC_OK,
             "ep_create");
    ct_check(end->ep->iface == side->iface, "iface not set");
    ct_check(end->ep->user == end, "user not set");
}

void ct_end_release_held(ct_end_t *end)
{
    while (end->n_held > 0)
        end->side->ops->desc_release(end->side->iface,
                                     end->held[--end->n_held]);
}

void ct_end_abandon(ct_end_t *end)
{
    ct_end_release_held(end);
    end->side->ops->ep_fini(end->ep);
    end->ep = NULL;
    free(end->body_buffer);
    end->body_buffer = NULL;
}

void ct_end_destroy(ct_end_t *end, ct_side_t *peer)
{
    int64_t deadline = ct_deadline();

    end->side->ops->ep_close(end->ep);
    while (end->side->ops->ep_stop(end->ep) == PSC_INPROGRESS) {
        ct_side_progress(end->side);
        if (peer)
            ct_side_progress(peer);
        ct_check(psc_clock_now() < deadline, "the endpoint does not stop");
    }
    ct_end_abandon(end);
}

psc_status_t ct_end_connect(ct_end_t *end, psc_role_t role,
                            const uint8_t token[PSC_TOKEN_SIZE],
                            const uint8_t *address, size_t address_len)
{
    uint8_t passing[PSC_TOKEN_SIZE];
    psc_connect_params_t params = {
        .role = role,
        .token = passing,
        .address = address,
        .address_len = address_len,
    };
    psc_status_t status;

    memcpy(passing, token, sizeof(passing));
    status = end->side->ops->ep_connect(end->ep, &params);
    memset(passing, 0xee, sizeof(passing)); /* am_bcopy must have copied it */
    if (status == PSC_OK)
        end->up = true;
    return status;
}

/* ---- pairs ---- */

void ct_pair_open(ct_pair_t *pair)
{
    ct_side_open(&pair->side_a);
    pair->a = pair->b = &pair->side_a;
    if (!ct_side_can(pair->a, PSC_CAP_SELF)) {
        ct_side_open(&pair->side_b);
        pair->b = &pair->side_b;
    }
    ct_end_create(&pair->x, pair->a);
    ct_end_create(&pair->y, pair->b);
}

static void pair_connect_one(ct_end_t *end, ct_end_t *peer, psc_role_t role)
{
    uint8_t address[PSC_ADDRESS_MAX];
    size_t len = sizeof(address);
    psc_status_t status;

    ct_check(peer->side->ops->ep_address(peer->ep, address, &len) == PSC_OK,
             "ep_address");
    ct_check(len > 0 && len <= sizeof(address), "%zu bytes of address", len);
    status = ct_end_connect(end, role, ct_token, address, len);
    ct_check(status == PSC_OK || status == PSC_INPROGRESS, "ep_connect: %s",
             psc_status_string(status));
}

void ct_pair_start(ct_pair_t *pair)
{
    pair_connect_one(&pair->y, &pair->x, PSC_ROLE_ACCEPTOR);
    pair_connect_one(&pair->x, &pair->y, PSC_ROLE_CONNECTOR);
}

void ct_pair_connect(ct_pair_t *pair)
{
    ct_pair_start(pair);
    ct_pair_await(pair);
}

void ct_pair_await(ct_pair_t *pair)
{
    ct_until(pair,
             (pair->x.up || pair->x.failed) && (pair->y.up || pair->y.failed));
    ct_check(pair->x.up, "connector: %s", pair->x.reason);
    ct_check(pair->y.up, "acceptor: %s", pair->y.reason);
}

void ct_pair_up(ct_pair_t *pair)
{
    ct_pair_open(pair);
    ct_pair_connect(pair);
}

void ct_pair_down(ct_pair_t *pair)
{
    if (pair->x.ep)
        ct_end_destroy(&pair->x, pair->b);
    if (pair->y.ep)
        ct_end_destroy(&pair->y, pair->a);
    if (pair->b != pair->a)
        ct_side_close(pair->b);
    ct_side_close(pair->a);
}

unsigned ct_pair_progress(ct_pair_t *pair)
{
    unsigned n = ct_side_progress(pair->a);

    return pair->b == pair->a ? n : n + ct_side_progress(pair->b);
}
