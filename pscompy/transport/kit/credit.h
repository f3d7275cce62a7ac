/* Credit of messages between two ends: neither has more messages in flight than
 * the other has buffers for. Each message carries, beside its content, how many
 * messages its sender has received so far; an end that has nothing to send
 * reports that number by a message of its own once `step` received messages are
 * unreported.
 *
 * Counters begin at 0 on both ends and wrap around. Pure: no function here
 * sends or waits. Header only. */
#ifndef PSCOMPY_TRANSPORT_KIT_CREDIT_H
#define PSCOMPY_TRANSPORT_KIT_CREDIT_H

#include <stdbool.h>
#include <stdint.h>

typedef struct psc_credit {
    uint32_t window; /* number of the peer's buffers */
    /* unreported messages that make a report due; at most half of our own
     * buffers */
    uint32_t step;
    /* messages sent to the peer, and those that it has reported as received */
    uint32_t sent, confirmed;
    /* messages received from the peer, and the number last reported to it */
    uint32_t received, reported;
} psc_credit_t;

typedef enum psc_credit_verdict {
    /* the peer reports more messages as received than were sent to it */
    PSC_CREDIT_IMPOSSIBLE,
    /* the peer reports fewer messages than before: a later report has overtaken
     * this one */
    PSC_CREDIT_EARLIER,
    PSC_CREDIT_SAME,
    /* the peer reports more messages than before: there may be credit again */
    PSC_CREDIT_MORE
} psc_credit_verdict_t;

/* ---- sending ---- */

static inline bool psc_credit_available(const psc_credit_t *credit)
{
    return credit->sent - credit->confirmed < credit->window;
}

/* Returns how many messages were received, to be written into the message that
 * is sent now. */
static inline uint32_t psc_credit_report(psc_credit_t *credit)
{
    credit->reported = credit->received;
    return credit->received;
}

/* ---- receiving ---- */

/* True if the number of received messages should be reported in a message of
 * its own. */
static inline bool psc_credit_due(const psc_credit_t *credit)
{
    return credit->received - credit->reported >= credit->step;
}

/* Processes the number of received messages that a message of the peer
 * reports. */
static inline psc_credit_verdict_t psc_credit_confirm(psc_credit_t *credit,
                                                      uint32_t number)
{
    uint32_t more = number - credit->confirmed;

    if (more == 0)
        return PSC_CREDIT_SAME;
    if (more > UINT32_MAX / 2)
        return PSC_CREDIT_EARLIER;
    if (more > credit->sent - credit->confirmed)
        return PSC_CREDIT_IMPOSSIBLE;
    credit->confirmed = number;
    return PSC_CREDIT_MORE;
}

#endif
