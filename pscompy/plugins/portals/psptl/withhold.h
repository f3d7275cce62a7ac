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
#pragma once

#include "driver.h"

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
