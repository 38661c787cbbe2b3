/* The variables of the environment. */
#define _POSIX_C_SOURCE 200809L
#include "csrc/job/variables.h"

#include <stdlib.h>
#include <string.h>

#include "csrc/base/text.h"

static const char *get_own(void *context, const char *name)
{
    (void)context;
    /* NOLINTNEXTLINE(concurrency-mt-unsafe): the library changes no environment */
    return getenv(name);
}

const struct tri_variables tri_variables_own = {get_own, NULL};

const char *tri_variable(const struct tri_variables *variables, const char *name)
{
    const char *value = variables->get(variables->context, name);
    return value != NULL && value[0] != '\0' ? value : NULL;
}

struct tri_variable_text tri_variable_text(const char *value)
{
    struct tri_variable_text out;
    tri_text_printable(out.text, (const uint8_t *)value, strnlen(value, sizeof out.text - 1));
    return out;
}

trib_status tri_variable_need(const char **out, const struct tri_variables *variables,
                              const char *launcher, const char *name)
{
    *out = tri_variable(variables, name);
    if (*out != NULL)
        return TRIB_OK;
    return tri_fail(TRIB_ERR_INVALID_USAGE,
                    "trib_job_read: the variable %s is not set, and a process that %s starts needs "
                    "it; set it, or name another launcher in TRIBUTARY_LAUNCHER",
                    name, launcher);
}

/* False unless it is digits, of a number of at most `most`. */
static bool parse(int32_t *out, const char *digits, int32_t most)
{
    int64_t number = 0;
    for (const char *c = digits; *c != '\0'; c++) {
        if (*c < '0' || *c > '9' || number > most)
            return false;
        number = 10 * number + (*c - '0');
    }
    *out = (int32_t)number;
    return number <= most;
}

trib_status tri_variable_number(int32_t *out, const struct tri_variables *variables,
                                const char *launcher, const char *name, int32_t least, int32_t most)
{
    const char *digits;
    TRI_TRY(tri_variable_need(&digits, variables, launcher, name));
    if (parse(out, digits, most) && *out >= least)
        return TRIB_OK;
    return tri_fail(
        TRIB_ERR_INVALID_ARGUMENT,
        "trib_job_read: the variable %s (%s) is \"%s\"; expected a number from %d to %d", name,
        launcher, tri_variable_text(digits).text, least, most);
}
