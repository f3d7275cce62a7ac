/* Puts and gets of regions. A psptl_order_t, which describes one, is carried
 * out in fragments, which are issued as there is room, each to its own offset;
 * the put or get ends when all its fragments have ended. A fragment that met no
 * list entry at the target may have arrived before the entry was linked, so it
 * is tried again like a message. */
#pragma once

#include "driver.h"

/* Allocates the psptl_fragment_t of a device. Returns false if memory is
 * short. */
bool psptl_bulk_open(psptl_device_t *device);
void psptl_bulk_close(psptl_device_t *device);
void psptl_bulk_event(psptl_fragment_t *fragment, const ptl_event_t *event);
/* Issues fragments of the puts and gets that are waiting, as many as the
 * interface takes. */
void psptl_bulk_go_on(psptl_device_t *device);
/* Reports the puts and gets that have ended by the upcall `done`. Returns their
 * number. */
unsigned psptl_bulk_report(psptl_device_t *device);
/* Ends the channel's puts and gets that have no fragment in flight, and issues
 * no more fragments of its other puts and gets. */
void psptl_bulk_abort(psptl_channel_t *channel);
