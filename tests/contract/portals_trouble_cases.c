/* An interface that violates its own rules, by mistake or on purpose. */
#include "portals_cases.h"

/* ---- an interface that breaks its own rules ---- */

/* The software NI, with one function that does otherwise, once. */
static __typeof__(PtlEQPoll) *take_event;
static bool wrapped_done;

static int take_dropped(const ptl_handle_eq_t *queues, unsigned n,
                        ptl_time_t timeout, ptl_event_t *event, unsigned *which)
{
    int status = real_ni->PtlEQPoll(queues, n, timeout, event, which);

    wrapped_done = status == PTL_OK;
    return status == PTL_OK ? PTL_EQ_DROPPED : status;
}

static int take_unknown(const ptl_handle_eq_t *queues, unsigned n,
                        ptl_time_t timeout, ptl_event_t *event, unsigned *which)
{
    int status = real_ni->PtlEQPoll(queues, n, timeout, event, which);

    wrapped_done = status == PTL_OK;
    event->type = 99;
    return status;
}

static int take_nothing(const ptl_handle_eq_t *queues, unsigned n,
                        ptl_time_t timeout, ptl_event_t *event, unsigned *which)
{
    (void)queues, (void)n, (void)timeout, (void)event, (void)which;
    wrapped_done = true;
    return PTL_ARG_INVALID;
}

static int take_once(const ptl_handle_eq_t *queues, unsigned n,
                     ptl_time_t timeout, ptl_event_t *event, unsigned *which)
{
    return (wrapped_done ? real_ni->PtlEQPoll : take_event)(queues, n, timeout,
                                                            event, which);
}

static int put_refused(ptl_handle_md_t md, ptl_size_t local, ptl_size_t len,
                       ptl_ack_req_t ack, ptl_process_t target,
                       ptl_pt_index_t pt, ptl_match_bits_t bits,
                       ptl_size_t remote, void *user, ptl_hdr_data_t data)
{
    (void)md, (void)local, (void)len, (void)ack, (void)target, (void)pt;
    (void)bits, (void)remote, (void)user, (void)data;
    return PTL_FAIL;
}

/* Both ends are up; then the interface of x fails polls or puts in another way.
 * y learns only that its peer does not exist any more. */
static void broken_end(__typeof__(PtlEQPoll) *poll, __typeof__(PtlPut) *put,
                       const char *word)
{
    ct_pair_t pair;
    ct_send_t send;
    psptl_provider_t *wrapped;

    set_number("KEEPALIVE", 20000000);
    ct_pair_up(&pair);
    wrapped = ni_wrap(pair.a);
    wrapped->PtlEQPoll = poll ? poll : wrapped->PtlEQPoll;
    wrapped->PtlPut = put ? put : wrapped->PtlPut;
    ct_send_try(&pair.x, CT_BCOPY, 10, 1, &send);
    free(send.buffer);
    ct_send_try(&pair.y, CT_BCOPY, 10, 1, &send);
    free(send.buffer);
    ct_until(&pair, pair.x.failed);
    printf("%s\n", pair.x.reason);
    ct_check(strstr(pair.x.reason, word), "%s", pair.x.reason);
    ct_end_abandon(&pair.x); /* lost operations never complete */
    ct_until(&pair, pair.y.failed);
    printf("%s\n", pair.y.reason);
    ct_end_destroy(&pair.y, NULL);
    ct_side_close(pair.a);
    ct_side_close(pair.b);
}

CASE(lost_events_are_an_error)
{
    take_event = take_dropped;
    broken_end(take_once, NULL, "PSP_PORTALS_EQ_SIZE");
}

CASE(unknown_events_are_an_error)
{
    take_event = take_unknown;
    broken_end(take_once, NULL, "an event 99");
}

CASE(queues_that_cannot_be_read_are_an_error)
{
    take_event = take_nothing;
    broken_end(take_once, NULL, "event queues cannot be read");
}

CASE(puts_that_are_refused_are_an_error)
{
    broken_end(NULL, put_refused, "takes no put");
}

/* ---- an interface that does wrong ---- */

CASE(dropped_messages_are_sent_again)
{
    ct_pair_t pair;

    fault("fail_acks", MILLION / 100);
    fault("reorder_events", MILLION / 100);
    ct_pair_up(&pair);
    traffic(&pair, 10000);
    print_counters(&pair);
    ct_check(counted(&pair, PSPTL_COUNTER_dropped) > 50, "dropped");
    ct_check(counted(&pair, PSPTL_COUNTER_resends) > 50, "resends");
    ct_check(counted(&pair, PSPTL_COUNTER_early) > 50, "early");
    ct_pair_down(&pair);
}

/* No put may be lost; the fault disables the table at one put in forty. */
CASE(disabled_tables_are_enabled_again)
{
    ct_pair_t pair;

    fault("disable_tables", MILLION / 40);
    ct_pair_up(&pair);
    while (counted(&pair, PSPTL_COUNTER_enables) < 1000)
        traffic(&pair, pair.x.received + 1000);
    print_counters(&pair);
    ct_check(counted(&pair, PSPTL_COUNTER_disabled) >= 1000, "disabled");
    ct_pair_down(&pair);
}

CASE(trouble_on_the_wire_is_mended_below)
{
    ct_pair_t pair;

    fault("drop", MILLION / 100);
    fault("duplicate", MILLION / 100);
    fault("reorder", MILLION / 100);
    ct_pair_up(&pair);
    traffic(&pair, 1500);
    ct_check(counted(&pair, PSPTL_COUNTER_resends) == 0, "resends");
    ct_pair_down(&pair);
}

CASE(attempts_are_limited)
{
    ct_pair_t pair;

    fault("fail_acks", MILLION);
    set_number("RETRY_COUNT", 3);
    ct_pair_open(&pair);
    ct_pair_start(&pair);
    ct_until(&pair, pair.x.failed);
    ct_check(strstr(pair.x.reason, "PSP_PORTALS_RETRY_COUNT"), "%s",
             pair.x.reason);
    printf("%s\n", pair.x.reason);
    ct_check(counter(pair.a, PSPTL_COUNTER_resends) == 3, "%llu resends",
             (unsigned long long)counter(pair.a, PSPTL_COUNTER_resends));
    ct_end_abandon(&pair.x);
    ct_end_abandon(&pair.y);
    ct_side_close(pair.a);
    ct_side_close(pair.b);
}
