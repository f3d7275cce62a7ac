/* The interfaces of a worker: its open transports. iface.c opens and closes
 * them, progress/pace.c decides how often each is polled. */
#pragma once

#include <stdatomic.h>

#include "../control.h"

#define PSC_IFACES_MAX 16

typedef struct psc_iface_slot {
    /* the interface that was opened after this one; NULL: this is the last
     * one */
    struct psc_iface_slot *next;
    psc_worker_t *worker;
    psc_iface_t *iface;
    const psc_transport_ops_t *ops;
    psc_iface_attr_t attr;
    uint32_t index;
    /* the interface is polled on one of this many passes; a power of two */
    unsigned every;
    /* number of passes on each of which the interface is polled after a poll of
     * it has found something, or a lane was given a piece of a message */
    unsigned linger;
    /* passes left on which the interface is polled because of `linger` */
    unsigned awake;
    uint32_t lanes; /* number of lanes that use the interface */
    /* number of lanes that use the interface and do not carry the ordered
     * messages of their connections (psc_lane_t.further) */
    uint32_t further;
} psc_iface_slot_t;

typedef struct psc_interfaces {
    psc_iface_slot_t *first; /* the others follow by `next` */
    uint32_t n;
    /* the interface over which ranks of the job connect by calls (without the
     * control plane; see control.h), or NULL */
    psc_iface_slot_t *calls;
    /* protocol parameters of the connections that come up by calls over the
     * interface `calls` */
    psc_proto_params_t call_params;
    /* passes that a spinning thread makes between two clock reads; see
     * spin.c */
    atomic_uint stride;
} psc_interfaces_t;

#define psc_iface_for_each(slot, interfaces)                                   \
    for (psc_iface_slot_t *slot = (interfaces)->first; slot; slot = slot->next)

/* Returns the interface that was opened as number `index`, from 0. */
static inline psc_iface_slot_t *
psc_iface_slot(const psc_interfaces_t *interfaces, int index)
{
    psc_iface_slot_t *slot = interfaces->first;

    while (index-- > 0)
        slot = slot->next;
    return slot;
}

/* A set of a worker's interfaces, as bits by their indices. A struct, so that a
 * bool is not accepted by mistake. */
typedef struct psc_ifaces {
    uint32_t bits;
} psc_ifaces_t;

static inline psc_ifaces_t psc_iface_bit(const psc_iface_slot_t *slot)
{
    return (psc_ifaces_t){1u << slot->index};
}
