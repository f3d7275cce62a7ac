#include "worker.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

/* ---- functions that a transport must have ---- */

/* A transport with the capability `cap`, and without `unless`, must have the
 * function `call` in its table. */
typedef struct iface_need {
    uint64_t cap, unless;
    const char *name;
    const char *call;
    size_t offset; /* offset of that function in psc_transport_ops_t */
} iface_need_t;

#define NEED_UNLESS(cap_, unless_, call_)                                      \
    {PSC_CAP_##cap_, unless_, #cap_, #call_,                                   \
     offsetof(psc_transport_ops_t, call_)}
#define NEED(cap_, call_) NEED_UNLESS(cap_, 0, call_)
#define PSC_CAP_EVERY UINT64_MAX
#define NEED_ALWAYS(call_)                                                     \
    {PSC_CAP_EVERY, 0, "every transport", #call_,                              \
     offsetof(psc_transport_ops_t, call_)}

static const iface_need_t mandatory[] = {
    NEED_ALWAYS(name),       NEED_ALWAYS(open),      NEED_ALWAYS(query),
    NEED_ALWAYS(progress),   NEED_ALWAYS(close),     NEED_ALWAYS(stop),
    NEED_ALWAYS(fini),       NEED_ALWAYS(ep_create), NEED_ALWAYS(ep_address),
    NEED_ALWAYS(ep_connect), NEED_ALWAYS(ep_close),  NEED_ALWAYS(ep_stop),
    NEED_ALWAYS(ep_fini),    NEED_ALWAYS(am_bcopy),
};

static const iface_need_t by_capability[] = {
    NEED(AM_SHORT, am_short), NEED(AM_ZCOPY, am_zcopy),
    NEED(PUT, put),           NEED_UNLESS(PUT, PSC_CAP_PUT_REMOTE, ep_flush),
    NEED(PUT, mem_register),  NEED(PUT, mem_deregister),
    NEED(PUT, rkey_pack),     NEED(PUT, rkey_unpack),
    NEED(PUT, rkey_release),  NEED(GET, get),
    NEED(GET, mem_register),  NEED(GET, mem_deregister),
    NEED(GET, rkey_pack),     NEED(GET, rkey_unpack),
    NEED(GET, rkey_release),  NEED(MAP, mem_share),
    NEED(MAP, rkey_map),      NEED(MAP, mem_deregister),
    NEED(MAP, rkey_pack),     NEED(EVENT, event_fd),
    NEED(EVENT, arm),         NEED(TAG, tag_ready),
    NEED(TAG, tag_post),      NEED(TAG, tag_cancel),
    NEED(TAG, tag_send),      NEED(EXPOSE, expose),
    NEED(EXPOSE, conceal),    NEED(EXPOSE, exposed),
    NEED(EXPOSE, claim),      NEED(PUT_AM, put_am),
    NEED(PUT_AM, put),
};

/* Returns true if the member at this offset is not NULL. All members that are
 * checked, including the name, are pointers of one size. */
static bool iface_has(const psc_transport_ops_t *ops, size_t offset)
{
    void (*call)(void);

    memcpy(&call, (const char *)ops + offset, sizeof call);
    return call != NULL;
}

/* Reject a transport that has a capability but lacks a function for it: a call
 * of that function would crash later. */
static psc_status_t iface_check(const psc_transport_ops_t *ops,
                                const iface_need_t *needs, size_t n,
                                uint64_t caps, char *reason)
{
    for (size_t i = 0; i < n; i++) {
        const iface_need_t *need = &needs[i];

        if (!(caps & need->cap) || caps & need->unless ||
            iface_has(ops, need->offset))
            continue;
        snprintf(reason, PSC_REASON_MAX,
                 "%s needs %s, which the ops table lacks (transport.h)",
                 need->name, need->call);
        return PSC_ERR_UNSUPPORTED;
    }
    return PSC_OK;
}

#define COUNT(array) (sizeof(array) / sizeof *(array))

/* ---- all checks ---- */

psc_status_t psc_iface_check_ops(const psc_transport_ops_t *ops, char *reason)
{
    if (ops->abi != PSC_TRANSPORT_ABI || ops->size != sizeof *ops) {
        snprintf(reason, PSC_REASON_MAX,
                 "built for transport ABI %u, this core has %u; rebuild it "
                 "against the installed headers",
                 ops->abi, PSC_TRANSPORT_ABI);
        return PSC_ERR_UNSUPPORTED;
    }
    return iface_check(ops, mandatory, COUNT(mandatory), PSC_CAP_EVERY, reason);
}

psc_status_t psc_iface_check_attr(const psc_transport_ops_t *ops,
                                  const psc_iface_attr_t *attr, char *reason)
{
    const char *wrong = NULL;

    if (attr->max_bcopy < 1024 || attr->max_iov < 8)
        wrong = "max_bcopy must be at least 1024 and max_iov 8";
    else if (attr->rail > UINT16_MAX)
        wrong = "rail must be below 65536";
    if (!wrong)
        return iface_check(ops, by_capability, COUNT(by_capability), attr->caps,
                           reason);
    snprintf(reason, PSC_REASON_MAX, "%s", wrong);
    return PSC_ERR_UNSUPPORTED;
}
