/* Packets: their memory, and sending them. */
#pragma once

#include "agent.h"

gw_packet_t *gw_packet_create(gw_agent_t *agent, gw_ep_t *ep, size_t room);
void gw_packet_drop(gw_packet_t *packet);
/* Sends the packet to a gateway. Returns NO_RESOURCE if that is not possible
 * now. */
psc_status_t gw_packet_send(gw_packet_t *packet, gw_path_t *path);
/* Sends a packet that consists of its header only, and is not acknowledged.
 * `number` is that of the path that the packet is about. */
void gw_packet_signal(gw_ep_t *ep, gw_path_t *path, gw_kind_t kind,
                      uint8_t number, uint32_t mark);
/* Releases packets whose requests have completed. */
void gw_packets_finished(gw_agent_t *agent);
void gw_packets_destroy(gw_agent_t *agent);
/* Completes an op that no packet refers to. Its buffers belong to the caller
 * again. */
void gw_op_release(gw_op_t *op);
