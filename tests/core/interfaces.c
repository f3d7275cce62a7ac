/* A transport that has a capability must have its calls. The transports here
 * are tables whose calls are never made. */
#include "harness.h"
#include "pscompy/core/worker.h"

typedef struct promise {
    uint64_t caps;
    const char *call;
    size_t offset;
} promise_t;

#define CALL(caps, call) {caps, #call, offsetof(psc_transport_ops_t, call)}

static const promise_t promises[] = {
    CALL(PSC_CAP_AM_SHORT, am_short),
    CALL(PSC_CAP_AM_ZCOPY, am_zcopy),
    CALL(PSC_CAP_PUT, put),
    CALL(PSC_CAP_PUT, ep_flush),
    CALL(PSC_CAP_PUT | PSC_CAP_PUT_REMOTE, mem_register),
    CALL(PSC_CAP_PUT | PSC_CAP_PUT_REMOTE, rkey_unpack),
    CALL(PSC_CAP_GET, get),
    CALL(PSC_CAP_GET, mem_register),
    CALL(PSC_CAP_GET, mem_deregister),
    CALL(PSC_CAP_GET, rkey_pack),
    CALL(PSC_CAP_GET, rkey_unpack),
    CALL(PSC_CAP_GET, rkey_release),
    CALL(PSC_CAP_MAP, mem_share),
    CALL(PSC_CAP_MAP, rkey_map),
    CALL(PSC_CAP_MAP, mem_deregister),
    CALL(PSC_CAP_MAP, rkey_pack),
    CALL(PSC_CAP_EVENT, event_fd),
    CALL(PSC_CAP_EVENT, arm),
    CALL(PSC_CAP_TAG, tag_ready),
    CALL(PSC_CAP_TAG, tag_post),
    CALL(PSC_CAP_TAG, tag_cancel),
    CALL(PSC_CAP_TAG, tag_send),
};

static const promise_t mandatory[] = {
    CALL(0, name),       CALL(0, open),      CALL(0, query),
    CALL(0, progress),   CALL(0, close),     CALL(0, stop),
    CALL(0, fini),       CALL(0, ep_create), CALL(0, ep_address),
    CALL(0, ep_connect), CALL(0, ep_close),  CALL(0, ep_stop),
    CALL(0, ep_fini),    CALL(0, am_bcopy),
};

/* An ops table that has all calls except the one at `offset`; 0: all calls. */
static psc_transport_ops_t ops_without(size_t offset)
{
    psc_transport_ops_t ops;

    memset(&ops, 1, sizeof ops);
    ops.abi = PSC_TRANSPORT_ABI;
    ops.size = sizeof ops;
    if (offset)
        memset((char *)&ops + offset, 0, sizeof ops.open);
    return ops;
}

static psc_status_t attr_check(const psc_transport_ops_t *ops, uint64_t caps,
                               char *reason)
{
    psc_iface_attr_t attr = {.caps = caps, .max_bcopy = 1024, .max_iov = 8};

    return psc_iface_check_attr(ops, &attr, reason);
}

CASE(capability_without_its_call)
{
    const psc_transport_ops_t whole = ops_without(0);
    char reason[PSC_REASON_MAX];

    for (size_t i = 0; i < sizeof promises / sizeof *promises; i++) {
        const promise_t *promise = &promises[i];
        psc_transport_ops_t ops = ops_without(promise->offset);

        check(attr_check(&whole, promise->caps, reason) == PSC_OK);
        check(attr_check(&ops, 0, reason) == PSC_OK);
        check(attr_check(&ops, promise->caps, reason) == PSC_ERR_UNSUPPORTED);
        check(strstr(reason, promise->call));
    }
    psc_transport_ops_t unflushed =
        ops_without(offsetof(psc_transport_ops_t, ep_flush));
    check(attr_check(&unflushed, PSC_CAP_PUT | PSC_CAP_PUT_REMOTE, reason) ==
          PSC_OK);
}

CASE(transport_without_a_mandatory_call)
{
    psc_transport_ops_t ops = ops_without(0);
    char reason[PSC_REASON_MAX];

    check(psc_iface_check_ops(&ops, reason) == PSC_OK);
    for (size_t i = 0; i < sizeof mandatory / sizeof *mandatory; i++) {
        ops = ops_without(mandatory[i].offset);
        check(psc_iface_check_ops(&ops, reason) == PSC_ERR_UNSUPPORTED);
        check(strstr(reason, mandatory[i].call));
    }
    ops = ops_without(0);
    ops.abi++;
    check(psc_iface_check_ops(&ops, reason) == PSC_ERR_UNSUPPORTED);
    check(strstr(reason, "rebuild"));
}
