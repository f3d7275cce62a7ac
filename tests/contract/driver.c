/* The contract's tests: any transport against pscompy/transport/transport.h.
 *
 * How a transport joins: it defines `uintptr_t <name>_transport(void)` in
 * pscompy/plugins/<name>/transport.c, and declares its settings in
 * VARIABLES in config.py there. Nothing else: test_contract.py finds it,
 * compiles its sources with this folder's under AddressSanitizer and UBSan,
 * and runs every case in a process of its own with the declared defaults.
 * Cases of one transport alone go into <name>_*cases.c in this folder.
 *
 * By hand, after pytest has kept a compiled driver (--basetemp=/tmp/contract):
 *   driver_tcp list
 *   driver_tcp exchange_bcopy NAME=NUMBER:TEXT ...   (its settings)
 * Exit code 0: held; 77: skipped, with the reason; anything else: broken. */
#include <unistd.h>

#include "harness.h"

uintptr_t TRANSPORT(void);

static int driver_list(void)
{
    for (const test_case_t *it = test_cases; it; it = it->next)
        puts(it->name);
    return 0;
}

/* Parses NAME=NUMBER:TEXT; the argument is split in place. */
static bool driver_setting(char *argument, psc_setting_t *setting)
{
    char *number = strchr(argument, '='), *text;

    if (!number)
        return false;
    *number++ = 0;
    text = strchr(number, ':');
    if (!text)
        return false;
    *text++ = 0;
    setting->name = argument;
    setting->number = strtoll(number, NULL, 10);
    setting->text = text;
    return true;
}

/* Later settings of a name replace earlier ones. */
static uint32_t driver_settings(char **arguments, int n, psc_setting_t *table)
{
    uint32_t used = 0;

    for (int i = 0; i < n; i++) {
        psc_setting_t setting;
        uint32_t at = 0;

        ct_check(driver_setting(arguments[i], &setting), "argument %d", i);
        while (at < used && strcmp(table[at].name, setting.name) != 0)
            at++;
        table[at] = setting;
        used = at == used ? used + 1 : used;
    }
    return used;
}

#define CAPABILITY(name) {PSC_CAP_##name, #name}

static const struct {
    uint64_t bit;
    const char *name;
} capabilities[] = {
    CAPABILITY(AM_SHORT), CAPABILITY(AM_ZCOPY),    CAPABILITY(PUT),
    CAPABILITY(GET),      CAPABILITY(PUT_THEN_AM), CAPABILITY(PUT_REMOTE),
    CAPABILITY(TAG),      CAPABILITY(EVENT),       CAPABILITY(SELF),
    CAPABILITY(NODE),     CAPABILITY(MEM_LOCAL),   CAPABILITY(EOF),
    CAPABILITY(MAP),      CAPABILITY(MODULES),     CAPABILITY(PUT_ENDS),
    CAPABILITY(PUT_AM),
};

/* Skips because the transport lacks these capabilities. */
static void driver_skip_without(uint64_t missing)
{
    char names[256] = "";

    for (size_t i = 0; i < sizeof(capabilities) / sizeof(capabilities[0]);
         i++) {
        if (missing & capabilities[i].bit) {
            strcat(names, " ");
            strcat(names, capabilities[i].name);
        }
    }
    ct_skip("%s lacks%s", ct_ops->name, names);
}

/* Skips with a reason if the transport cannot run the case. */
static void driver_require(const test_case_t *c)
{
    ct_side_t side;
    uint64_t missing;

    ct_side_open(&side);
    missing = c->caps & ~side.attr.caps;
    if (missing) {
        ct_side_close(&side);
        driver_skip_without(missing);
    }
    if (c->two_sides && ct_side_can(&side, PSC_CAP_SELF)) {
        ct_side_close(&side);
        ct_skip("%s reaches only its own process", ct_ops->name);
    }
    ct_side_close(&side);
}

static void driver_run(const char *name)
{
    const test_case_t *c = test_case_find(name);

    ct_check(c, "case %s", name);
    alarm(3 * CT_PATIENCE_S);
    driver_require(c);
    c->run();
}

int main(int argc, char **argv)
{
    static psc_setting_t settings[64];

    if (argc == 2 && strcmp(argv[1], "list") == 0)
        return driver_list();
    if (argc < 2 || argc - 2 > 64) {
        fprintf(stderr, "usage: %s list | CASE[,CASE] [NAME=NUMBER:TEXT ...]\n",
                argv[0]);
        return 2;
    }
    ct_ops = (const psc_transport_ops_t *)TRANSPORT();
    ct_n_settings = driver_settings(argv + 2, argc - 2, settings);
    ct_settings = settings;
    if (ct_own_prepare)
        ct_own_prepare();
    for (char *name = strtok(argv[1], ","); name; name = strtok(NULL, ","))
        driver_run(name);
    return 0;
}
