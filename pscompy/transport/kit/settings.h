/* A transport's settings by name, as passed to its `open`. A missing setting
 * reads as an empty text and 0. */
#ifndef PSCOMPY_TRANSPORT_KIT_SETTINGS_H
#define PSCOMPY_TRANSPORT_KIT_SETTINGS_H

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "pscompy/transport/transport.h"

static inline const psc_setting_t *
psc_setting_find(const psc_open_params_t *params, const char *name)
{
    static const psc_setting_t none = {.text = ""};

    for (uint32_t i = 0; i < params->n_settings; i++) {
        if (strcmp(params->settings[i].name, name) == 0)
            return &params->settings[i];
    }
    return &none;
}

static inline const char *psc_setting_text(const psc_open_params_t *params,
                                           const char *name)
{
    return psc_setting_find(params, name)->text;
}

static inline int64_t psc_setting_number(const psc_open_params_t *params,
                                         const char *name)
{
    return psc_setting_find(params, name)->number;
}

static inline uint32_t psc_setting_count(const psc_open_params_t *params,
                                         const char *name)
{
    return (uint32_t)psc_setting_number(params, name);
}

/* Takes the next item off *list_p, a text whose items are separated by commas,
 * semicolons or blanks. Returns false if the text has no item any more; an item
 * that does not fit into `room` bytes is cut. */
static inline bool psc_setting_item(const char **list_p, char *item,
                                    size_t room)
{
    static const char separators[] = " ,;\t\n";
    const char *at = *list_p + strspn(*list_p, separators);
    size_t len = strcspn(at, separators);

    snprintf(item, room, "%.*s", (int)len, at);
    *list_p = at + len;
    return len > 0;
}

#endif
