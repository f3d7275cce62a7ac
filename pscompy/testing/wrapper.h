/* Declarations that both halves of the wrapper use: faults.c passes calls down
 * to the inner transport, upcalls.c passes its upcalls up to the core. */
#pragma once

#include <stdbool.h>

#include "faults.h"
#include "pscompy/transport/kit/list.h"
#include "pscompy/transport/transport.h"

struct faults {
    psc_iface_t super;
    psc_transport_ops_t ops;
    const psc_transport_ops_t *inner_ops;
    psc_iface_t *inner;
    faults_knobs_t knobs;
    uint32_t path;
    psc_list_t breaking; /* endpoints whose failure is not reported yet */
    uint64_t operations;
    uint32_t busy_left, delay_left;
    uint32_t delay; /* calls of the progress function that do nothing, of which
                       delay_left are still to come */
    uint32_t dice;
    /* next in the list of wrappers, one per path of the fabric
     * (psc_open_params_t.path); NULL at its end */
    faults_t *next;
    bool owed; /* an operation has returned NO_RESOURCE, so `arm` must not let
                  the core sleep before the next progress */
};

typedef struct faults_ep {
    psc_ep_t super;
    psc_ep_t *inner;
    psc_link_t link;
    bool broken, closed;
} faults_ep_t;

static inline faults_t *faults_of(psc_iface_t *iface)
{
    return psc_container_of(iface, faults_t, super);
}

static inline faults_ep_t *ep_of(psc_ep_t *ep)
{
    return psc_container_of(ep, faults_ep_t, super);
}

extern const psc_upcalls_t faults_upcalls;
