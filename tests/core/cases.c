/* The core's test cases over one transport. Usage: cases NAME SETTING... */
#include <pthread.h>

#include "bundles.h"
#include "completions.h"
#include "driven.h"
#include "ends.h"
#include "fins.h"
#include "following.h"
#include "full_lane.h"
#include "giveback.h"
#include "harness.h"
#include "hostile.h"
#include "interfaces.h"
#include "lending.h"
#include "lifetimes.h"
#include "match_lists.h"
#include "messages.h"
#include "parts.h"
#include "remote.h"
#include "sleepers.h"
#include "strided.h"
#include "taken.h"

void harness_setting(char *argument);

/* ---- flow control ---- */

static void case_flood(void)
{
    enum { MESSAGES = 20000, LENGTH = 1000 };
    psc_request_t **sends = calloc(MESSAGES, sizeof *sends);
    char *out = malloc(LENGTH), in[LENGTH];
    pair_t pair;

    options.unexpected_max = 1 << 20;
    options.rts_max = 64;
    pair_open(&pair);
    for (unsigned i = 0; i < MESSAGES; i++) {
        fill(out, LENGTH, 0);
        sends[i] = post_send(&pair.a, out, LENGTH, (int32_t)i);
    }
    until(&pair, count(pair.b.worker, PSC_COUNTER_credits_withheld) > 0);
    until(&pair, count(pair.a.worker, PSC_COUNTER_credits_exhausted) > 0);
    settle(&pair);
    check(count(pair.b.worker, PSC_COUNTER_unexpected) < 3000);
    for (unsigned i = 0; i < MESSAGES; i++) {
        psc_result_t result;
        psc_request_t *recv =
            post_recv(&pair.b, pair.b.conn, in, LENGTH, PSC_ANY_TAG, &result);

        if (recv)
            result = finish(&pair, recv);
        check(result.tag == (int32_t)i && filled(in, LENGTH, 0));
    }
    for (unsigned i = 0; i < MESSAGES; i++) {
        if (sends[i])
            check(finish(&pair, sends[i]).status == PSC_OK);
    }
    pair_close(&pair);
    free(sends);
    free(out);
}

static void case_many_rendezvous(void)
{
    enum { N = 200, LENGTH = 100000 };
    char *out = malloc(LENGTH), *in = malloc((size_t)N * LENGTH);
    psc_request_t *sends[N], *recvs[N];
    psc_result_t result;
    pair_t pair;

    pair_open(&pair);
    fill(out, LENGTH, 1);
    for (int i = 0; i < N; i++) {
        recvs[i] = post_recv(&pair.b, pair.b.conn, in + (size_t)i * LENGTH,
                             LENGTH, i, &result);
        sends[i] = post_send(&pair.a, out, LENGTH, i);
    }
    for (int i = N - 1; i >= 0; i--) {
        check(finish(&pair, recvs[i]).status == PSC_OK);
        check(finish(&pair, sends[i]).status == PSC_OK);
        check(filled(in + (size_t)i * LENGTH, LENGTH, 1));
    }
    pair_close(&pair);
    free(out);
    free(in);
}

/* ---- threads ---- */

typedef struct thread_args {
    side_t side;
    int32_t tag;
    bool sender;
    int messages;
} thread_args_t;

enum { THREAD_MESSAGES = 1000 };

static int messages_wanted(void)
{
    const char *wanted = getenv("PSCOMPY_TEST_MESSAGES");

    return wanted ? atoi(wanted) : THREAD_MESSAGES;
}

static void thread_wait(side_t *side, psc_request_t *request)
{
    psc_status_t status;

    do {
        status =
            api->wait(side->worker, &request, 1, PSC_WAIT_ALL, PATIENCE_NS);
    } while (status == PSC_ERR_INTERRUPTED || status == PSC_INPROGRESS);
    check(status == PSC_OK && request->result.status == PSC_OK);
    api->request_free(request);
}

static void *thread_main(void *arg)
{
    thread_args_t *me = arg;
    static const size_t lengths[] = {8, 3000, 70000};
    char *buffer = malloc(70000);

    for (int i = 0; i < me->messages; i++) {
        size_t len = lengths[i % 3];
        psc_request_t *request;
        psc_result_t result = {.status = PSC_OK};

        if (me->sender) {
            fill(buffer, len, (unsigned)i);
            request = post_send(&me->side, buffer, len, me->tag);
        } else {
            request = post_recv(&me->side, me->side.conn, buffer, 70000,
                                me->tag, &result);
        }
        if (request)
            thread_wait(&me->side, request);
        check(result.status >= 0 && filled(buffer, len, (unsigned)i));
    }
    free(buffer);
    return NULL;
}

/* Four threads per side on one connection: two send, two receive. */
static void case_threads(void)
{
    thread_args_t args[8];
    pthread_t threads[8];
    pair_t pair;

    pair_open(&pair);
    for (int i = 0; i < 8; i++) {
        args[i] = (thread_args_t){.side = i < 4 ? pair.a : pair.b,
                                  .tag = i % 4 < 2 ? i % 2 : 2 + i % 2,
                                  .sender = (i < 4) == (i % 4 < 2),
                                  .messages = messages_wanted()};
        check(!pthread_create(&threads[i], NULL, thread_main, &args[i]));
    }
    for (int i = 0; i < 8; i++)
        pthread_join(threads[i], NULL);
    pair_close(&pair);
}

/* ---- main ---- */

static const struct {
    const char *name;
    void (*func)(void);
} cases[] = {
    {"pool_of_requests", case_pool_of_requests},
    {"queue_of_completions", case_queue_of_completions},
    {"notices", case_notices},
    {"flow", case_flow},
    {"room_of_worker", case_room_of_worker},
    {"pace", case_pace},
    {"idle_nodes", case_idle_nodes},
    {"sizes_auto", case_sizes_auto},
    {"sizes_put", case_sizes_put},
    {"sizes_get", case_sizes_get},
    {"sizes_am", case_sizes_am},
    {"truncation", case_truncation},
    {"pieces", case_pieces},
    {"wildcards", case_wildcards},
    {"probe_and_cancel", case_probe_and_cancel},
    {"matched_probe", case_matched_probe},
    {"room", case_room},
    {"given_back_to_its_place", case_given_back_to_its_place},
    {"given_back_without_its_buffer", case_given_back_without_its_buffer},
    {"given_back_to_who_waits", case_given_back_to_who_waits},
    {"given_back_truncated", case_given_back_truncated},
    {"given_back_too_late", case_given_back_too_late},
    {"given_up_on_its_way", case_given_up_on_its_way},
    {"given_up_twice", case_given_up_twice},
    {"given_up_and_lost", case_given_up_and_lost},
    {"strided_copies", case_strided_copies},
    {"strided_messages", case_strided_messages},
    {"strided_truncation", case_strided_truncation},
    {"strided_given_back", case_strided_given_back},
    {"strided_given_up", case_strided_given_up},
    {"strided_left_in_flight", case_strided_left_in_flight},
    {"notified_once", case_notified_once},
    {"handed_over_without_the_lock", case_handed_over_without_the_lock},
    {"freed_in_the_queue", case_freed_in_the_queue},
    {"freed_while_in_flight", case_freed_while_in_flight},
    {"completions_beside_the_poller", case_completions_beside_the_poller},
    {"flood", case_flood},
    {"many_rendezvous", case_many_rendezvous},
    {"active_messages", case_active_messages},
    {"posted_to_nobody", case_posted_to_nobody},
    {"posted_and_ended", case_posted_and_ended},
    {"capability_without_its_call", case_capability_without_its_call},
    {"transport_without_a_mandatory_call",
     case_transport_without_a_mandatory_call},
    {"refused_interface_stops", case_refused_interface_stops},
    {"unpolled_messages", case_unpolled_messages},
    {"unpolled_and_ended", case_unpolled_and_ended},
    {"unpolled_and_long", case_unpolled_and_long},
    {"remote_memory", case_remote_memory},
    {"put_into_a_closed_region", case_put_into_a_closed_region},
    {"get_from_a_closed_region", case_get_from_a_closed_region},
    {"region_outlives_no_peer", case_region_outlives_no_peer},
    {"landing_in_a_closed_region", case_landing_in_a_closed_region},
    {"landing_when_a_connection_fails", case_landing_when_a_connection_fails},
    {"landing_when_a_peer_closes", case_landing_when_a_peer_closes},
    {"fin_overtakes_fragments", case_fin_overtakes_fragments},
    {"fin_beside_a_landing", case_fin_beside_a_landing},
    {"receive_with_a_late_writer", case_receive_with_a_late_writer},
    {"region_with_a_late_writer", case_region_with_a_late_writer},
    {"close_in_order", case_close_in_order},
    {"close_both", case_close_both},
    {"close_then_gone", case_close_then_gone},
    {"fail_midway", case_fail_midway},
    {"gone_before_installed", case_gone_before_installed},
    {"sent_and_gone_before_installed", case_sent_and_gone_before_installed},
    {"lazy_is_not_awaited", case_lazy_is_not_awaited},
    {"hostile_frames", case_hostile_frames},
    {"hostile_flood", case_hostile_flood},
    {"hostile_announcements", case_hostile_announcements},
    {"hostile_promises", case_hostile_promises},
    {"frames_after_the_end", case_frames_after_the_end},
    {"one_stop_per_full_lane", case_one_stop_per_full_lane},
    {"credit_of_a_refused_header", case_credit_of_a_refused_header},
    {"fins_together", case_fins_together},
    {"fin_while_another_moves", case_fin_while_another_moves},
    {"fins_refused", case_fins_refused},
    {"fins_and_close", case_fins_and_close},
    {"fins_and_end", case_fins_and_end},
    {"hostile_fins", case_hostile_fins},
    {"bundles", case_bundles},
    {"bundle_over_lanes", case_bundle_over_lanes},
    {"bundle_withdrawn", case_bundle_withdrawn},
    {"bundle_and_end", case_bundle_and_end},
    {"hostile_offers", case_hostile_offers},
    {"destroyed_connections_are_freed", case_destroyed_connections_are_freed},
    {"destroy_with_unreceived_messages", case_destroy_with_unreceived_messages},
    {"destroy_with_messages_in_hand", case_destroy_with_messages_in_hand},
    {"wake", case_wake},
    {"match_lists", case_match_lists},
    {"blocks", case_blocks},
    {"lending", case_lending},
    {"lent_and_received", case_lent_and_received},
    {"views_outlive_all", case_views_outlive_all},
    {"views_are_kept", case_views_are_kept},
    {"lending_threads", case_lending_threads},
    {"hostile_loans", case_hostile_loans},
    {"hostile_keys", case_hostile_keys},
    {"threads", case_threads},
    {"driven", case_driven},
    {"driven_and_waited", case_driven_and_waited},
    {"a_send_that_leaves_wakes_nobody", case_a_send_that_leaves_wakes_nobody},
    {"polling_wakes_sleepers", case_polling_wakes_sleepers},
    {"sleepers_are_apart", case_sleepers_are_apart},
    {"news_before_arming", case_news_before_arming},
    {"sleepers_outlive_workers", case_sleepers_outlive_workers},
    {"starved_beside_another", case_starved_beside_another},
    {"only_its_thread_is_woken", case_only_its_thread_is_woken},
    {"two_wait_for_one", case_two_wait_for_one},
    {"any_of_several", case_any_of_several},
    {"a_follower_watches_first", case_a_follower_watches_first},
    {"role_is_passed_on", case_role_is_passed_on},
    {"waits", case_waits},
    {"waits_beside_a_passer_by", case_waits_beside_a_passer_by},
};

int main(int argc, char **argv)
{
    api = (const psc_api_t *)psc_api_address();
    for (int i = 2; i < argc; i++)
        harness_setting(argv[i]);
    for (size_t i = 0; argc > 1 && i < sizeof cases / sizeof *cases; i++) {
        if (strcmp(argv[1], cases[i].name) != 0)
            continue;
        options = (options_t){
            .eager_max = 1000, .unexpected_max = 64 << 20, .rts_max = 1024};
        cases[i].func();
        return 0;
    }
    fprintf(stderr, "usage: %s CASE NAME=NUMBER:TEXT...\n", argv[0]);
    return 2;
}
