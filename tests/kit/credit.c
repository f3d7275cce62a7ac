/* Credit between two ends that send, receive and report in any order, over a
 * channel that keeps order and one that does not. Neither end ever has more in
 * flight than the other has buffers; both always make progress; counters wrap
 * around. */
#include "kit.h"
#include "pscompy/transport/kit/credit.h"

#define MESSAGES 300u
#define ROOM 512u

typedef struct message {
    uint32_t number; /* the report that it carries */
    bool content;    /* the message takes a buffer */
} message_t;

typedef struct end {
    psc_credit_t credit;
    /* of this end; to this end; received by this end */
    uint32_t buffers, in_flight, got;
    message_t way[ROOM];              /* messages in flight to this end */
    unsigned n;
} end_t;

static void put(end_t *to, message_t message)
{
    CHECK(to->n < ROOM);
    to->way[to->n++] = message;
}

static message_t take(end_t *end, unsigned at)
{
    message_t message = end->way[at];

    for (end->n--; at < end->n; at++)
        end->way[at] = end->way[at + 1];
    return message;
}

static void send(end_t *from, end_t *to, uint32_t first)
{
    if (from->credit.sent - first == MESSAGES ||
        !psc_credit_available(&from->credit))
        return;
    put(to, (message_t){psc_credit_report(&from->credit), true});
    from->credit.sent++;
    CHECK(++to->in_flight <= to->buffers);
}

static void receive(end_t *end, unsigned at, bool ordered)
{
    message_t message = take(end, at);
    psc_credit_verdict_t verdict =
        psc_credit_confirm(&end->credit, message.number);

    CHECK(verdict != PSC_CREDIT_IMPOSSIBLE);
    CHECK(!ordered || verdict != PSC_CREDIT_EARLIER);
    if (!message.content)
        return;
    end->in_flight--;
    end->got++;
    end->credit.received++;
}

static void report(end_t *from, end_t *to)
{
    if (psc_credit_due(&from->credit))
        put(to, (message_t){psc_credit_report(&from->credit), false});
}

static void exchange(uint64_t *random, bool ordered)
{
    uint32_t first = random_below(random, 2) ? 0u - random_below(random, 200)
                                             : random_below(random, 1000);
    end_t ends[2] = {0};

    for (int i = 0; i < 2; i++) {
        end_t *end = &ends[i], *peer = &ends[!i];

        end->buffers = 1 + random_below(random, 20);
        end->credit.step = 1 + random_below(random, (end->buffers + 1) / 2);
        peer->credit.window = end->buffers;
        end->credit.sent = end->credit.confirmed = first;
        end->credit.received = end->credit.reported = first;
    }
    for (uint32_t turn = 0; ends[0].got < MESSAGES || ends[1].got < MESSAGES;
         turn++) {
        end_t *end = &ends[random_below(random, 2)];
        end_t *peer = &ends[end == &ends[0]];

        CHECK(turn < 1000 * MESSAGES); /* both ends make progress */
        switch (random_below(random, 4)) {
        case 0:
            send(end, peer, first);
            break;
        case 1:
            report(end, peer);
            break;
        default:
            if (end->n > 0)
                receive(end, ordered ? 0 : random_below(random, end->n),
                        ordered);
        }
    }
}

static void false_reports_are_noticed(uint64_t *random)
{
    uint32_t first = random_below(random, 1u << 31) * 2;
    uint32_t sent = random_below(random, 100);
    psc_credit_t credit = {
        .window = 100, .sent = first + sent, .confirmed = first};

    CHECK(psc_credit_confirm(&credit, first + sent + 1 +
                                          random_below(random, 1u << 30)) ==
          PSC_CREDIT_IMPOSSIBLE);
    CHECK(psc_credit_confirm(&credit,
                             first - 1 - random_below(random, 1u << 30)) ==
          PSC_CREDIT_EARLIER);
    CHECK(credit.confirmed == first);
    CHECK(psc_credit_confirm(&credit, first) == PSC_CREDIT_SAME);
    if (sent > 0)
        CHECK(psc_credit_confirm(&credit, first + sent) == PSC_CREDIT_MORE);
}

/* argv: seed, rounds */
int main(int argc, char **argv)
{
    uint64_t random = argc > 1 ? strtoull(argv[1], NULL, 10) + 1 : 1;
    unsigned rounds = argc > 2 ? (unsigned)atoi(argv[2]) : 100;

    for (unsigned i = 0; i < rounds; i++) {
        false_reports_are_noticed(&random);
        if (i < rounds / 10)
            exchange(&random, i % 2);
    }
    return 0;
}
