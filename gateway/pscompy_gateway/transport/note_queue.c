/* A lock-free stack of notes (see gw_note_t): any thread pushes notes, the
 * progress function takes all of them at once. */
#include "note_queue.h"

#include <stdio.h>
#include <stdlib.h>

static int note_leave(gw_agent_t *agent, const gw_note_t *what)
{
    gw_note_t *note = malloc(sizeof *note);

    if (!note)
        return PSC_ERR_NO_MEMORY;
    *note = *what;
    note->next = atomic_load(&agent->notes);
    while (!atomic_compare_exchange_weak(&agent->notes, &note->next, note))
        ;
    agent->api->wake(agent->worker);
    return PSC_OK;
}

int gw_agent_note(gw_agent_t *agent, int kind, uint32_t path, uintptr_t conn,
                  uint64_t node, const char *name)
{
    gw_note_t note = {
        .kind = kind, .path = path, .conn = (psc_conn_t *)conn, .node = node};

    snprintf(note.name, sizeof note.name, "%s", name ? name : "");
    return note_leave(agent, &note);
}

int gw_agent_load(gw_agent_t *agent, uint32_t path, uint64_t load,
                  uint32_t streams)
{
    gw_note_t note = {
        .kind = GW_NOTE_LOAD, .path = path, .load = load, .streams = streams};

    return note_leave(agent, &note);
}

gw_note_t *gw_notes_take(gw_agent_t *agent)
{
    gw_note_t *note, *first = NULL, *next;

    if (!atomic_load_explicit(&agent->notes, memory_order_relaxed))
        return NULL;
    for (note = atomic_exchange(&agent->notes, NULL); note; note = next) {
        next = note->next; /* the latest note is first: reverse the order */
        note->next = first;
        first = note;
    }
    return first;
}

void gw_notes_destroy(gw_agent_t *agent)
{
    gw_note_t *next;

    for (gw_note_t *note = gw_notes_take(agent); note; note = next) {
        next = note->next;
        free(note);
    }
}
