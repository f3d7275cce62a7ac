/* The harness's objects: sides, ends, pairs. */
#include "harness.h"

#include <stdarg.h>
#include <sys/socket.h>
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

/* An address, and the record that carries it to another process. */
typedef struct end_address {
    size_t len;
    uint8_t address[PSC_ADDRESS_MAX];
} end_address_t;

static end_address_t end_address(const ct_end_t *end)
{
    end_address_t place = {.len = PSC_ADDRESS_MAX};

    ct_check(end->side->ops->ep_address(end->ep, place.address, &place.len) ==
                 PSC_OK,
             "ep_address");
    ct_check(place.len > 0 && place.len <= PSC_ADDRESS_MAX,
             "%zu bytes of address", place.len);
    return place;
}

static end_address_t end_swap(const ct_end_t *end, int link)
{
    end_address_t place = end_address(end);

    ct_check(write(link, &place, sizeof place) == sizeof place, "link");
    ct_check(recv(link, &place, sizeof place, MSG_WAITALL) == sizeof place,
             "the other process is gone");
    return place;
}

static void end_connect_to(ct_end_t *end, const end_address_t *peer,
                           psc_role_t role)
{
    psc_status_t status =
        ct_end_connect(end, role, ct_token, peer->address, peer->len);

    ct_check(status == PSC_OK || status == PSC_INPROGRESS, "ep_connect: %s",
             psc_status_string(status));
}

void ct_end_join(ct_end_t *end, const ct_end_t *peer, psc_role_t role)
{
    end_address_t place = end_address(peer);

    end_connect_to(end, &place, role);
}

void ct_end_join_over(ct_end_t *end, int link, psc_role_t role)
{
    end_address_t place = end_swap(end, link);

    end_connect_to(end, &place, role);
}

void ct_end_ignore_over(const ct_end_t *end, int link)
{
    end_swap(end, link);
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

void ct_pair_start(ct_pair_t *pair)
{
    ct_end_join(&pair->y, &pair->x, PSC_ROLE_ACCEPTOR);
    ct_end_join(&pair->x, &pair->y, PSC_ROLE_CONNECTOR);
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
