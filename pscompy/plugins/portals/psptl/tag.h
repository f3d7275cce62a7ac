/* Posted receives, and their entries in the priority list of the tag entry.
 * The bits of a source are the receiver's number for the channel. The header
 * data contains the number of the message, from the same sequence as the
 * numbers of eager messages, and the word of the sender. */
#pragma once

#include "driver.h"

/* A new receive of the channel, in the state MATCHED. Returns NULL if memory
 * is short. */
psptl_tag_t *psptl_tag_take(psptl_channel_t *channel);
/* Ends a receive and recycles its memory. */
void psptl_tag_give(psptl_tag_t *tag);
/* Makes all changes of state of a receive. */
void psptl_tag_enter(psptl_tag_t *tag, psptl_tag_state_t state);
/* Appends the receive to the list of the interface. Returns false if that
 * fails. */
bool psptl_tag_link(psptl_tag_t *tag);
/* Unlinks the receive, between two fetches of the backlog. */
void psptl_tag_unlink(psptl_tag_t *tag);
void psptl_tags_unlink(psptl_channel_t *channel);
/* After the second fetch: returns true if the interface does not have the
 * receive any more, and no message arrived for it. */
bool psptl_tag_back(const psptl_tag_t *tag);
/* Ends the receives that are back. Returns true if none is left. */
bool psptl_tags_back(psptl_channel_t *channel);
/* Reports the receive as lost by the next poll. */
void psptl_tag_lose(psptl_tag_t *tag);
/* Copies the bytes of a message into the memory of the receive. */
void psptl_tag_copy(psptl_tag_t *tag, const uint8_t *bytes, size_t len);
/* Returns the message of an event; `unexpected` is set if it arrived before its
 * receive. */
psptl_tagged_t psptl_tag_message(const ptl_event_t *event, bool unexpected);
void psptl_tag_free(psptl_channel_t *channel);
void psptl_tag_close(psptl_device_t *device);
