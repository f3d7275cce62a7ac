/* Notes: events that the Python half of the transport queues, and that the
 * progress function handles. */
#pragma once

#include "agent.h"

typedef enum gw_note_kind {
    GW_NOTE_UP,    /* a path is connected to its gateway */
    GW_NOTE_DOWN,  /* a path is disconnected */
    GW_NOTE_LOST,  /* a node is gone, as all gateways report */
    GW_NOTE_ROUTE, /* a node is reached by this path alone */
    GW_NOTE_LOAD,  /* a gateway has reported its load */
    GW_NOTE_TICK   /* a tenth of a second has passed; see gw_probe_tick */
} gw_note_kind_t;

typedef struct gw_note {
    struct gw_note *next;
    int kind; /* gw_note_kind_t */
    uint32_t path;
    psc_conn_t *conn;
    uint64_t node, load;
    uint32_t streams;
    char name[GW_NAME_MAX];
} gw_note_t;

/* Returns all notes since the last call, the oldest first; the caller frees
 * them. */
gw_note_t *gw_notes_take(gw_agent_t *agent);
void gw_notes_destroy(gw_agent_t *agent);

/* CDEF BEGIN */
/* Queues a note about a path or a node; see gw_note_kind_t. Any thread may call
 * gw_agent_note() and gw_agent_load(), which return a status. */
int gw_agent_note(gw_agent_t *agent, int kind, uint32_t path, uintptr_t conn,
                  uint64_t node, const char *name);
/* Queues a note with the load of a path's gateway: bytes in flight, and pairs
 * of nodes. */
int gw_agent_load(gw_agent_t *agent, uint32_t path, uint64_t load,
                  uint32_t streams);
/* CDEF END */
