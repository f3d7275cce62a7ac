#include "rates.h"

#include "pscompy/transport/kit/clock.h"

/* Only messages between these lengths are timed: at these lengths a copy and a
 * get may be equally fast. */
#define RATES_MIN (12u << 10)
#define RATES_MAX (256u << 10)
#define RATES_EVERY 4u /* one of this many messages is timed */
/* number of timed messages before the control plane is first notified */
#define RATES_FIRST 16u
/* After RATES_UNTRIED messages, because fewer are not worth a try, one of
 * RATES_OFTEN is tried until RATES_TRIES were, then one of RATES_SELDOM.
 * Neither has a common factor with RATES_EVERY: the peer times some of those
 * that are tried, and some of the others. */
#define RATES_UNTRIED 64u
#define RATES_TRIES 64u
#define RATES_OFTEN 3u
#define RATES_SELDOM 61u
/* A message counts as interrupted if its time per byte is more than this many
 * times that of the fastest message. */
#define RATES_SPREAD 4u

void psc_rates_start(psc_conn_t *conn)
{
    const psc_iface_attr_t *attr = &psc_conn_main_lane(conn)->slot->attr;

    conn->rates.on =
        attr->measured && attr->caps & PSC_CAP_GET && conn->n_lanes == 1;
    conn->rates.due = RATES_FIRST;
    conn->rates.until_try = RATES_UNTRIED;
}

int64_t psc_rates_begin_copy(psc_conn_t *conn, uint64_t len)
{
    psc_rates_t *rates = &conn->rates;

    if (!rates->on || len < RATES_MIN || len > RATES_MAX ||
        ++rates->passed % RATES_EVERY != 0)
        return -1;
    return psc_clock_now();
}

int64_t psc_rates_begin_get(psc_conn_t *conn, uint64_t len)
{
    return conn->rates.getting++ > 0 ? -1 : psc_rates_begin_copy(conn, len);
}

bool psc_rates_tries(const psc_conn_t *conn, uint64_t len)
{
    return conn->rates.on && len <= conn->params.try_max &&
           conn->rates.until_try == 0;
}

void psc_rates_sent(psc_conn_t *conn, uint64_t len)
{
    psc_rates_t *rates = &conn->rates;

    if (!rates->on || len > conn->params.try_max)
        return;
    if (rates->until_try > 0) {
        rates->until_try--;
        return;
    }
    rates->until_try =
        (rates->tried < RATES_TRIES ? RATES_OFTEN : RATES_SELDOM) - 1;
    rates->tried += rates->tried < RATES_TRIES;
}

/* Returns true if the message was interrupted. */
static bool rates_outlier(psc_moved_t *moved, uint64_t len, uint64_t ns)
{
    uint64_t pace = ns * 1024 / len;

    /* If this message is so much faster than all earlier ones, the earlier ones
     * were interrupted: forget their times. */
    if (pace * RATES_SPREAD < moved->fastest)
        *moved = (psc_moved_t){0};
    if (moved->messages == 0 || pace < moved->fastest)
        moved->fastest = pace;
    return pace > RATES_SPREAD * moved->fastest;
}

static void rates_note(psc_conn_t *conn, psc_moved_t *moved, uint64_t len,
                       int64_t began)
{
    const psc_rates_t *rates = &conn->rates;
    uint64_t ns = began < 0 ? 0 : (uint64_t)(psc_clock_now() - began);

    if (began < 0 || rates_outlier(moved, len, ns))
        return;
    moved->messages++;
    moved->bytes += len;
    moved->ns += ns;
    if (rates->copies.messages + rates->gets.messages >= rates->due)
        psc_control_event_post(&conn->worker->control_events,
                               &conn->event_slot);
}

void psc_rates_end_copy(psc_conn_t *conn, uint64_t len, int64_t began)
{
    rates_note(conn, &conn->rates.copies, len, began);
}

void psc_rates_end_get(psc_conn_t *conn, uint64_t len, int64_t began)
{
    conn->rates.getting--;
    rates_note(conn, &conn->rates.gets, len, began);
}
