/* Channels: their life, sources, messages that are sent, regions with puts and
 * gets, the backlog of events. */
#pragma once

#include "driver.h"

/* ---- channel.c ---- */

/* Freeing destroyed channels. The other functions of channel.c are declared in
 * psptl.h. */

/* Frees zombies (destroyed channels) to whose memory the interface does not
 * write any more. */
void psptl_channel_reap(psptl_device_t *device);
/* Returns the number of zombies (destroyed channels) to whose memory the
 * interface may still write. */
unsigned psptl_channel_held(const psptl_device_t *device);
/* Frees a channel at once; the interface must no longer use its memory. */
void psptl_channel_free(psptl_channel_t *channel);

/* ---- source.c ---- */

/* Sources, which are numbers of channels in match bits. The interface matches
 * the messages of a channel to receives only if the channel could be given a
 * source. */

/* Gives a new channel a source, or stores the reason why it has none in
 * `matching.flaw`. */
void psptl_source_take(psptl_channel_t *channel);
/* Called when the channel expects no more events: its source no longer counts
 * in the device's n_sources. No other channel gets the source until the channel
 * is freed. */
void psptl_source_leave(psptl_channel_t *channel);
/* Called when the peer is known: the interface matches messages of the channel
 * if both sides have given it a source. Returns false if memory or list entries
 * are short. */
bool psptl_source_connect(psptl_channel_t *channel);

/* ---- send.c ---- */

/* Sending messages. Each stays in its buffer until it is acknowledged. A
 * message that did not arrive is put again after a while. New messages wait
 * until then, and are put after it. A portal table entry that flow control has
 * disabled is enabled again by the receiving driver, so attempts at a disabled
 * entry are not counted; for other faults PSP_PORTALS_RETRY_COUNT is the
 * limit. */

void psptl_send_event(psptl_send_t *send, const ptl_event_t *event);
/* Called when an attempt to put a message has failed with `fault`. Returns true
 * if the message may be put again, and false if the channel has failed. If the
 * portal table entry was disabled, the attempt is not counted. After another
 * fault the channel fails at once (psptl_spare_failed), or the attempt is
 * counted in *drops, and the channel fails if it was the last one allowed. */
bool psptl_send_may_retry(psptl_channel_t *channel, ptl_ni_fail_t fault,
                          uint32_t *drops);
/* Sets sending.retry_at, the time at which the channel's failed puts are
 * repeated. The wait grows with each failure, but only once for all puts that
 * were in flight together. */
void psptl_send_back_off(psptl_channel_t *channel);
/* Puts the messages in the state WAITING whose time to be put has come. */
void psptl_send_again(psptl_device_t *device);
/* Returns the nanoseconds to wait before the next put after this many failed
 * attempts. */
int64_t psptl_backoff(unsigned attempts);
void psptl_ping_event(psptl_channel_t *channel, const ptl_event_t *event);

/* ---- rma.c ---- */

/* Puts and gets of regions. A psptl_order_t, which describes one, is carried
 * out in fragments, which are issued as there is room, each to its own offset;
 * the put or get ends when all its fragments have ended. A fragment that met no
 * list entry at the target may have arrived before the entry was linked, so it
 * is tried again like a message. */

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

/* ---- region.c ---- */

/* Memory that peers may put to and get from: list entries with match bits of
 * their own, in which the peer chooses the offset, and which make no events at
 * the target. */

/* Returns new match bits for a region or a channel. They are hard to guess and
 * never repeat. */
uint64_t psptl_device_bits(psptl_device_t *device);
/* Called when the channel is destroyed: its regions stay open, without a
 * channel. */
void psptl_region_detach(psptl_channel_t *channel);
/* Frees regions that were closed while a put or get used them, and that nothing
 * uses any more. */
void psptl_region_reap(psptl_device_t *device);
/* Frees all closed regions, after the interface was closed. */
void psptl_region_free_closed(psptl_device_t *device);

/* ---- backlog.c ---- */

/* Unlinking of list entries, and the backlog: events that were taken from the
 * queues before their turn.
 *
 * An entry that a message has used up leaves its list by itself. Some libraries
 * return PTL_OK from PtlMEUnlink for it, although its event is still queued;
 * also, its handle may name another entry by then. So psptl_backlog_fetch
 * empties the queue into the backlog before entries are unlinked, and again
 * after that. An entry has been given back unused if PtlMEUnlink returned
 * PTL_OK and no event of the entry is in the backlog. Nothing is appended
 * between the two fetches, because no event is handled between them. Once
 * events were lost, an entry that the interface does not know any more counts
 * as given back, too. */

/* Moves all events of the entry's event queue to the backlog. Returns false if
 * memory is short. */
bool psptl_backlog_fetch(psptl_device_t *device, psptl_entry_t *entry);
/* Removes the oldest event of the backlog, which must not be empty, and returns
 * it. */
psptl_late_t psptl_backlog_take(psptl_device_t *device);
void psptl_backlog_close(psptl_backlog_t *backlog);
/* Unlinks `me`, the list entry of an operation, in at most `tries` attempts.
 * The caller calls psptl_backlog_fetch before and after. */
void psptl_op_unlink(psptl_device_t *device, psptl_op_t *op, ptl_handle_me_t me,
                     unsigned tries);

static inline bool psptl_backlog_empty(const psptl_device_t *device)
{
    return device->backlog.n == 0;
}

/* To be called after psptl_op_unlink and a psptl_backlog_fetch. Returns true if
 * no message has used the list entry of the operation, and none will. */
static inline bool psptl_op_back(const psptl_op_t *op)
{
    return op->unlinked && !op->fetched;
}

/* ---- failure.c ---- */

/* Declares a channel as failed when it cannot continue. */

#define PSPTL_NO_ANSWER "the peer's interface does not answer"

/* Marks the channel as failed, and notifies its owner, once. */
void psptl_channel_fail(psptl_channel_t *channel, psptl_verdict_t verdict,
                        const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Fails the channel if its patience_ns is not 0 and `fault`, the result of a
 * put or get, is PTL_NI_UNDELIVERABLE. Returns true if the channel has failed,
 * now or earlier. */
bool psptl_spare_failed(psptl_channel_t *channel, ptl_ni_fail_t fault);
/* Called when PtlPut or PtlGet has returned the error `status`. Fails the
 * channel, except after PTL_NO_SPACE: then the caller tries the operation
 * again. */
void psptl_put_failed(psptl_channel_t *channel, int status);
/* Returns the text for the ni_fail_type of an event, for error messages. */
const char *psptl_fault_name(ptl_ni_fail_t fault);
