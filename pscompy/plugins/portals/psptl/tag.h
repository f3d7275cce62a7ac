/* Posted receives, and their entries in the priority list of the portal table
 * entry `tag`. A message's match bits contain the number that the receiver gave
 * to the channel (source.h). Its header data contains the number of the
 * message, from the same sequence as the numbers of eager messages, and the
 * sender's count of received messages. */
#pragma once

#include "driver.h"

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
