/* The settings of PSP_PORTALS_*, from the table that Python parsed into what
 * the interface keeps. Their ranges were checked there (config.py). */
#include <stdio.h>
#include <string.h>

#include "portals.h"

static const psc_setting_t *portals_setting(const psc_open_params_t *params,
                                            const char *name)
{
    static const psc_setting_t none = {.text = ""};

    for (uint32_t i = 0; i < params->n_settings; i++) {
        if (strcmp(params->settings[i].name, name) == 0)
            return &params->settings[i];
    }
    return &none;
}

static int64_t portals_number(const psc_open_params_t *params,
                              const char *name)
{
    return portals_setting(params, name)->number;
}

static uint32_t portals_setting_count(const psc_open_params_t *params,
                                      const char *name)
{
    return (uint32_t)portals_number(params, name);
}

/* Rates are per million. */
static psptl_mischief_t portals_mischief(const psc_open_params_t *params)
{
    return (psptl_mischief_t){
        .fail_acks = portals_setting_count(params, "NI_FAIL_ACKS"),
        .reorder_events = portals_setting_count(params, "NI_REORDER_EVENTS"),
        .disable_tables = portals_setting_count(params, "NI_DISABLE_TABLES"),
        .drop = portals_setting_count(params, "NI_DROP"),
        .duplicate = portals_setting_count(params, "NI_DUPLICATE"),
        .reorder = portals_setting_count(params, "NI_REORDER"),
        .delay = portals_setting_count(params, "NI_DELAY"),
        .delay_us = portals_setting_count(params, "NI_DELAY_US"),
        .seed = (uint64_t)portals_number(params, "NI_SEED"),
        .max_message = (uint64_t)portals_number(params, "NI_MAX_MESSAGE"),
        .max_events = (uint64_t)portals_number(params, "NI_MAX_EVENTS"),
    };
}

static psptl_choice_t portals_setting_provider(const psc_open_params_t *params)
{
    const char *word = portals_setting(params, "PROVIDER")->text;

    if (strcmp(word, "system") == 0)
        return PSPTL_CHOICE_SYSTEM;
    return strcmp(word, "software") == 0 ? PSPTL_CHOICE_SOFTWARE
                                         : PSPTL_CHOICE_AUTO;
}

psc_status_t portals_settings_read(const psc_open_params_t *params,
                                   portals_settings_t *settings_p)
{
    psptl_settings_t *driver = &settings_p->driver;

    *settings_p = (portals_settings_t){
        .provider = portals_setting_provider(params),
        .driver = {
            .interface = portals_setting(params, "INTERFACE")->text,
            .buffer_size = (size_t)portals_number(params, "BUFFER_SIZE"),
            .sendq = portals_setting_count(params, "SENDQ_SIZE"),
            .recvq = portals_setting_count(params, "RECVQ_SIZE"),
            .eq_size = portals_setting_count(params, "EQ_SIZE"),
            .retries = portals_setting_count(params, "RETRY_COUNT"),
            .fragment = (size_t)portals_number(params, "RNDV_FRAGMENT_SIZE"),
            .regions = portals_setting_count(params, "MAX_RNDV_REQS"),
            .foster = portals_setting_count(params, "FOSTER_PROGRESS"),
            .mischief = portals_mischief(params),
        },
        .connect_ns = portals_number(params, "CONNECT_TIMEOUT"),
        .keepalive_ns = portals_number(params, "KEEPALIVE"),
    };
    if (driver->buffer_size < 2048 || driver->buffer_size > 1 << 22 ||
        driver->sendq < 2 || driver->recvq < 4 || driver->eq_size < 64 ||
        driver->fragment < 1024 || driver->regions < 1) {
        snprintf(params->reason, PSC_REASON_MAX,
                 "a setting of PSP_PORTALS_* is missing or too small");
        return PSC_ERR_INVALID;
    }
    return PSC_OK;
}
