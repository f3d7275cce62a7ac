/* The counters of the library, per connection and per worker. Python reads the
 * names from this list; tests check by them which protocol was used. */
#ifndef PSCOMPY_CORE_COUNTERS_H
#define PSCOMPY_CORE_COUNTERS_H

#include <stdint.h>

#define PSC_COUNTER_LIST(X)                                                    \
    X(sent_messages)       /* matched messages sent */                         \
    X(sent_bytes)                                                              \
    X(received_messages)   /* matched messages delivered */                    \
    X(received_bytes)                                                          \
    X(copied_bytes)        /* payload written from one memory to another, by   \
                              this side or by the fabric for it */             \
    X(registrations)       /* memory registered for one message */             \
    X(eager_short)         /* sent in one small piece, am_short */             \
    X(eager_bcopy)         /* sent through a copy */                           \
    X(eager_zcopy)         /* sent from the user's buffer */                   \
    X(rndv_rts)            /* rendezvous begun by this side */                 \
    X(rndv_put)            /* rendezvous whose data this side put */           \
    X(rndv_get)            /* rendezvous whose data this side got */           \
    X(rndv_am)             /* rendezvous whose data this side fragmented */    \
    X(rndv_fallback)       /* put or get was preferred but impossible */       \
    X(rndv_fin)            /* FIN messages, each for one or more requests */   \
    X(fragments)           /* puts, gets and FRAGs issued */                   \
    X(fragments_again)     /* FRAGs sent again after a rail was lost */        \
    X(rails_lost)          /* lanes lost by connections that went on */        \
    X(rails_joined)        /* lanes that took the place of lost ones */        \
    X(unexpected)          /* messages that arrived before their receive */    \
    X(unexpected_copied)   /* bytes of unexpected messages, copied */          \
    X(unexpected_held)     /* messages left in the fabric's buffer instead */  \
    X(given_back)          /* receives whose message was put back */           \
    X(tag_posted)          /* receives posted to the fabric */                 \
    X(tag_matched)         /* posted receives that the fabric matched */       \
    X(tag_put_matched)     /* long messages put into posted receives */        \
    X(tag_put_missed)      /* long messages put without a posted receive */    \
    X(tuple_exposed)       /* receives that the peer could see */              \
    X(tuple_hidden)        /* receives that were not shown when posted */      \
    X(tuple_placed)        /* long messages put into receives of the peer */   \
    X(tuple_taken)         /* receives that the peer took */                   \
    X(tuple_unseen)        /* a receive fitted, but an earlier message may     \
                              not have been matched yet */                     \
    X(tuple_none)          /* long messages for which no receive was seen */   \
    X(tuple_skipped)       /* long messages for which the sender did not look, \
                              because it had looked in vain */                 \
    X(credits_withheld)    /* unexpected messages beyond the bound */          \
    X(credits_exhausted)   /* eager sends turned into rendezvous */            \
    X(credit_messages)     /* explicit credit returns */                       \
    X(back_pressure)       /* sends that had to wait for the fabric */         \
    X(am_sent)             /* user's active messages */                        \
    X(am_received)                                                             \
    X(am_dropped)          /* received without a handler */                    \
    X(am_unsent)           /* posted, but their connection ended first */      \
    X(offered)             /* buffers whose keys a message carried */          \
    X(fetched)             /* buffers got by the keys of an offer */           \
    X(rma_put)             /* one-sided by the fabric */                       \
    X(rma_get)                                                                 \
    X(rma_emulated)        /* one-sided by messages */                         \
    X(rma_refused)         /* requests of peers outside a region */            \
    X(lent)                /* messages sent by lending their pages */          \
    X(lend_copied)         /* lend was asked for and not possible */           \
    X(views_mapped)        /* received as a view of the sender's pages */      \
    X(views_kept)          /* mapped views, copied because the peer ended */   \
    X(segments_mapped)     /* segments of peers' pools, per connection */      \
    X(pool_exhausted)      /* blocks that did not fit into the pool */         \
    X(lock_waits)          /* calls that met another thread in the library */  \
    X(lock_longest_ns)     /* the longest such wait */                         \
    X(late_wakeups)        /* sleeps that ended by their time limit although   \
                              an event was pending */                          \
    X(connections_up)      /* connections that reached state UP */             \
    X(connections_made)    /* connections_up, without those that the peer      \
                              began; its sum over all sessions counts each     \
                              connection once */

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
