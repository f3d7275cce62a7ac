/* Declarations that tcp's own cases share: peers that are simulated by hand. */
#ifndef PSCOMPY_TESTS_CONTRACT_TCP_CASES_H
#define PSCOMPY_TESTS_CONTRACT_TCP_CASES_H

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "harness.h"
#include "pscompy/plugins/tcp/wire.h"

/* The fields of an endpoint's address. */
typedef struct tcp_target {
    uint8_t address[PSC_ADDRESS_MAX];
    size_t len;
    uint64_t id;
    uint16_t port;
} tcp_target_t;

/* tcp_cases.c */
void tcp_set(const char *name, int64_t number, const char *text);
void tcp_target_of(ct_end_t *end, tcp_target_t *target_p);
/* Connects `end` as the acceptor of a call from `caller`. */
void tcp_await_call(ct_end_t *end, ct_end_t *caller);
int tcp_dial(uint16_t port);
int tcp_dial_from(const char *source, uint16_t port);
/* tcp_listen opens a listener on loopback; tcp_address_with makes an address
 * that offers these ports there. */
int tcp_listen(uint16_t *port_p, int backlog);
size_t tcp_address_with(uint64_t id, const uint16_t *ports, unsigned n,
                        uint8_t *address);
void tcp_put(int fd, const void *bytes, size_t len);
/* Reads exactly len bytes while the side progresses. Returns false at the end
 * of the stream. */
bool tcp_take(ct_side_t *side, int fd, void *bytes, size_t len);
void tcp_progress_ms(ct_side_t *side, int ms);
size_t tcp_count_descriptors(void);

/* tcp_listen_cases.c */
void strangers_do_no_harm(void);
void silent_callers_are_dropped(void);
void callers_are_limited(void);
void crowded_source_makes_room(void);
void wrong_proof_is_refused(void);
void second_call_is_refused(void);
void wrong_protocol_is_noticed(void);
void acceptor_that_lies(void);
void token_never_travels(void);
void next_address_is_tried(void);
void nobody_answers(void);
void other_addresses_are_tried_beside_it(void);
void somebody_else_is_at_an_address(void);
void descriptors_run_out(void);

/* tcp_frame_cases.c */
void absurd_frames_break(void);
void mutated_frames_do_no_harm(void);
void dribbled_frames_arrive(void);
void cut_stream_breaks(void);
void goodbye_is_told(void);
void unreadable_buffer_breaks(void);
void proof_hash_is_siphash(void);

/* tcp_poll_cases.c */
void hot_endpoint_still_wakes(void);
void hot_endpoint_sends_the_rest(void);
void others_are_heard_beside_the_hot_one(void);
void what_is_held_is_told(void);
void what_is_held_ends_with_its_endpoint(void);
void what_is_not_done_is_not_held(void);
void own_host_is_not_paced(void);

#endif
