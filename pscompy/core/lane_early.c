#include "lane.h"

#include <stdlib.h>
#include <string.h>

psc_status_t psc_early_keep(psc_lane_t *lane, const psc_am_t *am)
{
    psc_early_t *early;

    lane->early_bytes += am->len + sizeof *early;
    if (lane->early_bytes > PSC_EARLY_MAX)
        return PSC_ERR_PROTOCOL;
    early = malloc(sizeof *early + PSC_AM_HEADER_MAX + am->len);
    if (!early)
        return PSC_ERR_NO_MEMORY;
    memcpy(early->data, am->header, am->header_len);
    if (am->len)
        memcpy(early->data + PSC_AM_HEADER_MAX, am->payload, am->len);
    early->am = *am;
    early->am.header = early->data;
    early->am.payload = early->data + PSC_AM_HEADER_MAX;
    early->am.desc = NULL;
    psc_list_push(&lane->early, &early->link);
    return PSC_OK;
}

psc_early_t *psc_early_pop(psc_lane_t *lane)
{
    psc_link_t *link = psc_list_pop(&lane->early);

    return link ? psc_container_of(link, psc_early_t, link) : NULL;
}

void psc_early_drop(psc_lane_t *lane)
{
    psc_early_t *early;

    while ((early = psc_early_pop(lane)))
        free(early);
    lane->early_bytes = 0;
}
