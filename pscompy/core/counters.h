/* What the library counts, per connection and per worker. One list; Python
 * reads the names from it, tests assert by them which protocol ran. */
#ifndef PSCOMPY_CORE_COUNTERS_H
#define PSCOMPY_CORE_COUNTERS_H

#include <stdint.h>

#define PSC_COUNTER_LIST(X)                                                    \
    X(sent_messages)       /* matched messages that left */                    \
    X(sent_bytes)                                                              \
    X(received_messages)   /* matched messages delivered */                    \
    X(received_bytes)                                                          \
    X(copied_bytes)        /* payload written from one memory to another, by   \
                              this side or by the fabric for it */             \
    X(registrations)       /* of memory for one message, not the pool's */     \
    X(eager_short)         /* sent in one small piece */                       \
    X(eager_bcopy)         /* sent through a copy */                           \
    X(eager_zcopy)         /* sent from the user's buffer */                   \
    X(rndv_rts)            /* rendezvous begun by this side */                 \
    X(rndv_put)            /* rendezvous whose data this side put */           \
    X(rndv_get)            /* rendezvous whose data this side got */           \
    X(rndv_am)             /* rendezvous whose data this side fragmented */    \
    X(rndv_fallback)       /* put or get was wanted and not possible */        \
    X(rndv_fin)            /* messages that say so, each of one or several */  \
    X(fragments)           /* puts, gets and FRAGs issued */                   \
    X(unexpected)          /* messages that came before their receive */       \
    X(unexpected_copied)   /* bytes copied out for them */                     \
    X(unexpected_held)     /* kept in the transport's buffer instead */        \
    X(given_back)          /* of receives that nobody waited for any more */   \
    X(tag_posted)          /* receives that were left to the fabric */         \
    X(tag_matched)         /* of these, those that got their message there */  \
    X(tag_along)           /* long messages put into their receives */         \
    X(tag_in_vain)         /* long messages put where no receive was */        \
    X(credits_withheld)    /* unexpected messages beyond the bound */          \
    X(credits_exhausted)   /* eager sends turned into rendezvous */            \
    X(credit_messages)     /* explicit credit returns */                       \
    X(back_pressure)       /* sends that had to wait for the fabric */         \
    X(am_sent)             /* user's active messages */                        \
    X(am_received)                                                             \
    X(am_dropped)          /* without a handler */                             \
    X(am_unsent)           /* posted, and their connection ended before */     \
    X(rma_put)             /* one-sided by the fabric */                       \
    X(rma_get)                                                                 \
    X(rma_emulated)        /* one-sided by messages */                         \
    X(rma_refused)         /* requests of peers outside a region */            \
    X(lent)                /* messages whose pages themselves were sent */     \
    X(lend_copied)         /* lend was asked for and not possible */           \
    X(views_mapped)        /* received as the sender's own pages */            \
    X(views_kept)          /* of these, copied because the loan ended early */ \
    X(segments_mapped)     /* of peers' pools: once per connection and each */ \
    X(pool_exhausted)      /* blocks that the pool had no room for */          \
    X(late_wakeups)        /* sleeps that only their time slice ended, beside  \
                              something that should have ended them */         \
    X(connections_up)      /* connections that came up */                      \
    X(connections_made)    /* of these, those that this side has made: over    \
                              all sessions, each connection counts once */

typedef enum psc_counter {
#define PSC_COUNTER_ENUM(name) PSC_COUNTER_##name,
    PSC_COUNTER_LIST(PSC_COUNTER_ENUM)
#undef PSC_COUNTER_ENUM
        PSC_COUNTER_COUNT
} psc_counter_t;

typedef struct psc_counters {
    uint64_t value[PSC_COUNTER_COUNT];
} psc_counters_t;

#endif
