/* Uses of a connection in C besides messages: the program opens the
 * connection, and asks why that has failed. */
#include "harness.h"
#include "pscompy/core/conn.h"
#include "pscompy/core/lane.h"

enum { ID = 4711, EVENTS = 8 };

/* Returns how often the control plane has been told of the connection. */
static int told(psc_worker_t *worker)
{
    psc_control_event_t events[EVENTS];
    int n = psc_worker_control_poll(worker, events, EVENTS), found = 0;

    check(n < EVENTS);
    for (int i = 0; i < n; i++)
        found += events[i].kind == PSC_CONTROL_CONN && events[i].id == ID;
    return found;
}

/* Send, and let connecting fail. */
static void fails_to_connect(side_t *side)
{
    psc_request_t *send = post_send(side, "message", 8, 1);

    check(send && !done(send));
    psc_conn_fail(side->conn, PSC_ERR_CONNECT);
    check(done(send) && send->result.status == PSC_ERR_CONNECT);
    api->request_free(send);
}

CASE(opening_has_the_control_plane_connect)
{
    side_t side;
    pair_t pair;

    pair_open(&pair);
    side = pair.a;
    side.conn = psc_conn_create(side.worker, ID, -1, true);
    check(side.conn);
    for (int i = 0; i < 2; i++) { /* connecting fails, and is begun again */
        check(api->conn_state(side.conn) == PSC_CONN_LAZY);
        check(api->conn_open(side.conn, 0) == PSC_OK);
        check(api->conn_open(side.conn, 0) == PSC_OK);
        check(api->conn_state(side.conn) == PSC_CONN_CONNECTING);
        check(told(side.worker) == 1);
        fails_to_connect(&side);
    }
    psc_conn_close(side.conn);
    check(api->conn_open(side.conn, 0) == PSC_ERR_CLOSED);
    psc_conn_destroy(side.conn);
    check(api->conn_open(pair.a.conn, 0) == PSC_OK); /* it is up */
    pair_close(&pair);
}

CASE(errors_of_connections_have_a_text)
{
    char text[16];
    psc_conn_t *conn;
    pair_t pair;

    pair_open(&pair);
    api->conn_error(pair.a.conn, text, sizeof text);
    check(strcmp(text, "") == 0);
    conn = psc_conn_create(pair.a.worker, ID, -1, true);
    psc_conn_set_error(conn, "no route to the host");
    api->conn_error(conn, text, sizeof text);
    check(strcmp(text, "no route to the") == 0);
    psc_conn_set_error(conn, "");
    api->conn_error(conn, text, sizeof text);
    check(strcmp(text, "") == 0);
    psc_conn_close(conn);
    api->conn_error(conn, text, sizeof text);
    check(strcmp(text, psc_status_string(PSC_ERR_CLOSED)) == 0);
    psc_conn_destroy(conn);
    pair_close(&pair);
}

/* A transport's reason for the loss of its lane goes before that of the control
 * plane. */
CASE(the_transport_says_why_a_connection_is_lost)
{
    char text[PSC_REASON_MAX];
    pair_t pair;

    pair_open(&pair);
    psc_conn_set_error(pair.a.conn, "the peer has ended");
    lane_fail(pair.a.conn->lanes[0]);
    until(&pair, api->conn_state(pair.a.conn) == PSC_CONN_FAILED);
    api->conn_error(pair.a.conn, text, sizeof text);
    check(strcmp(text, "the test says so") == 0);
    pair_close(&pair);
}
