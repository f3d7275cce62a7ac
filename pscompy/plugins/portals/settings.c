/* Reads PSP_PORTALS_* from the table of parsed settings. config.py has checked
 * their ranges. */
#include <stdio.h>
#include <string.h>

#include "portals.h"
#include "pscompy/transport/kit/settings.h"

static psptl_choice_t portals_setting_provider(const psc_open_params_t *params)
{
    const char *word = psc_setting_text(params, "PROVIDER");

    if (strcmp(word, "system") == 0)
        return PSPTL_CHOICE_SYSTEM;
    return strcmp(word, "software") == 0 ? PSPTL_CHOICE_SOFTWARE
                                         : PSPTL_CHOICE_AUTO;
}

/* Finds the interface of path number params->path in PSP_PORTALS_INTERFACE:
 * each item of the list is a path (a rail), and paths are numbered in the order
 * of the list. */
static void portals_settings_path(const psc_open_params_t *params,
                                  portals_settings_t *settings)
{
    const char *list = psc_setting_text(params, "INTERFACE");
    char item[PORTALS_NAME_MAX];
    unsigned n = 0;

    for (; psc_setting_item(&list, item, sizeof(item)); n++) {
        if (n == params->path)
            memcpy(settings->interface, item, sizeof(item));
    }
    settings->path = params->path;
    settings->paths = n > 0 ? n : 1;
    settings->driver.interface = settings->interface;
}

psc_status_t portals_settings_read(const psc_open_params_t *params,
                                   portals_settings_t *settings_p)
{
    psptl_settings_t *driver = &settings_p->driver;

    *settings_p = (portals_settings_t){
        .driver =
            {
                .provider = portals_setting_provider(params),
                .buffer_size =
                    (size_t)psc_setting_number(params, "BUFFER_SIZE"),
                .sendq = psc_setting_count(params, "SENDQ_SIZE"),
                .recvq = psc_setting_count(params, "RECVQ_SIZE"),
                .eq_size = psc_setting_count(params, "EQ_SIZE"),
                .retries = psc_setting_count(params, "RETRY_COUNT"),
                .fragment =
                    (size_t)psc_setting_number(params, "RNDV_FRAGMENT_SIZE"),
                .regions = psc_setting_count(params, "MAX_RNDV_REQS"),
                .matching = psc_setting_number(params, "MATCHING") != 0,
                .foster = psc_setting_count(params, "FOSTER_PROGRESS"),
            },
        .connect_ns = psc_setting_number(params, "CONNECT_TIMEOUT"),
        .keepalive_ns = psc_setting_number(params, "KEEPALIVE"),
        .rail_ns = psc_setting_number(params, "RAIL_TIMEOUT"),
    };
    portals_settings_path(params, settings_p);
    driver->overflows = psc_setting_count(params, "OVERFLOW_SIZE");
    if (driver->overflows == 0 || driver->overflows > driver->recvq)
        driver->overflows = driver->recvq;
    if (driver->buffer_size < 2048 || driver->buffer_size > 1 << 22 ||
        driver->sendq < 2 || driver->recvq < 4 || driver->eq_size < 64 ||
        driver->fragment < 1024 || driver->regions < 1) {
        snprintf(params->reason, PSC_REASON_MAX,
                 "a setting of PSP_PORTALS_* is missing or too small");
        return PSC_ERR_INVALID;
    }
    return PSC_OK;
}
