/* Declares the functions in a transport's table of operations, and defines
 * those that are the same in several transports. Header only. */
#ifndef PSCOMPY_TRANSPORT_KIT_OPERATIONS_H
#define PSCOMPY_TRANSPORT_KIT_OPERATIONS_H

#include <stdlib.h>

#include "pscompy/transport/transport.h"

#define PSC_OPERATION(prefix, name)                                            \
    __typeof__(*((psc_transport_ops_t *)0)->name) prefix##_##name

/* Declares the function <prefix>_<operation> for each operation on endpoints,
 * memory and descriptors. A transport defines those that its table names. */
#define PSC_OPERATIONS(prefix)                                                 \
    PSC_OPERATION(prefix, ep_create);                                          \
    PSC_OPERATION(prefix, ep_address);                                         \
    PSC_OPERATION(prefix, ep_connect);                                         \
    PSC_OPERATION(prefix, ep_spare);                                           \
    PSC_OPERATION(prefix, ep_close);                                           \
    PSC_OPERATION(prefix, ep_stop);                                            \
    PSC_OPERATION(prefix, ep_fini);                                            \
    PSC_OPERATION(prefix, am_bcopy);                                           \
    PSC_OPERATION(prefix, am_short);                                           \
    PSC_OPERATION(prefix, am_zcopy);                                           \
    PSC_OPERATION(prefix, put);                                                \
    PSC_OPERATION(prefix, put_am);                                             \
    PSC_OPERATION(prefix, get);                                                \
    PSC_OPERATION(prefix, mem_register);                                       \
    PSC_OPERATION(prefix, mem_deregister);                                     \
    PSC_OPERATION(prefix, mem_revoke);                                         \
    PSC_OPERATION(prefix, rkey_pack);                                          \
    PSC_OPERATION(prefix, rkey_unpack);                                        \
    PSC_OPERATION(prefix, rkey_release);                                       \
    PSC_OPERATION(prefix, mem_share);                                          \
    PSC_OPERATION(prefix, rkey_map);                                           \
    PSC_OPERATION(prefix, desc_release);                                       \
    PSC_OPERATION(prefix, tag_ready);                                          \
    PSC_OPERATION(prefix, tag_post);                                           \
    PSC_OPERATION(prefix, tag_cancel);                                         \
    PSC_OPERATION(prefix, tag_send);                                           \
    PSC_OPERATION(prefix, tag_put);                                            \
    PSC_OPERATION(prefix, event_fd);                                           \
    PSC_OPERATION(prefix, arm);                                                \
    PSC_OPERATION(prefix, ep_counters);                                        \
    PSC_OPERATION(prefix, iface_counters)

/* `close` of an interface that has no listener: only a peer that has an
 * endpoint's address can connect. */
static inline void psc_kit_close(psc_iface_t *iface)
{
    (void)iface;
}

/* `stop` of an interface that has nothing in flight besides what ep_stop waits
 * for. */
static inline psc_status_t psc_kit_stop(psc_iface_t *iface)
{
    (void)iface;
    return PSC_OK;
}

/* `rkey_release` of a key that is one block of malloc. */
static inline void psc_kit_rkey_release(psc_ep_t *ep, psc_rkey_t *rkey)
{
    (void)ep;
    free(rkey);
}

#endif
