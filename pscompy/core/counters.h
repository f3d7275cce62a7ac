/* The counters of the library, per connection and per worker. Python reads the
 * names from this list; tests check by them which protocol was used. */
#pragma once

#include <stdint.h>

#define PSC_COUNTER_LIST(X)                                                    \
    X(sent_messages)       /* matched messages sent */                         \
    X(sent_bytes)                                                              \
    X(received_messages)   /* matched messages delivered */                    \
    X(received_bytes)                                                          \
    X(copied_bytes)        /* payload written from one memory to another, by   \
                              this side or by the fabric for it */             \
    X(registrations)       /* registrations of memory for one message only */  \
    X(eager_short)         /* messages sent by am_short, in one small piece */ \
    X(eager_bcopy)         /* messages sent by am_bcopy, through a copy */     \
    X(eager_zcopy)         /* messages sent by am_zcopy, from the user's       \
                              buffer */                                        \
    X(rndv_rts)            /* rendezvous begun by this side */                 \
    X(rndv_put)            /* rendezvous whose data this side put */           \
    X(rndv_get)            /* rendezvous whose data this side got */           \
    X(rndv_am)             /* rendezvous whose data this side sent as FRAGs */ \
    X(rndv_fallback)       /* rendezvous for which put or get was preferred,   \
                              but could not be used */                         \
    X(rndv_fin)            /* FIN messages, each for one or more requests */   \
    X(fragments)           /* puts, gets and FRAGs issued */                   \
    X(fragments_again)     /* FRAGs sent again after a rail was lost */        \
    X(messages_again)      /* other messages sent again after a rail was       \
                              lost */                                          \
    X(rails_lost)          /* lanes lost by connections that went on */        \
    X(rails_joined)        /* lanes that took the place of lost ones */        \
    X(unexpected)          /* messages that arrived before their receive */    \
    X(unexpected_copied)   /* bytes of unexpected messages that were copied */ \
    X(unexpected_held)     /* unexpected messages that were left in a buffer   \
                              of the fabric, not copied */                     \
    X(given_back)          /* receives that put their message back             \
                              (message.h) */                                   \
    X(tag_posted)          /* receives posted to the fabric */                 \
    X(tag_hidden)          /* receives not posted to the fabric when posted */ \
    X(tag_matched)         /* posted receives that the fabric matched */       \
    X(tag_put_matched)     /* long messages put (tag_put) into posted          \
                              receives */                                      \
    X(tag_put_missed)      /* long messages put (tag_put) that met no posted   \
                              receive */                                       \
    X(tuple_exposed)       /* receives that were exposed to the peer, which    \
                              may claim them (proto/tuple.h) */                \
    X(tuple_hidden)        /* long receives not exposed to the peer when       \
                              posted */                                        \
    X(tuple_placed)        /* long messages copied into exposed receives */    \
    X(tuple_taken)         /* exposed receives that the peer claimed */        \
    X(tuple_unseen)        /* long messages that fitted an exposed receive,    \
                              but did not claim it, because an earlier message \
                              may not have been matched yet */                 \
    X(tuple_none)          /* long messages for which no exposed receive       \
                              fitted */                                        \
    X(tuple_skipped)       /* long messages for which no exposed receive was   \
                              looked for, because too many of the last ones    \
                              had found none */                                \
    X(credits_withheld)    /* messages kept beyond PSP_UNEXPECTED_MAX */       \
    X(credits_exhausted)   /* short messages sent by rendezvous for want of    \
                              credit */                                        \
    X(credit_messages)     /* CREDIT messages sent */                          \
    X(back_pressure)       /* sends that had to wait for the fabric */         \
    X(am_sent)             /* user's active messages that were sent */         \
    X(am_received)                                                             \
    X(am_dropped)          /* user's active messages that arrived without a    \
                              handler */                                       \
    X(am_unsent)           /* messages of am_post whose connection ended       \
                              before they were sent */                         \
    X(offered)             /* buffers offered to the peer (psc_api_t.offer) */ \
    X(fetched)             /* buffers of the peer's offers that were           \
                              fetched */                                       \
    X(rma_put)             /* puts of the program that the fabric executed */  \
    X(rma_get)                                                                 \
    X(rma_emulated)        /* puts and gets of the program done by messages */ \
    X(rma_refused)         /* puts and gets of peers outside any open          \
                              region */                                        \
    X(lent)                /* messages sent by lending their pages */          \
    X(lend_copied)         /* messages to be lent that had to be copied */     \
    X(views_mapped)        /* messages received as a view of the sender's      \
                              pages */                                         \
    X(views_kept)          /* views of lent messages that were copied when     \
                              their connection ended */                        \
    X(segments_mapped)     /* segments of peers' pools that were mapped */     \
    X(pool_exhausted)      /* blocks of memory that did not fit into the       \
                              pool */                                          \
    X(lock_waits)          /* calls that waited for the worker's lock */       \
    X(lock_longest_ns)     /* the longest wait for the worker's lock, in ns */ \
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
