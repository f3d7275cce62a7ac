/* An intrusive doubly linked list: the links are members of the listed
 * structures, so nothing is allocated and removal needs no search. */
#ifndef PSCOMPY_TRANSPORT_KIT_LIST_H
#define PSCOMPY_TRANSPORT_KIT_LIST_H

#include <stdbool.h>
#include <stddef.h>

typedef struct psc_link {
    struct psc_link *next, *prev;
} psc_link_t;

typedef psc_link_t psc_list_t; /* the head is a link too */

#define psc_container_of(pointer, type, member)                                \
    ((type *)(void *)((char *)(pointer) - offsetof(type, member)))

/* The loop's body may remove `item`, but no other element. */
#define psc_list_for_each(item, list, type, member)                            \
    for (type *item = psc_container_of((list)->next, type, member),            \
              *item##_next =                                                   \
                  psc_container_of(item->member.next, type, member);           \
         &item->member != (list); item = item##_next,                          \
              item##_next = psc_container_of(item->member.next, type, member))

static inline void psc_list_init(psc_list_t *list)
{
    list->next = list->prev = list;
}

static inline bool psc_list_empty(const psc_list_t *list)
{
    return list->next == list;
}

/* A link outside any list points to itself. */
static inline bool psc_link_listed(const psc_link_t *link)
{
    return link->next != link;
}

static inline void psc_list_insert_before(psc_link_t *at, psc_link_t *link)
{
    link->next = at;
    link->prev = at->prev;
    at->prev->next = link;
    at->prev = link;
}

static inline void psc_list_push(psc_list_t *list, psc_link_t *link)
{
    psc_list_insert_before(list, link);
}

static inline void psc_list_push_front(psc_list_t *list, psc_link_t *link)
{
    psc_list_insert_before(list->next, link);
}

static inline void psc_list_remove(psc_link_t *link)
{
    link->prev->next = link->next;
    link->next->prev = link->prev;
    link->next = link->prev = link;
}

static inline psc_link_t *psc_list_pop(psc_list_t *list)
{
    psc_link_t *link = list->next;

    if (link == list)
        return NULL;
    psc_list_remove(link);
    return link;
}

#endif
