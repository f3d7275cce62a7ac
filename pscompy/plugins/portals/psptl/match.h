/* Messages that arrive: matching by the interface, delivery in order, withheld
 * receives, buffers, tags. */
#pragma once

#include "driver.h"

/* ---- match.c ---- */

/* Events of the messages that the interface matches to posted receives.
 *
 * A message without a receive is searched out of the overflow list as soon as
 * its event arrives, by its exact bits, and delivered in its turn. A receive
 * that is posted before that finds the message in the list. From the search
 * until it is delivered a message is in no list; while there is such a message,
 * receives are held, because they might miss it. If there are fewer overflow
 * buffers than messages in flight, a message must not keep an overflow buffer
 * until its turn, because an earlier message may need the buffer. So the
 * message is moved to a new buffer. */

/* Handles an event from the event queue of the portal table entry `tag`
 * (psptl.h). */
void psptl_match_event(const ptl_event_t *event);
/* Gives up matching on the channel: every receive that has matched a message
 * that is not delivered yet, or that matches one later, is reported as lost. */
void psptl_match_abort(psptl_channel_t *channel);

/* ---- deliver.c ---- */

/* Delivers messages to the owner of their channel, in the order of their
 * numbers. */

/* Puts the message of an operation into the channel's reorder window; `op` is
 * of the kind PSPTL_BUFFER, PSPTL_TAG or PSPTL_OVERFLOW. Then delivers all
 * messages whose predecessors were delivered. Returns false if the number was
 * used before, or if it is too far ahead; the channel has failed in the latter
 * case. */
bool psptl_deliver_in_order(psptl_channel_t *channel, psptl_op_t *op,
                            uint32_t number);
/* Delivers messages that arrived before their peer was known, or that had to
 * wait until receives were withdrawn from the interface. */
void psptl_deliver_pending(psptl_device_t *device);
/* Handles the event of a message that has arrived in a buffer of the receive
 * ring. */
void psptl_buffer_event(psptl_buffer_t *buffer, const ptl_event_t *event);
/* Reports the receives in `lost_tags` to their owners as lost. Returns their
 * number. */
unsigned psptl_deliver_lost(psptl_device_t *device);

/* ---- withhold.c ---- */

/* Receives that are withheld: posted, but not given to the interface. The
 * driver itself matches messages to them, when it delivers the messages in the
 * order of their numbers.
 *
 * A receive is withheld while a message that it might match is on its way to
 * the owner. All receives are withheld when flow control has disabled the
 * portal table entry `tag`: the peer sends refused messages again, behind later
 * ones, which must not match the receives of the earlier ones. The driver then
 * sends an empty message, a fence, and the peer answers it within the sequence
 * of numbers. When the answer is delivered, every message that was sent before
 * it has been delivered, so the withholding ends. The peer sent later messages
 * after the entry had been enabled; either they arrive in order, or the entry
 * was disabled once more, and then the fence has another number.
 *
 * A message that was dropped while the entry was enabled arrives late: a later
 * message may have consumed its receive. The owner does not know of that yet,
 * because the later message waits for its turn. So all later messages are
 * copied out of the receives that they consumed (rewind), and receives are
 * withheld as above. */

/* Returns true if a receive that is posted now may go to the interface, and
 * need not be withheld. */
static inline bool psptl_withhold_nothing(const psptl_channel_t *channel)
{
    return channel->matching.n_between == 0 &&
           channel->matching.n_withheld == 0 &&
           psptl_fence_open(&channel->fence);
}

/* Withholds a receive: keeps it from the interface until a message is delivered
 * to it, or until the interface may have it again. */
void psptl_withhold(psptl_tag_t *tag);
/* Returns the first withheld receive (one withheld from the interface) that
 * matches these bits; NULL if none does. */
psptl_tag_t *psptl_withhold_find(psptl_channel_t *channel, uint64_t bits);
/* Withdraws the receives of all channels from the interface, because the portal
 * table entry `tag` is disabled. Returns false if some have matched and their
 * events have not arrived. */
bool psptl_withhold_all(psptl_device_t *device);
/* Makes every channel that withholds receives send a new fence to its peer,
 * because the portal table entry `tag` is enabled again. */
void psptl_withhold_ask(psptl_device_t *device);
/* Called for `op`, a message that is next in the sequence but was overtaken by
 * later ones. If one of these consumed the receive that `op` should have, all
 * consumed receives are withheld again, and their messages are matched again in
 * order. Returns false while receives are still being withdrawn from the
 * interface; the next psptl_device_poll tries again. */
bool psptl_withhold_may_deliver(psptl_channel_t *channel, const psptl_op_t *op);
/* Moves a message from the memory of its receive into a new buffer, and holds
 * the receive. Returns NULL if memory is short; the channel has failed then. */
psptl_buffer_t *psptl_withhold_aside(psptl_tag_t *tag);
/* Moves a message from an overflow buffer, which is posted again, into a new
 * buffer. Returns NULL if memory is short; the channel has failed then. */
psptl_buffer_t *psptl_withhold_buffer(psptl_buffer_t *buffer);
/* Handles `word`, the upper half of a message's header data: a fence of the
 * peer's driver, or its answer to a fence. */
void psptl_withhold_word(psptl_channel_t *channel, uint32_t word);
/* Sends fences and answers that are due, and gives withheld receives to the
 * interface again. */
void psptl_withhold_settle(psptl_device_t *device);
/* Frees the channel's messages that psptl_withhold_aside and
 * psptl_withhold_buffer have moved and that were not delivered. */
void psptl_withhold_free(psptl_channel_t *channel);

/* ---- receive.c ---- */

/* Buffers for messages, as list entries of the interface: those of the receive
 * ring, and overflow buffers, for messages without a receive, in the overflow
 * list of the portal table entry `tag`. By default a channel has as many
 * overflow buffers as its peer may have messages in flight, so that one is
 * always free. If PSP_PORTALS_OVERFLOW_SIZE sets a smaller number, the
 * interface disables the portal table entry when no buffer is left. */

/* Allocates n * size bytes, aligned for the interface. Returns NULL if memory
 * is short. */
void *psptl_ring_bytes(size_t n, size_t size);
/* Allocates n buffers of this kind: PSPTL_BUFFER (receive ring) or
 * PSPTL_OVERFLOW. Returns false if memory is short. */
bool psptl_buffers_make(psptl_channel_t *channel, psptl_buffers_t *buffers,
                        psptl_kind_t kind, uint32_t n);
/* Posts all buffers to the interface. Returns false if the interface does not
 * take a list entry for each. */
bool psptl_buffers_post(psptl_buffers_t *buffers);
/* Unlinks the list entries of the buffers. The caller calls psptl_backlog_fetch
 * before and after. */
void psptl_buffers_unlink(psptl_buffers_t *buffers);
/* To be called after psptl_buffers_unlink and a psptl_backlog_fetch. Returns
 * true if the interface has given back all buffers. */
bool psptl_buffers_back(psptl_buffers_t *buffers);
void psptl_buffers_free(psptl_buffers_t *buffers);
/* Returns the buffer that contains the address `start`; NULL if none does. */
psptl_buffer_t *psptl_buffers_at(const psptl_buffers_t *buffers, size_t size,
                                 const void *start);
/* Posts a buffer again, because its message is not needed any more. */
void psptl_buffer_again(psptl_buffer_t *buffer);

/* ---- tag.c ---- */

/* Posted receives, and their entries in the priority list of the portal table
 * entry `tag`. A message's match bits contain the number that the receiver gave
 * to the channel (channel.h). Its header data contains the number of the
 * message, from the same sequence as the numbers of eager messages, and the
 * sender's count of received messages. */

/* Returns a new receive of the channel, in the state PSPTL_TAG_MATCHED until it
 * is linked (given to the interface) or withheld. Returns NULL if memory is
 * short. */
psptl_tag_t *psptl_tag_take(psptl_channel_t *channel);
/* Ends a receive, and keeps its psptl_tag_t for reuse. */
void psptl_tag_give(psptl_tag_t *tag);
/* Changes the state of a receive, and updates the channel's number of withheld
 * receives. */
void psptl_tag_enter(psptl_tag_t *tag, psptl_tag_state_t state);
/* Appends the receive to the priority list of the interface. Returns false if
 * that fails. */
bool psptl_tag_link(psptl_tag_t *tag);
/* Unlinks the receive's list entry. The caller calls psptl_backlog_fetch before
 * and after. */
void psptl_tag_unlink(psptl_tag_t *tag);
void psptl_tags_unlink(psptl_channel_t *channel);
/* To be called after psptl_tag_unlink and a psptl_backlog_fetch. Returns true
 * if the interface does not have the receive any more, and no message arrived
 * for it. */
bool psptl_tag_back(const psptl_tag_t *tag);
/* Ends the receives for which psptl_tag_back is true. Returns true if the
 * channel has no other receives. */
bool psptl_tags_back(psptl_channel_t *channel);
/* Makes the next psptl_device_poll report the receive to its owner as lost. */
void psptl_tag_lose(psptl_tag_t *tag);
/* Copies the bytes of a message into the memory of the receive. */
void psptl_tag_copy(psptl_tag_t *tag, const uint8_t *bytes, size_t len);
/* Returns the message that an event reports; `unexpected` is set if the message
 * arrived before its receive. */
psptl_tagged_t psptl_tag_message(const ptl_event_t *event, bool unexpected);
void psptl_tag_free(psptl_channel_t *channel);
void psptl_tag_close(psptl_device_t *device);
